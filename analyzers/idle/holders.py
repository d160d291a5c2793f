"""Which workload held which device when."""

import msgspec
import polars as pl

from analyzers.idle import samples as source
from analyzers.idle import spans
from analyzers.queries import sql
from fallow.seams import Views
from fallow.window import Window

SPREAD = "request"
"""Rule of an allocation that spreads a pod over devices of its node that telemetry did not name."""


class Bucket(msgspec.Struct, frozen=True):
    """One of equal parts of all workloads, by the hash of their names; the default is all."""

    number: int = 0
    count: int = 1

    def parameters(self) -> dict[str, int]:
        """Return the parameters of SQL that reads a bucket."""
        return {"bucket": self.number, "buckets": self.count}


def holders(views: Views, window: Window, chosen: "source.Plan", bucket: Bucket) -> pl.DataFrame:
    """Return who held what when inside the window, workloads (`owner`) and devices numbered."""
    found = pl.DataFrame(
        views.query(sql("idle/allocations"), {**window.bounds(), **bucket.parameters()})
    )
    found = found.rename({"start_us": "start", "end_us": "end"}).filter(
        pl.col("end") > pl.col("start")
    )
    numbered = found.join(
        chosen.devices.select("number", "cluster", "device"), on=["cluster", "device"]
    )
    return numbered.with_columns(owner=pl.struct(spans.WORKLOAD).rank("dense").cast(pl.Int64) - 1)


def overlapping(times: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Join stretches to the parts of the same owner that overlap them.

    `start` and `end` become those of the overlap, `overlap` its microseconds.
    """
    named = parts.rename({"start": "part_start", "end": "part_end"})
    both = times.join(named, on="owner").with_columns(
        pl.max_horizontal("start", "part_start").alias("start"),
        pl.min_horizontal("end", "part_end").alias("end"),
    )
    both = both.filter(pl.col("end") > pl.col("start")).with_columns(
        overlap=pl.col("end") - pl.col("start")
    )
    return both.drop("part_start", "part_end")
