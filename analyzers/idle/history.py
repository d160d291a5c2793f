"""Find what shows how long a workload may idle: earlier stretches, and work for a moment in one.

A job that merges shards for 90 minutes between epochs was idle before, and continued. These
stretches are computed from the devices alone. A stretch ended by itself if a device of the workload
computed within an hour after it. If telemetry or the workload ended, this is unknown.
"""

from datetime import datetime, timedelta

import msgspec
import numpy as np
import polars as pl

from analyzers.idle import pieces, spans
from analyzers.idle import samples as source
from analyzers.idle.holders import join_overlapping, read_holders
from analyzers.idle.stretches import count_computing
from analyzers.queries import load_sql
from capacity.placement.fleet_state import convert_micros
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.signals.runs import BUCKET_US, MICRO, find_idle_runs

SHORTEST_S = 1800
"""Shorter stretches are irrelevant: a finding's minimum duration excludes them already."""

AFTER_US = 3600 * MICRO
"""A stretch ended by itself if a device computes within this time after its end."""

_SCHEMA = {"owner": pl.Int64, "start": pl.Int64, "end": pl.Int64}


def read_ended_stretches(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, first: datetime, chosen: source.SampleQuery, whole: pl.DataFrame,
    merged: pl.DataFrame, holds: pl.DataFrame, rows: pl.DataFrame, settings: IdleSettings,
) -> pl.DataFrame:  # fmt: skip
    """Return the idle stretches of `rows`' workloads that ended by themselves: owner, start, end.

    Those of the window are in its pieces (`whole`). Where the history before the `first` time has
    more samples, it is read up to the window's end, so that a stretch across the window's start
    counts as one.
    """
    owners = rows.filter(pl.col("state") == "idle").select("owner").unique()
    inside = _select_idle(whole.join(owners, on="owner", how="semi"), merged)
    ended = _keep_ended(views, chosen, inside, merged)
    if owners.is_empty():
        return ended
    earlier = Window(min(window.start, first - settings.history), window.end)
    if earlier == window:
        return ended
    longer = source.plan_query(views, earlier, settings, times=np.empty(0, dtype=np.int64))
    if (longer.source, longer.rows) == (chosen.source, chosen.rows):
        return ended  # nothing is older than the window
    names = holds.join(owners, on="owner", how="semi").select("owner", *spans.WORKLOAD)
    before = _read_earlier_stretches(views, earlier, longer, names.unique("owner"), settings)
    return pl.concat([ended, before])


def read_bursts(
    views: Views,
    chosen: source.SampleQuery,
    members: pl.DataFrame,
    peaks: pl.DataFrame,
    margin_w: float,
) -> pl.DataFrame:
    """Return when devices of stretches worked for a moment that ended none: span, burst_us.

    `members` has span and number. Those are the `peaks` in which power or energy confirms work.
    """
    spans_of = members.select("span", "number").unique()
    peaks = peaks.join(spans_of, on="number", how="semi")
    if peaks.is_empty():
        return pl.DataFrame(schema={"span": pl.Int64, "burst_us": pl.Int64})
    used = peaks.sort("number", "at_us").join(
        chosen.devices.select("number", "cluster", "device"), on="number", maintain_order="left"
    )
    at_us = used["at_us"].to_list()
    first, last = convert_micros(min(at_us)), convert_micros(max(at_us))
    parameters = {
        "exit_threshold": chosen.parameters["exit_threshold"],
        "since": first,
        "until": last + timedelta(microseconds=BUCKET_US),
        "numbers": used["number"].to_list(),
        "clusters": used["cluster"].to_list(),
        "devices": used["device"].to_list(),
        "at_us": at_us,
        "margin_w": margin_w,
    }
    bursts = pl.DataFrame(views.query(load_sql("idle/bursts"), parameters))
    return spans_of.join(bursts, on="number").select("span", burst_us="at_us").unique()


def add_longest_rest(
    rows: pl.DataFrame, stretches: pl.DataFrame, bursts: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add `longest_rest_us`: the longest rest before each row's that ended by itself.

    Those are earlier stretches, if they ended within the history of the settings, and the rests
    before the `bursts` of this one; the work that ends it is none of them. Adds `rested_us` too:
    how long it has rested since the last.
    """
    both = rows.select("row", "owner", "at", begin="start").join(stretches, on="owner")
    since = pl.col("at") - round(settings.history.total_seconds() * MICRO)
    both = both.filter((pl.col("end") <= pl.col("begin")) & (pl.col("end") > since))
    inside = rows.select("row", "span", "at", "start", until="end").join(bursts, on="span")
    inside = inside.filter(
        (pl.col("burst_us") >= pl.col("start"))
        & (pl.col("burst_us") + BUCKET_US <= pl.min_horizontal("until", "at"))
    ).sort("row", "burst_us")
    before = pl.col("burst_us").shift(1).over("row").fill_null(pl.col("start"))
    idle_times = pl.concat(
        [
            both.select("row", rest_us=pl.col("end") - pl.col("start")),
            inside.select("row", rest_us=pl.col("burst_us") - before),
        ]
    )
    longest = idle_times.group_by("row").agg(longest_rest_us=pl.col("rest_us").max())
    last = inside.group_by("row").agg(pl.col("burst_us").max())
    joined = rows.join(longest, on="row", how="left").join(last, on="row", how="left")
    begun = pl.col("burst_us").fill_null(pl.col("start"))
    return joined.with_columns(rested_us=pl.col("end") - begun).drop("burst_us")


def _read_earlier_stretches(
    views: Views,
    window: Window,
    chosen: source.SampleQuery,
    names: pl.DataFrame,
    settings: IdleSettings,
) -> pl.DataFrame:
    """Return the stretches of a longer window that ended by themselves, of named workloads."""
    holds = read_holders(views, window, chosen, settings).drop("owner")
    holds = holds.join(names, on=spans.WORKLOAD)
    if holds.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    numbers = holds["number"].unique()
    chosen = msgspec.structs.replace(
        chosen, devices=chosen.devices.filter(pl.col("number").is_in(numbers.implode()))
    )
    merged = spans.merge_holds(holds)
    cut = []
    for samples in source.read_parts(views, chosen, settings, merged):
        if not len(samples):
            continue
        runs = find_idle_runs(samples, exit_samples=settings.exit_samples, shortest_s=SHORTEST_S)
        if len(runs):
            cut.append(pieces.cut_by_holders(runs, merged))
    if not cut:
        return pl.DataFrame(schema=_SCHEMA)
    weighed = pl.concat(cut).with_columns(gpus=pl.lit(0.0))
    return _keep_ended(views, chosen, _select_idle(weighed, merged), merged)


def _select_idle(whole: pl.DataFrame, merged: pl.DataFrame) -> pl.DataFrame:
    stretches = spans.find_stretches(whole, merged)
    long = pl.col("end") - pl.col("start") >= SHORTEST_S * MICRO
    return stretches.filter((pl.col("state") == "idle") & long).select("owner", "start", "end")


def _keep_ended(
    views: Views, chosen: source.SampleQuery, stretches: pl.DataFrame, merged: pl.DataFrame
) -> pl.DataFrame:
    """Keep the stretches after which a device of the workload computed."""
    if stretches.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    rest = stretches.with_row_index("span").with_columns(pl.col("span").cast(pl.Int64))
    after = rest.select("span", "owner", start="end", end=pl.col("end") + AFTER_US)
    shares = count_computing(views, chosen, join_overlapping(after, merged))
    busy = sorted({row.span for row in shares if row.busy})
    return rest.filter(pl.col("span").is_in(busy)).select(*_SCHEMA)
