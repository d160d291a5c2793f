"""Learn the idle power per GPU model from the fleet's own allocated but unused devices.

With an open CUDA context a GPU uses a nearly constant power that does not depend on the allocated
memory (arXiv 2605.23918, "The Model Parking Tax"). On this site's GPUs this power is the mode of
the lowest samples without any work. Until there are enough, the prior of `gpu_models.csv` is used.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fallow.gpu_models import read_gpu_models

LEAST_SAMPLES = 240
"""Samples (or idle buckets) before a model's own band is used: 2 h of one GPU at 30 s."""

LOW, HIGH = 0.05, 0.20
"""The band is the mode between these quantiles of idle power (telemetry-and-waste.md#idle, K2)."""

MOST_ABOVE = 1.5
"""A learned power above so many times the prior is rejected."""

BINS = 2048
"""Histogram of whole watts; no GPU uses more."""


LOOKAROUND = 6
"""Rows before and after a row (half an hour each) that decide whether its power is above."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class EnergyRows(msgspec.Struct, frozen=True):
    """The energy of rows of five minutes, NaN where there is no counter."""

    mj: Floats
    seconds: Floats
    """How long the samples of each row are valid for."""
    interval_s: Floats
    """Seconds between its samples."""


class IdleBand(msgspec.Struct, frozen=True):
    """Idle power of a model in watts, and where it comes from."""

    watts: float
    source: str
    """`learned` or `prior`."""
    sample_count: int


def is_above_band(
    line: Ints,
    power_w: Floats,
    energy: EnergyRows,
    limit_w: Floats,
) -> npt.NDArray[np.bool_]:
    """Return the rows of five minutes whose mean power, or energy over time, is above a limit.

    Both the ledger's states and the idle findings ask here: such minutes are `low`, not `idle`,
    whatever the utilisation is. A utilisation misses bursts between its readings. NaN shows
    nothing. `line`: a number per row that changes where the row before is not its past.

    An increase of energy counts where it ends, so five minutes may hold that of one more scrape,
    or of a scrape that was missed. They are above the limit without it, or with it where the hour
    around them is above it too.
    """
    seconds = np.where(np.isnan(energy.mj), 0.0, energy.seconds)
    joules = np.nan_to_num(energy.mj) / 1000
    longest = seconds + energy.interval_s
    hour_s, hour_j = (sum_around(line, values) for values in (seconds, joules))
    lasting = (joules > limit_w * seconds) & (hour_j > limit_w * hour_s)
    above: npt.NDArray[np.bool_] = (power_w > limit_w) | (joules > limit_w * longest) | lasting
    return above


def sum_around(line: Ints, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return, per row, the sum over the rows of its line half an hour before and after it."""
    if not len(line):
        return values
    begins = np.flatnonzero(np.append(True, line[1:] != line[:-1]))
    place = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(line))))
    ends = np.append(begins[1:], len(line))
    index = np.arange(len(line))
    total = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values, dtype=values.dtype)])
    low = np.maximum(index - LOOKAROUND, begins[place])
    high = np.minimum(index + LOOKAROUND + 1, ends[place])
    around: npt.NDArray[Any] = total[high] - total[low]
    return around


def learn_band(
    models: Sequence[str], histogram: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> Mapping[str, IdleBand]:
    """Return the band of each model: learned, or the prior where samples are few or implausible."""
    facts = {m.gpu_model: m for m in read_gpu_models()}
    out: dict[str, IdleBand] = {}
    for name, counts in zip(models, histogram, strict=True):
        sample_count = int(counts.sum())
        prior = IdleBand(facts[name].idle_context_w, "prior", sample_count)
        if sample_count < LEAST_SAMPLES:
            out[name] = prior
            continue
        # Only samples between the two quantiles count, not all samples of the bins at the two ends.
        total = np.clip(np.cumsum(counts), LOW * sample_count, HIGH * sample_count)
        watts = float(np.argmax(np.diff(total, prepend=LOW * sample_count)))
        # A GPU with wrong counters must not make the power of its load the idle power.
        absurd = not 0 < watts <= MOST_ABOVE * prior.watts
        out[name] = prior if absurd else IdleBand(watts, "learned", sample_count)
    return out
