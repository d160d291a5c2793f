"""Find idle stretches of workloads as they were known at each time."""

from collections.abc import Mapping
from datetime import timedelta

import numpy as np
import polars as pl

from analyzers.idle import samples as source
from analyzers.idle import spans
from analyzers.idle.holders import join_overlapping
from analyzers.idle.pieces import SUMS, list_ranges
from analyzers.idle.rows import ComputeShare, StretchGap, read_compute_shares
from analyzers.rows import decode_frame
from capacity.placement.fleet_state import convert_micros
from fallow.protocols import Views
from warehouse.case_parts import LONGEST_SILENCE, Gap, find_silent_gaps
from warehouse.signals.runs import MICRO, Ints

BUSY_SHARE = 0.2
"""Share of samples from the exit threshold on above which another rank counts as busy."""


def find_stretches(
    whole: pl.DataFrame, merged: pl.DataFrame, least: Mapping[str, int]
) -> pl.DataFrame:
    """Return when workloads were idle: span, owner, start, end, state, devices (allocated).

    `least`: the minimum length in microseconds, by wanted state (`idle`, `partly idle`).
    """
    candidates = spans.find_stretches(whole, merged)
    shortest = pl.col("state").replace_strict(least, default=None, return_dtype=pl.Int64)
    candidates = candidates.filter(pl.col("end") - pl.col("start") >= shortest)
    candidates = candidates.select("owner", "start", "end", "state", "devices").sort(
        "owner", "start"
    )
    return candidates.with_row_index("span").with_columns(pl.col("span").cast(pl.Int64))


def count_computing(
    views: Views, chosen: source.SampleQuery, devices: pl.DataFrame
) -> list[ComputeShare]:
    """Return how many samples of devices computed; `devices` has span, number, start, end."""
    named = devices.join(chosen.devices.select("number", "cluster", "device"), on="number")
    parameters = {
        "since": chosen.parameters["since"],
        "until": chosen.parameters["until"],
        "exit_threshold": chosen.parameters["exit_threshold"],
        "spans": named["span"].to_list(),
        "clusters": named["cluster"].to_list(),
        "devices": named["device"].to_list(),
        "starts": named["start"].to_list(),
        "ends": named["end"].to_list(),
    }
    return read_compute_shares(views, parameters, raw=chosen.source == "sample")


def keep_beside_busy(
    views: Views, chosen: source.SampleQuery, candidates: pl.DataFrame, whole: pl.DataFrame,
    merged: pl.DataFrame,
) -> pl.DataFrame:  # fmt: skip
    """Drop partly idle stretches in which no other device computed."""
    partly = candidates.filter(pl.col("state") == "partly idle").select(
        "span", "owner", "start", "end"
    )
    if partly.is_empty():
        return candidates
    idle = join_overlapping(partly, whole).select("span", "number").unique()
    others = join_overlapping(partly, merged).join(idle, on=["span", "number"], how="anti")
    busy = {
        row.span
        for row in count_computing(views, chosen, others)
        if row.samples and (row.busy or 0) / row.samples >= BUSY_SHARE
    }
    return candidates.filter((pl.col("state") == "idle") | pl.col("span").is_in(list(busy)))


def keep_before_silence(
    views: Views, chosen: source.SampleQuery, candidates: pl.DataFrame, holds: pl.DataFrame,
    lookback: timedelta,
) -> pl.DataFrame:  # fmt: skip
    """Lengthen the slack of idle stretches that only missing samples separate from the next one."""
    names = holds.unique("owner").select("owner", *spans.WORKLOAD)
    both = candidates.filter(pl.col("state") == "idle").sort("owner", "start")
    both = both.with_columns(next=pl.col("start").shift(-1).over("owner")).join(names, on="owner")
    gap = pl.col("next") - pl.col("end")
    longest = round(LONGEST_SILENCE.total_seconds() * MICRO)
    close = both.filter((gap > 0) & (gap <= longest))
    gaps = [
        Gap(
            row.span,
            (row.cluster, row.workload_kind, row.namespace, row.workload),
            convert_micros(row.end),
            convert_micros(row.next),
        )
        for row in decode_frame(close.select("span", *spans.WORKLOAD, "end", "next"), StretchGap)
    ]
    silent = find_silent_gaps(views, gaps, chosen.source)
    slack = pl.max_horizontal("slack_us", pl.lit(round(lookback.total_seconds() * MICRO)))
    is_kept = pl.col("span").is_in([*silent])
    return candidates.with_columns(slack_us=pl.when(is_kept).then(slack).otherwise("slack_us"))


