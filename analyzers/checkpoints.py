"""Checkpoints as far as a host shows them: bursts of writing, or what the owner says."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import polars as pl

from fallow.errors import UsageError
from fallow.window import parse_duration

WORKLOAD = ["cluster", "namespace", "workload_kind", "workload"]
Owner = tuple[str, str, str, str]
INTERVAL = "fallow.dev/checkpoint-interval"
"""What owners may say: `30m`."""
LEAST_BURSTS, MOST_WRITING = 3, 0.3
"""Fewer bursts, or writing for more of the time, show no checkpoints."""
REGULAR = 0.3
"""Gaps whose 90th percentile is no more than this above the median are regular."""


class Checkpoints(msgspec.Struct, frozen=True):
    """Work between two saved states, at most, and who says so."""

    interval_h: float
    source: Literal["annotation", "writes"]
    write_s: float | None = None
    bursts: int | None = None
    regular: bool = True


def find_write_bursts(pods: pl.DataFrame, loud: pl.DataFrame) -> dict[Owner, Checkpoints]:
    """Return how far apart each workload's bursts of writing are, by the pod that has most.

    Looks that are far apart miss some, so that gaps are rather too long; what is written all the
    time is no checkpoint.
    """
    since = pl.col("at_s") - pl.col("at_s").shift(1).over("who")
    each = (
        loud.sort("who", "at_s")
        .with_columns(fresh=since.is_null() | (since > 1.5 * pl.col("interval_s")))
        .with_columns(loud_s=pl.col("interval_s").sum().over("who"))
        .with_columns(span_s=(pl.col("at_s").last() - pl.col("at_s").first()).over("who"))
        .filter("fresh")
        .with_columns(gap=pl.col("at_s") - pl.col("at_s").shift(1).over("who"))
        .group_by("who")
        .agg(
            pl.len().alias("bursts"),
            pl.col("gap").median().alias("gap_s"),
            pl.col("gap").quantile(0.9, "linear").alias("long_gap_s"),
            (pl.col("loud_s").first() / pl.len()).alias("write_s"),
            (pl.col("loud_s").first() / pl.col("span_s").first()).alias("share"),
        )
        .filter((pl.col("bursts") >= LEAST_BURSTS) & (pl.col("share") <= MOST_WRITING))
    )
    best = (
        pods.select(*WORKLOAD, "pod", "who")
        .unique()
        .join(each, on="who")
        .sort("bursts", "pod", descending=[True, False])
        .unique(WORKLOAD, keep="first", maintain_order=True)
    )
    return {
        tuple(row[name] for name in WORKLOAD): Checkpoints(
            interval_h=row["long_gap_s"] / 3600,
            source="writes",
            write_s=row["write_s"],
            bursts=row["bursts"],
            regular=row["long_gap_s"] <= (1 + REGULAR) * row["gap_s"],
        )
        for row in best.iter_rows(named=True)
    }


def parse_interval(annotations: Mapping[str, Any], misread: list[str]) -> Checkpoints | None:
    """Return what the owner says; what cannot be read is added to `misread`."""
    if INTERVAL not in annotations:
        return None
    try:
        seconds = parse_duration(str(annotations[INTERVAL])).total_seconds()
    except UsageError:
        seconds = 0.0
    if seconds <= 0:
        misread.append(f"{INTERVAL} is {annotations[INTERVAL]!r}, not a duration such as 30m")
        return None
    return Checkpoints(interval_h=seconds / 3600, source="annotation")
