"""Cut idle runs where a device's holder changes, and sum each piece up to each time."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.idle import spans
from warehouse.signals.power_band import BINS
from warehouse.signals.runs import BUCKET_US, IDLE, MICRO, DeviceSamples, IdleRuns, Ints
from warehouse.signals.states import LOW_ACTIVITY

SUMS = (
    "samples", "idle_samples", "interval_s", "power_w", "traffic", "procs", "kernel_age_s",
    "idle_clock", "still", "contrary", "low", "silent_us",
    "changes", "readings",
)  # fmt: skip


HOUR_BUCKETS = 12


class RunPieces(msgspec.Struct, frozen=True):
    """Pieces as a whole, and as known at the times inside them.

    whole: piece, owner, number, start, end, share, run_start, ripe (the run is long enough at times
    after it), repeats (its samples repeat old values) and the sums of `spans.sum_samples`. at:
    piece, k (the time's number), end, and the sums. peaks: number and at_us of the five minutes of
    runs with a reading from the exit threshold on.
    """

    whole: pl.DataFrame
    at: pl.DataFrame
    peaks: pl.DataFrame


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
    samples: DeviceSamples, runs: IdleRuns, holds: pl.DataFrame, times: Ints, *, shortest_s: float
) -> RunPieces:
    """Cut runs by holders and sum up each piece, whole and at every time inside it."""
    facts = pl.DataFrame(
        {
            "number": runs.device,
            "run_start": runs.start,
            "ripe": _find_ripe(samples, runs, shortest_s),
            "repeats": _has_repeats(samples, runs),
        }
    )
    cut = cut_by_holders(runs, holds).join(facts, on=["number", "run_start"])
    cut = cut.sort("owner", "number", "start")
    cut = cut.with_row_index("piece").with_columns(pl.col("piece").cast(pl.Int64))
    peaks = _list_peaks(samples, runs)
    if cut.is_empty():
        return RunPieces(cut, cut, peaks)
    inside = _list_inside(samples, cut, times)
    edges = [spans.find_rows(samples, frame) for frame in (cut, inside)]
    low, high = (np.concatenate(both) for both in zip(*edges, strict=True))
    sums = spans.sum_samples(samples, low, high)
    count = cut.height
    return RunPieces(
        cut.with_columns([pl.Series(n, v[:count]) for n, v in sums.items()]).drop(
            "run_end", "first", "last"
        ),
        inside.select("piece", "k", "end", *(pl.Series(n, v[count:]) for n, v in sums.items())),
        peaks,
    )


def count_learned(
    samples: DeviceSamples, model_of: Ints, held_from: Ints, models: int, times: Ints
) -> Any:
    """Count the idle samples from which a model's idle power is learned, by the first later time.

    A device counts once it has been allocated (`held_from`, by device); `model_of[device]` is -1
    for an unknown model. GPUs without a context have lower power and would lower the band; where no
    exporter reports memory, every idle sample counts. Light work has more and would raise it.
    Returns (times + 1) x models x watts.
    """
    watts, context = samples.measures["power_w"], samples.measures["context"]
    model = model_of[samples.device]
    used = (samples.kind == IDLE) & ~np.isnan(watts) & (model >= 0) & ~(context == 0)
    used &= ~(samples.measures["activity"] >= LOW_ACTIVITY)
    watt = np.clip(np.rint(watts[used]), 0, BINS - 1).astype(np.int64)
    since = np.maximum(samples.at[used], held_from[samples.device[used]])
    first_k = np.searchsorted(times, since, side="right")
    flat = np.bincount(
        (first_k * models + model[used]) * BINS + watt,
        None if samples.wide is None else samples.wide.buckets[used],
        (len(times) + 1) * models * BINS,
    )
    return flat.astype(np.int64).reshape(len(times) + 1, models, BINS)


def _list_peaks(samples: DeviceSamples, runs: IdleRuns) -> pl.DataFrame:
    rows = np.flatnonzero(samples.peak) if samples.peak is not None else np.empty(0, np.int64)
    # Runs are in the order of the rows: the latest that begins by a row is the only one to have it.
    run = np.searchsorted(runs.first, rows, side="right") - 1
    inside = rows[(run >= 0) & (rows <= runs.last[run])]
    at = samples.at[inside] // BUCKET_US * BUCKET_US
    if samples.wide is not None and samples.peak is not None:
        place, bucket = np.nonzero(samples.peak[inside, None] >> np.arange(HOUR_BUCKETS) & 1)
        inside, at = inside[place], at[place] + bucket * BUCKET_US
    return pl.DataFrame({"number": samples.device[inside], "at_us": at}).unique()


def _has_repeats(samples: DeviceSamples, runs: IdleRuns) -> npt.NDArray[np.bool_]:
    """Return for each run whether its samples repeat old values."""
    if samples.still is None:
        return np.zeros(len(runs), dtype=bool)
    repeats: npt.NDArray[np.bool_] = samples.still[runs.first]
    return repeats


def _find_ripe(samples: DeviceSamples, runs: IdleRuns, shortest_s: float) -> Ints:
    """Return the time of the sample with which each run became long enough."""
    key, wide, origin = _encode_keys(samples)
    wanted = runs.start + round(shortest_s * MICRO) - samples.once_valid[runs.first]
    at = np.clip(wanted - origin, 0, wide - 1)
    row = np.searchsorted(key, runs.device * wide + at)
    before = np.maximum(row - 1, runs.first)
    following = _find_next_idle(samples)
    row = np.minimum(following[np.minimum(row, len(samples) - 1)], runs.last)
    ripe: Ints = samples.at[row]
    # One of the later buckets of the row before may be it.
    steps = -(-(wanted - samples.at[before]) // BUCKET_US)
    within = (wanted > samples.at[before]) & (wanted <= samples.last_at[before])
    within &= samples.kind[before] == IDLE
    return np.where(within, samples.at[before] + steps * BUCKET_US, ripe)


def _list_inside(samples: DeviceSamples, cut: pl.DataFrame, times: Ints) -> pl.DataFrame:
    """Return a row per piece and time within it at which its run is long enough."""
    start = np.maximum(cut["start"].to_numpy(), cut["ripe"].to_numpy())
    low = np.searchsorted(times, start, side="right")
    high = np.maximum(np.searchsorted(times, cut["end"].to_numpy(), side="left"), low)
    index = np.repeat(np.arange(cut.height), high - low)
    k = list_ranges(low, high)
    rows = cut[index].with_columns(k=pl.Series(k, dtype=pl.Int64), at=pl.Series(times[k]))
    key, wide, origin = _encode_keys(samples)
    before = np.clip(times[k] - origin, 0, wide - 1)
    row = np.searchsorted(key, rows["number"].to_numpy() * wide + before) - 1
    last = np.maximum(_find_last_idle(samples)[row], rows["first"].to_numpy())
    seen = samples.at[last] + samples.validity[last]
    return rows.with_columns(
        last=pl.Series(last), end=pl.min_horizontal("end", "at", pl.Series(seen))
    ).filter(pl.col("end") > pl.col("start"))


def list_ranges(low: Ints, high: Ints) -> Ints:
    """Return low[0]..high[0]-1, low[1]..high[1]-1 and so on, as one array."""
    length = high - low
    offset = np.repeat(np.cumsum(length) - length, length)
    ranges: Ints = np.arange(int(length.sum())) - offset + np.repeat(low, length)
    return ranges


def _encode_keys(samples: DeviceSamples) -> tuple[Ints, int, int]:
    origin = int(samples.at.min())
    wide = int(samples.at.max()) - origin + 2
    return samples.device * wide + (samples.at - origin), wide, origin


def _find_last_idle(samples: DeviceSamples) -> Ints:
    """Return, per sample, the last idle one up to it."""
    index = np.where(samples.kind == IDLE, np.arange(len(samples)), 0)
    last_idle: Ints = np.maximum.accumulate(index)
    return last_idle


def _find_next_idle(samples: DeviceSamples) -> Ints:
    """Return, per sample, the first idle one from it on; beyond the last, the last sample."""
    most = len(samples) - 1
    index = np.where(samples.kind == IDLE, np.arange(len(samples)), most)
    next_idle: Ints = np.minimum.accumulate(index[::-1])[::-1]
    return next_idle
