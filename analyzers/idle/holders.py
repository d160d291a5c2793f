"""The allocations of devices to workloads over time."""

from typing import Any

import msgspec
import polars as pl

from analyzers.idle import samples as source
from analyzers.idle import spans
from analyzers.queries import load_sql
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window

SPREAD = "request"
"""Rule of an allocation that divides a pod over devices of its node, for lack of device names."""


class WorkloadBucket(msgspec.Struct, frozen=True):
    """One of equal parts of all workloads, by the hash of their names; the default is all.

    `workloads`: only these, as `cluster/namespace/kind/name`; none = all of the part.
    """

    number: int = 0
    count: int = 1
    workloads: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of SQL that reads a bucket."""
        return {"bucket": self.number, "buckets": self.count, "workloads": [*self.workloads]}


def read_holders(
    views: Views,
    window: Window,
    chosen: "source.SampleQuery",
    settings: IdleSettings,
    bucket: WorkloadBucket | None = None,
) -> pl.DataFrame:
    """Return the window's allocations to workloads (`owner`), workloads and devices numbered.

    A pod's first `startup_grace` is left out: the ledger counts it as `startup`.
    """
    parameters = {
        **window.bounds(),
        "startup_s": settings.startup_grace.total_seconds(),
        **(bucket or WorkloadBucket()).parameters(),
    }
    allocations = pl.DataFrame(views.query(load_sql("idle/allocations"), parameters))
    allocations = allocations.rename({"start_us": "start", "end_us": "end"}).filter(
        pl.col("end") > pl.col("start")
    )
    numbered = allocations.join(
        chosen.devices.select("number", "cluster", "device"), on=["cluster", "device"]
    )
    return numbered.with_columns(owner=pl.struct(spans.WORKLOAD).rank("dense").cast(pl.Int64) - 1)


def join_overlapping(times: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
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
