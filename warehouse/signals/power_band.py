"""Learn the idle power per GPU model from the fleet's own allocated but unused devices.

With an open CUDA context a GPU uses a nearly constant power that does not depend on the allocated
memory (arXiv 2605.23918, "The Model Parking Tax"). On this site's GPUs this power is the mode of
the lowest idle samples. Until there are enough samples, the prior of `gpu_models.csv` is used.
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


class IdleBand(msgspec.Struct, frozen=True):
    """Idle power of a model in watts, and where it comes from."""

    watts: float
    source: str
    """`learned` or `prior`."""
    sample_count: int


def is_above_band(
    power_w: Any, energy_w: Any, band_w: Any, margin_w: float
) -> npt.NDArray[np.bool_]:
    """Return where five minutes' mean power, or energy over time, shows work: NaN shows nothing.

    Both the ledger's states and the idle findings ask here: such minutes are `low`, not `idle`,
    whatever the utilisation is. A utilisation misses bursts between its readings.
    """
    limit_w = band_w + margin_w
    above: npt.NDArray[np.bool_] = (power_w > limit_w) | (energy_w > limit_w)
    return above


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
