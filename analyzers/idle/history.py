"""A workload's own rests of before: those that ended by themselves tell how long it may rest.

A job that merges shards for 90 minutes between epochs has rested before, and went on. Rests are
taken from the devices alone. One ended by itself when a device of the workload computed within an
hour; where telemetry ended, or the workload did, nobody knows.
"""

import msgspec
import polars as pl

from analyzers.idle import pieces, spans
from analyzers.idle import samples as source
from analyzers.idle.holders import Bucket, holders, overlapping
from analyzers.idle.stretches import compute_shares
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window
from warehouse.signals.runs import MICRO, idle_runs

SHORTEST_S = 1800
"""Shorter rests say nothing that the least duration of a finding does not."""

AFTER_US = 3600 * MICRO
"""Within so long after its end a rest that ended by itself shows work."""

_SCHEMA = {"owner": pl.Int64, "start": pl.Int64, "end": pl.Int64}


def rests(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, chosen: source.Plan, whole: pl.DataFrame, merged: pl.DataFrame,
    holds: pl.DataFrame, rows: pl.DataFrame, settings: IdleSettings,
) -> pl.DataFrame:  # fmt: skip
    """Return the rests that ended by themselves of the workloads of `rows`: owner, start, end.

    Those of the window are in its pieces (`whole`). Those of before are read again, up to the
    window's end: a rest that the window's start cuts in two counts as one.
    """
    owners = rows.filter(pl.col("state") == "idle").select("owner").unique()
    inside = _idle(whole.join(owners, on="owner", how="semi"), merged)
    ended = _ended(views, chosen, inside, merged)
    if owners.is_empty():
        return ended
    earlier = Window(window.start - settings.history, window.end)
    names = holds.join(owners, on="owner", how="semi").select("owner", *spans.WORKLOAD)
    before = _before(views, earlier, names.unique("owner"), settings)
    return pl.concat([ended, before])


def with_history(rows: pl.DataFrame, rests: pl.DataFrame) -> pl.DataFrame:
    """Add `longest_rest_us`: the longest rest that ended by itself before each row's stretch."""
    both = rows.select("row", "owner", begin="start").join(rests, on="owner")
    both = both.filter(pl.col("end") <= pl.col("begin"))
    longest = both.group_by("row").agg(longest_rest_us=(pl.col("end") - pl.col("start")).max())
    return rows.join(longest, on="row", how="left")


def _before(
    views: Views, window: Window, names: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Return the rests of a longer window, of the workloads named by owner."""
    chosen = source.plan(views, window, settings)
    held = holders(views, window, chosen, Bucket()).drop("owner")
    held = held.join(names, on=spans.WORKLOAD)
    if held.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    numbers = held["number"].unique()
    chosen = msgspec.structs.replace(
        chosen, devices=chosen.devices.filter(pl.col("number").is_in(numbers.implode()))
    )
    merged = spans.merged_holds(held)
    cut = []
    for samples in source.parts(views, chosen, settings):
        if not len(samples):
            continue
        runs = idle_runs(samples, exit_samples=settings.exit_samples, shortest_s=SHORTEST_S)
        if len(runs):
            cut.append(pieces.held(runs, merged))
    if not cut:
        return pl.DataFrame(schema=_SCHEMA)
    weighed = pl.concat(cut).with_columns(gpus=pl.lit(0.0))
    return _ended(views, chosen, _idle(weighed, merged), merged)


def _idle(whole: pl.DataFrame, merged: pl.DataFrame) -> pl.DataFrame:
    found = spans.stretches(whole, merged)
    long = pl.col("end") - pl.col("start") >= SHORTEST_S * MICRO
    return found.filter((pl.col("state") == "idle") & long).select("owner", "start", "end")


def _ended(
    views: Views, chosen: source.Plan, found: pl.DataFrame, merged: pl.DataFrame
) -> pl.DataFrame:
    """Keep the rests after which a device of the workload was seen to compute."""
    if found.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    rest = found.with_row_index("span").with_columns(pl.col("span").cast(pl.Int64))
    after = rest.select("span", "owner", start="end", end=pl.col("end") + AFTER_US)
    shares = compute_shares(views, chosen, overlapping(after, merged))
    busy = sorted({row["span"] for row in shares if row["busy"]})
    return rest.filter(pl.col("span").is_in(busy)).select(*_SCHEMA)
