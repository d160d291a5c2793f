"""Idle stretches of workloads as they looked at each moment."""

import numpy as np
import polars as pl

from analyzers import spans
from analyzers.replay.sums import SUMS, ranges
from analyzers.runs import MICRO, Ints


def stretches(whole: pl.DataFrame, merged: pl.DataFrame, least_us: int) -> pl.DataFrame:
    """Return the stretches in which whole workloads idled: span, owner, start, end."""
    found = spans.stretches(whole, merged)
    found = found.filter(
        (pl.col("state") == "idle") & (pl.col("end") - pl.col("start") >= least_us)
    )
    found = found.select("owner", "start", "end").sort("owner", "start")
    return found.with_row_index("span").with_columns(pl.col("span").cast(pl.Int64))


def members(found: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Return which pieces each stretch is made of: span, piece, start, end, run_start, ripe."""
    pieces = whole.select("owner", "piece", "run_start", "ripe", begin="start", finish="end")
    both = found.join(pieces, on="owner")
    both = both.filter((pl.col("finish") > pl.col("start")) & (pl.col("begin") < pl.col("end")))
    return both.select("span", "piece", "run_start", "ripe", start="begin", end="finish")


def at_moments(
    found: pl.DataFrame, made_of: pl.DataFrame, at: pl.DataFrame, moments: Ints, *,
    least_us: int, slack_us: int,
) -> pl.DataFrame:  # fmt: skip
    """Return how each stretch looked at each moment: span, owner, k, start, end.

    It ends where the first of its devices was not yet, or no longer, known to idle; those that
    ended longer than the slack before a moment are over, and not told.
    """
    low = np.searchsorted(moments, found["start"].to_numpy() + least_us, side="left")
    high = np.searchsorted(moments, found["end"].to_numpy() + slack_us, side="right")
    high = np.maximum(high, low)
    k = ranges(low, high)
    rows = found[np.repeat(np.arange(found.height), high - low)].with_columns(
        k=pl.Series(k, dtype=pl.Int64), at=pl.Series(moments[k])
    )
    ends = pl.concat(
        [
            made_of.select("span", "piece")
            .join(at.select("piece", "k", "end"), on="piece")
            .select("span", "k", "end"),
            _unripe(made_of, moments),
        ]
    )
    first = ends.group_by("span", "k").agg(pl.col("end").min().alias("seen"))
    rows = rows.join(first, on=["span", "k"], how="left").with_columns(
        end=pl.min_horizontal("end", "at", "seen")
    )
    kept = (pl.col("end") - pl.col("start") >= least_us) & (
        pl.col("end") >= pl.col("at") - slack_us
    )
    return rows.filter(kept).select("span", "owner", "k", "start", "end", "at").sort("span", "k")


def _unripe(made_of: pl.DataFrame, moments: Ints) -> pl.DataFrame:
    """Return where runs too short to be known at a moment end the stretch."""
    low = np.searchsorted(moments, made_of["start"].to_numpy(), side="right")
    high = np.maximum(np.searchsorted(moments, made_of["ripe"].to_numpy(), side="right"), low)
    k = pl.Series("k", ranges(low, high), dtype=pl.Int64)
    rows = made_of[np.repeat(np.arange(made_of.height), high - low)]
    return rows.select("span", k, end="start")


def pieces_of(
    rows: pl.DataFrame, made_of: pl.DataFrame, whole: pl.DataFrame, at: pl.DataFrame
) -> pl.DataFrame:
    """Return the pieces of each row (stretch and moment) with their sums as of the moment.

    `rows` has row, span, k, start, end, at. Adds number, share, gpus, gpu_model, piece_start,
    piece_end, and clips start and end to the piece; `overlap` is their distance.
    """
    facts = whole.select("piece", "number", "share", "gpus", "gpu_model", "instance", *SUMS)
    both = rows.select("row", "span", "k", "start", "end", "at").join(
        made_of.select("span", "piece", piece_start="start", whole_end="end"), on="span"
    )
    both = both.filter(
        (pl.col("piece_start") < pl.col("end")) & (pl.col("whole_end") > pl.col("start"))
    )
    named = at.rename({name: f"{name}_at" for name in SUMS}).rename({"end": "end_at"})
    both = both.join(named, on=["piece", "k"], how="left").join(facts, on="piece")
    growing = pl.col("end_at").is_not_null()
    both = both.with_columns(
        *(pl.when(growing).then(f"{name}_at").otherwise(name).alias(name) for name in SUMS),
        piece_end=pl.when(growing).then("end_at").otherwise(pl.min_horizontal("whole_end", "at")),
    ).drop("end_at", "whole_end", *(f"{name}_at" for name in SUMS))
    both = both.with_columns(
        start=pl.max_horizontal("start", "piece_start"), end=pl.min_horizontal("end", "piece_end")
    )
    both = both.filter(pl.col("end") > pl.col("start"))
    return both.with_columns(overlap=pl.col("end") - pl.col("start"))


def microseconds(seconds: float) -> int:
    """Return seconds as whole microseconds."""
    return round(seconds * MICRO)
