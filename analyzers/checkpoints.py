"""Detect checkpoints: bursts of writing on the host, or the owner's annotation."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import polars as pl

from analyzers.rows import WriteBursts, decode_frame, read_bursts, read_lifetimes
from analyzers.workload_rows import Owner
from fallow.checkpointing import INTERVAL, parse_interval_hours
from fallow.protocols import Views
from fallow.window import Window

WORKLOAD = ["cluster", "namespace", "workload_kind", "workload"]
LAST_BURSTS = timedelta(days=1)
LEAST_BURSTS, MOST_WRITING = 3, 0.3
"""Fewer bursts, or writing for more of the time, prove no checkpoints."""
MISSING = 1.5
"""A checkpoint older than this many intervals is not the last one: some were missed."""
REGULAR = 0.3
"""Gaps are regular if their 90th percentile is at most this far above the median."""


class Checkpoints(msgspec.Struct, frozen=True):
    """Maximum work between two saved states, and the source of that figure."""

    interval_h: float
    source: Literal["annotation", "writes", "peers"]
    write_s: float | None = None
    bursts: int | None = None
    regular: bool = True


def find_write_bursts(pods: pl.DataFrame, loud: pl.DataFrame) -> dict[Owner, Checkpoints]:
    """Return the time between each workload's bursts of writing, from the pod with most bursts."""
    return {
        row.owner: Checkpoints(
            interval_h=row.long_gap_s / 3600,
            source="writes",
            write_s=row.write_s,
            bursts=row.bursts,
            regular=_is_regular(row),
        )
        for row in _list_bursts(pods, loud)
    }


def _is_regular(row: WriteBursts) -> bool:
    return row.long_gap_s <= (1 + REGULAR) * row.gap_s


def _list_bursts(pods: pl.DataFrame, loud: pl.DataFrame) -> list[WriteBursts]:
    """Return the bursts of each workload's pod with the most of them.

    With a long sampling interval some bursts are missed, so the gaps are too long rather than too
    short. Continuous writing is no checkpoint.
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
            pl.col("at_s").last().alias("last_s"),
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
    return list(decode_frame(best, WriteBursts))


def read_last_checkpoints(views: Views, now: datetime, burst_bps: float) -> dict[Owner, datetime]:
    """Return when each workload last began a burst of writing, where the last day's are regular.

    None that is older than `MISSING` intervals: later ones were missed.
    """
    window = Window(now - LAST_BURSTS, now)
    frame = read_lifetimes(views, window.bounds())
    if frame.is_empty():
        return {}
    loud = read_bursts(views, window.bounds(), burst_bps)
    return {
        row.owner: datetime.fromtimestamp(row.last_s, UTC)
        for row in _list_bursts(frame, loud)
        if _is_regular(row) and now.timestamp() - row.last_s <= MISSING * row.long_gap_s
    }


def parse_interval(annotations: Mapping[str, Any], misread: list[str]) -> Checkpoints | None:
    """Return the owner's interval; an annotation that cannot be parsed is added to `misread`."""
    if INTERVAL not in annotations:
        return None
    hours = parse_interval_hours(annotations[INTERVAL])
    if hours is None:
        misread.append(f"{INTERVAL} is {annotations[INTERVAL]!r}, not a duration such as 30m")
        return None
    return Checkpoints(interval_h=hours, source="annotation")
