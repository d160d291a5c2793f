"""Idle power per GPU model, learned from the fleet's own held but unused devices.

With a CUDA context open a board draws a nearly constant power that does not depend on the memory
held (arXiv 2605.23918, "The Model Parking Tax"). What that is on this site's boards is the mode
of the lowest idle looks; until the site has taught enough, the prior of `gpu_models.csv`.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fallow.gpu_models import gpu_models

LEAST_SAMPLES = 240
"""Samples (or idle buckets) before a model's own band is trusted: 2 h of one board at 30 s."""

LOW, HIGH = 0.05, 0.20
"""The band is the mode between these quantiles of idle power (telemetry-and-waste.md#idle, K2)."""

MOST_ABOVE = 1.5
"""Learned watts above so many times the prior are not believed."""

BINS = 2048
"""Histogram of whole watts; no board draws more."""


class IdleBand(msgspec.Struct, frozen=True):
    """Idle power of a model in watts, and where it comes from."""

    watts: float
    source: str
    """`learned` or `prior`."""
    sample_count: int


def learn_band(
    models: Sequence[str], histogram: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> Mapping[str, IdleBand]:
    """Return the band of each model: learned, or the prior where looks are few or absurd."""
    facts = {m.gpu_model: m for m in gpu_models()}
    out: dict[str, IdleBand] = {}
    for name, counts in zip(models, histogram, strict=True):
        sample_count = int(counts.sum())
        prior = IdleBand(facts[name].idle_context_w, "prior", sample_count)
        if sample_count < LEAST_SAMPLES:
            out[name] = prior
            continue
        # Only the looks between the two quantiles vote, not all of the watts they end in.
        total = np.clip(np.cumsum(counts), LOW * sample_count, HIGH * sample_count)
        watts = float(np.argmax(np.diff(total, prepend=LOW * sample_count)))
        # A board whose counters lie must not teach that its load is idle power.
        absurd = not 0 < watts <= MOST_ABOVE * prior.watts
        out[name] = prior if absurd else IdleBand(watts, "learned", sample_count)
    return out
