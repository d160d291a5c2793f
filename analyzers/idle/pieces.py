"""IdleRuns cut where devices change hands, and what was seen of each piece by each moment."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.idle import spans
from warehouse.signals.power_band import BINS
from warehouse.signals.runs import IDLE, LIVE, MICRO, DeviceSamples, IdleRuns, Ints

SUMS = (
    "looks", "idle_looks", "interval_s", "power_w", "traffic", "procs", "kernel_age_s",
    "idle_clock", "still", "contrary", "low", "silent_us",
)  # fmt: skip


class RunPieces(msgspec.Struct, frozen=True):
    """Pieces as a whole, and as they looked at the moments inside them.

    whole: piece, owner, number, start, end, share, run_start, ripe (the run is long enough at
    moments after it), repeats (its samples repeat old values) and the sums of `spans.sum_samples`.
    at: piece, k (the moment), end, and the sums.
    """

    whole: pl.DataFrame
    at: pl.DataFrame


def cut_by_holders(runs: IdleRuns, holds: pl.DataFrame) -> pl.DataFrame:
    """Cut runs by holders: owner, number, start, end, share and the run's own columns."""
    frame = pl.DataFrame(
        {
            "number": runs.device,
            "run_start": runs.start,
            "run_end": runs.end,
            "first": runs.first,
            "last": runs.last,
        }
    )
    cut = frame.join(holds, on="number", how="inner").with_columns(
        start=pl.max_horizontal("run_start", "start"), end=pl.min_horizontal("run_end", "end")
    )
    return cut.filter(pl.col("end") > pl.col("start"))


def cut_runs(
    looks: DeviceSamples, runs: IdleRuns, holds: pl.DataFrame, moments: Ints, *, shortest_s: float
) -> RunPieces:
    """Cut runs by holders and sum up each piece, whole and at every moment inside it."""
    known = pl.DataFrame(
        {
            "number": runs.device,
            "run_start": runs.start,
            "ripe": _find_ripe(looks, runs, shortest_s),
            "repeats": _has_repeats(looks, runs),
        }
    )
    cut = cut_by_holders(runs, holds).join(known, on=["number", "run_start"])
    cut = cut.sort("owner", "number", "start")
    cut = cut.with_row_index("piece").with_columns(pl.col("piece").cast(pl.Int64))
    if cut.is_empty():
        return RunPieces(cut, cut)
    inside = _list_inside(looks, cut, moments)
    edges = [spans.find_rows(looks, frame) for frame in (cut, inside)]
    low, high = (np.concatenate(both) for both in zip(*edges, strict=True))
    found = spans.sum_samples(looks, low, high, running=True)
    count = cut.height
    return RunPieces(
        cut.with_columns([pl.Series(n, v[:count]) for n, v in found.items()]).drop(
            "run_end", "first", "last"
        ),
        inside.select("piece", "k", "end", *(pl.Series(n, v[count:]) for n, v in found.items())),
    )


def count_learned(
    looks: DeviceSamples, model_of: Ints, held_from: Ints, models: int, moments: Ints
) -> Any:
    """Count the idle looks that teach a model's idle power, by the first moment that knows them.

    A device teaches once somebody has held it (`held_from`, by device); `model_of[device]` is -1
    for an unknown model. Boards without a context draw less and would pull the band down; where
    nobody reports memory, every idle sample counts. Returns (moments + 1) x models x watts.
    """
    watts, context = looks.measures["power_w"], looks.measures["context"]
    model = model_of[looks.device]
    used = (looks.kind == IDLE) & ~np.isnan(watts) & (model >= 0) & ~(context == 0)
    watt = np.clip(np.rint(watts[used]), 0, BINS - 1).astype(np.int64)
    since = np.maximum(looks.at[used], held_from[looks.device[used]])
    known = np.searchsorted(moments, since, side="right")
    flat = np.bincount(
        (known * models + model[used]) * BINS + watt, minlength=(len(moments) + 1) * models * BINS
    )
    return flat.reshape(len(moments) + 1, models, BINS)


def _has_repeats(looks: DeviceSamples, runs: IdleRuns) -> npt.NDArray[np.bool_]:
    """Say of each run whether its samples repeat old values."""
    if looks.still is None:
        return np.zeros(len(runs), dtype=bool)
    repeats: npt.NDArray[np.bool_] = looks.still[runs.first] != LIVE
    return repeats


def _find_ripe(looks: DeviceSamples, runs: IdleRuns, shortest_s: float) -> Ints:
    """Return the look of each run with which it became long enough."""
    key, wide, origin = _encode_keys(looks)
    wanted = runs.start + round(shortest_s * MICRO) - looks.speaks[runs.first]
    at = np.clip(wanted - origin, 0, wide - 1)
    row = np.searchsorted(key, runs.device * wide + at)
    following = _find_next_idle(looks)
    row = np.minimum(following[np.minimum(row, len(looks) - 1)], runs.last)
    at_row: Ints = looks.at[row]
    return at_row


def _list_inside(looks: DeviceSamples, cut: pl.DataFrame, moments: Ints) -> pl.DataFrame:
    """Return a row per piece and moment within it at which its run is long enough."""
    start = np.maximum(cut["start"].to_numpy(), cut["ripe"].to_numpy())
    low = np.searchsorted(moments, start, side="right")
    high = np.maximum(np.searchsorted(moments, cut["end"].to_numpy(), side="left"), low)
    index = np.repeat(np.arange(cut.height), high - low)
    k = list_ranges(low, high)
    rows = cut[index].with_columns(k=pl.Series(k, dtype=pl.Int64), at=pl.Series(moments[k]))
    key, wide, origin = _encode_keys(looks)
    before = np.clip(moments[k] - origin, 0, wide - 1)
    row = np.searchsorted(key, rows["number"].to_numpy() * wide + before) - 1
    last = np.maximum(_find_last_idle(looks)[row], rows["first"].to_numpy())
    seen = looks.at[last] + looks.speaks[last]
    return rows.with_columns(
        last=pl.Series(last), end=pl.min_horizontal("end", "at", pl.Series(seen))
    ).filter(pl.col("end") > pl.col("start"))


def list_ranges(low: Ints, high: Ints) -> Ints:
    """Return low[0]..high[0]-1, low[1]..high[1]-1 and so on, as one array."""
    length = high - low
    offset = np.repeat(np.cumsum(length) - length, length)
    made: Ints = np.arange(int(length.sum())) - offset + np.repeat(low, length)
    return made


def _encode_keys(looks: DeviceSamples) -> tuple[Ints, int, int]:
    origin = int(looks.at.min())
    wide = int(looks.at.max()) - origin + 2
    return looks.device * wide + (looks.at - origin), wide, origin


def _find_last_idle(looks: DeviceSamples) -> Ints:
    """Return, per look, the last idle one up to it."""
    index = np.where(looks.kind == IDLE, np.arange(len(looks)), 0)
    made: Ints = np.maximum.accumulate(index)
    return made


def _find_next_idle(looks: DeviceSamples) -> Ints:
    """Return, per look, the first idle one from it on; beyond the last, the last look."""
    most = len(looks) - 1
    index = np.where(looks.kind == IDLE, np.arange(len(looks)), most)
    made: Ints = np.minimum.accumulate(index[::-1])[::-1]
    return made