def list_members(candidates: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Return the pieces of each stretch: span, piece, start, end, run_start, ripe."""
    pieces = whole.select("owner", "piece", "run_start", "ripe", begin="start", finish="end")
    both = candidates.join(pieces, on="owner")
    both = both.filter((pl.col("finish") > pl.col("start")) & (pl.col("begin") < pl.col("end")))
    return both.select("span", "piece", "run_start", "ripe", start="begin", end="finish")


def list_at_times(
    candidates: pl.DataFrame, made_of: pl.DataFrame, at: pl.DataFrame, times: Ints, *,
    least: Mapping[str, int], over: bool = False,
) -> pl.DataFrame:  # fmt: skip
    """Return what was known of each stretch at each time: span, owner, state, devices, k, ...

    start and end: it ends where the first of its devices was not yet, or no longer, known to be
    idle. Stretches that ended longer than their slack (`slack_us` of `candidates`) before a time
    are over, and left out; with `over` they are kept.
    """
    least_us = candidates["state"].replace_strict(least, return_dtype=pl.Int64).to_numpy()
    low = np.searchsorted(times, candidates["start"].to_numpy() + least_us, side="left")
    high = np.full_like(low, len(times))
    if not over:
        last = candidates["end"] + candidates["slack_us"]
        high = np.searchsorted(times, last.to_numpy(), side="right")
    high = np.maximum(high, low)
    k = list_ranges(low, high)
    rows = candidates[np.repeat(np.arange(candidates.height), high - low)].with_columns(
        k=pl.Series(k, dtype=pl.Int64), at=pl.Series(times[k])
    )
    ends = pl.concat(
        [
            made_of.select("span", "piece")
            .join(at.select("piece", "k", "end"), on="piece")
            .select("span", "k", "end"),
            _find_unripe(made_of, times),
        ]
    )
    first = ends.group_by("span", "k").agg(pl.col("end").min().alias("seen"))
    rows = rows.join(first, on=["span", "k"], how="left").with_columns(
        end=pl.min_horizontal("end", "at", "seen")
    )
    shortest = pl.col("state").replace_strict(least, return_dtype=pl.Int64)
    long_enough = pl.col("end") - pl.col("start") >= shortest
    if not over:
        long_enough &= pl.col("end") >= pl.col("at") - pl.col("slack_us")
    named = ("span", "owner", "state", "devices", "k", "start", "end", "at", "slack_us")
    return rows.filter(long_enough).select(named).sort("span", "k")


def _find_unripe(made_of: pl.DataFrame, times: Ints) -> pl.DataFrame:
    """Return where runs too short to be known at a time end the stretch."""
    low = np.searchsorted(times, made_of["start"].to_numpy(), side="right")
    high = np.maximum(np.searchsorted(times, made_of["ripe"].to_numpy(), side="right"), low)
    k = pl.Series("k", list_ranges(low, high), dtype=pl.Int64)
    rows = made_of[np.repeat(np.arange(made_of.height), high - low)]
    return rows.select("span", k, end="start")


def join_pieces(
    rows: pl.DataFrame, made_of: pl.DataFrame, whole: pl.DataFrame, at: pl.DataFrame
) -> pl.DataFrame:
    """Return the pieces of each row (stretch and time) with their sums as of that time.

    `rows` has row, span, k, start, end, at. Adds number, share, gpus, gpu_model, piece_start,
    piece_end, and clips start and end to the piece; `seen` is the share of it in which samples
    are valid (0-1) and `overlap` its microseconds between start and end: the rest is unknown in the
    ledger, and no waste.
    """
    facts = whole.select("piece", "number", "share", "gpus", "gpu_model", "instance", *SUMS)
    both = rows.select("row", "span", "k", "start", "end", "at").join(
        made_of.select("span", "piece", piece_start="start", whole_end="end"),
        on="span",
        # In order: else the last digit of a sum depends on how many rows there are.
        maintain_order="left_right",
    )
    both = both.filter(
        (pl.col("piece_start") < pl.col("end")) & (pl.col("whole_end") > pl.col("start"))
    )
    named = at.rename({name: f"{name}_at" for name in SUMS}).rename({"end": "end_at"})
    both = both.join(named, on=["piece", "k"], how="left", maintain_order="left")
    both = both.join(facts, on="piece", maintain_order="left")
    growing = pl.col("end_at").is_not_null()
    both = both.with_columns(
        *(pl.when(growing).then(f"{name}_at").otherwise(name).alias(name) for name in SUMS),
        piece_end=pl.when(growing).then("end_at").otherwise(pl.min_horizontal("whole_end", "at")),
    ).drop("end_at", "whole_end", *(f"{name}_at" for name in SUMS))
    both = both.with_columns(
        start=pl.max_horizontal("start", "piece_start"), end=pl.min_horizontal("end", "piece_end")
    )
    both = both.filter(pl.col("end") > pl.col("start"))
    length = pl.col("piece_end") - pl.col("piece_start")
    both = both.with_columns(seen=1 - (pl.col("silent_us") / length).clip(0, 1))
    return both.with_columns(overlap=(pl.col("end") - pl.col("start")) * pl.col("seen"))
