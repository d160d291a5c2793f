"""How much longer an idle stretch would have lasted: from stretches of the past that ended or not.

Kaplan-Meier (1958) over the lengths of past stretches, those still going or stopped by us being
censored. Where the longest was still going, its share is carried on with a Pareto tail: else
whatever outlasts history would be promised nothing. How long people leave work alone is
heavy-tailed (Barabasi 2005): the longer a stretch has lasted, the longer it will; an exponential
tail took forgotten notebooks for lunch breaks. The index of the tail is Hill's (1975) over the
stretches that reached half of the longest, censored ones counted as still going. The rest that is
expected of a stretch of some age is the mean of what goes on from there, restricted to a horizon.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

HOUR_S = 3600.0

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


HALF = 0.5
"""Ends counted where none was seen: half an event, so that a rate is never 0."""
OLD_SHARE = 0.5
"""The old are those that reached this share of an age: enough of them, and of their kind."""
MAX_LOG_REST = 50.0
"""The logarithm of a rest that is longer than any horizon, and still a number."""
INDEX_TOLERANCE = 1e-9
"""An index so near to 1 has the logarithm as its integral."""


RESAMPLES = 400
"""Resampled pasts: the ends of a 95 % interval stand on ten of them each."""
CONFIDENCE = 0.95
MIN_ALIVE = 1e-9
"""Below this a share that goes on is the rounding of none."""
SEED = 1958


class IdleStretches(msgspec.Struct, frozen=True):
    """What is known of one action before it: past stretches, and what it holds until when."""

    lengths: Floats
    ended: Flags
    age: float
    numbers: NDArray[np.int64]
    """Number of each stretch's workload: stretches of one workload are alike."""
    gpu_horizons: tuple[tuple[float, float], ...]
    """GPUs, and the horizon until which they may be released."""


class SavingForecast(msgspec.Struct, frozen=True):
    """What several actions together should release, in GPU-hours, and within what."""

    gpu_hours: float
    low: float
    high: float


def forecast_savings(actions: Sequence[IdleStretches]) -> SavingForecast:
    """Return the expected sum of all actions' rests, and its 95 % interval.

    Two things are uncertain: how long this stretch lasts although the law is known, and the law,
    of which a few stretches of a few workloads are seen. Both are in the interval: the law is
    drawn by resampling workloads (Bayesian bootstrap, Rubin 1981), the same draw for all actions,
    and each action's rest is drawn from it. An action without any past may release all or nothing.
    """
    rng = np.random.default_rng(SEED)
    sums = np.zeros(RESAMPLES)
    expected = 0.0
    workload_count = 1 + max((int(a.numbers.max()) for a in actions if a.numbers.size), default=0)
    weights = rng.standard_exponential((RESAMPLES, workload_count))
    for action in actions:
        remaining = _draw_remaining(action, weights, rng)
        for gpus, horizon in action.gpu_horizons:
            sums += gpus * np.minimum(remaining, horizon)
            expected += gpus * expected_rest(action.lengths, action.ended, action.age, horizon)
    low, high = np.quantile(sums, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return SavingForecast(expected, min(float(low), expected), max(float(high), expected))


def _draw_remaining(action: IdleStretches, weights: Floats, rng: np.random.Generator) -> Floats:
    """Return one rest for each resampled past; without a past nothing is known of it."""
    quantile = rng.random(len(weights))
    if not action.lengths.size:
        return np.where(quantile < HALF, 0.0, np.inf)
    order = np.argsort(action.lengths, kind="stable")
    lengths, ended = action.lengths[order], action.ended[order]
    stretch_weights = weights[:, action.numbers[order]]
    # At equal lengths those that end do so first: whoever is censored there was still at risk.
    times, first = np.unique(lengths, return_index=True)
    at_risk = np.cumsum(stretch_weights[:, ::-1], axis=1)[:, ::-1][:, first]
    ends_there = np.add.reduceat(np.where(ended, stretch_weights, 0.0), first, axis=1)
    alive = np.cumprod(1 - np.minimum(ends_there / at_risk, 1.0), axis=1)
    alive[alive < MIN_ALIVE] = 0.0
    reached = int(np.searchsorted(times, action.age, side="left"))
    start = alive[:, reached - 1] if reached else np.ones(len(weights))
    # Whose law lets nothing grow so old follows the tail.
    target = np.where(start > 0, quantile * start, -1.0)
    outlived = (alive > target[:, None]).sum(axis=1)
    beyond = (outlived >= times.size) | (start <= 0)
    base = max(float(times[-1]), action.age)
    index = _weighted_index(lengths, ended, stretch_weights, float(times[-1]))
    ends = times[np.minimum(outlived, times.size - 1)]
    # The inverse of the tail's share, (base / x) ** index; far beyond any horizon is far enough.
    further = np.exp(np.minimum(rng.standard_exponential(len(weights)) / index, MAX_LOG_REST))
    lengths_drawn = np.where(beyond, base * further, ends)
    remaining: Floats = np.maximum(lengths_drawn - action.age, 0.0)
    return remaining


def _weighted_index(lengths: Floats, ended: Flags, weights: Floats, longest: float) -> Floats:
    """Return the index of the tail in each resampled past; see `_index`."""
    since = longest * OLD_SHARE
    old = lengths > since
    if not old.any():
        return np.full(len(weights), np.inf)
    exposed = (weights[:, old] * np.log(lengths[old] / since)).sum(axis=1)
    ends = weights[:, old & ended].sum(axis=1)
    index: Floats = np.maximum(ends, HALF) / exposed
    return index


def expected_rest(lengths: Floats, ended: Flags, age: float, horizon: float) -> float:
    """Return the expected rest of a stretch of `age`, at most `horizon`; same unit as lengths.

    Without any past stretch nothing is known, and nothing is expected.
    """
    if horizon <= 0 or not lengths.size:
        return 0.0
    times, alive = survival(lengths, ended)
    longest = float(times[-1])
    if age >= longest:
        going = alive[-1] > 0 or age > longest
        return _tail(_index(lengths, ended, longest), age, horizon) if going else 0.0
    within = (times > age) & (times < age + horizon)
    knots = np.concatenate(([age], times[within], [min(age + horizon, longest)]))
    knots = np.minimum(knots, longest)
    reached, outlived = _share_at(times, alive, age, "left"), _share_at(times, alive, age, "right")
    levels = np.concatenate(([outlived], alive[within]))
    rest = float((np.diff(knots) * levels).sum())
    beyond = _tail(_index(lengths, ended, longest), longest, age + horizon - longest)
    rest += float(alive[-1]) * beyond
    return rest / reached if reached > 0 else 0.0


def survival(lengths: Floats, ended: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the moments at which the share that goes on changes, and that share after each."""
    times = np.unique(lengths)
    at_risk = lengths.size - np.searchsorted(np.sort(lengths), times, side="left")
    ends = np.bincount(np.searchsorted(times, lengths[ended]), minlength=times.size)
    alive: Floats = np.cumprod(1 - ends / at_risk).astype(np.float64)
    return times, alive


def _index(lengths: Floats, ended: Flags, longest: float) -> float:
    """Return Hill's index of the tail: ends per unit of log age, from half of the longest on."""
    since = longest * OLD_SHARE
    old = lengths > since
    if not old.any():
        return np.inf
    return max(float((ended & old).sum()), HALF) / float(np.log(lengths[old] / since).sum())


def _tail(index: float, base: float, horizon: float) -> float:
    """Return the mean of a rest whose share after `base` falls as (base / x) ** index, restricted.

    Source: the integral of that share from `base` to `base + horizon`.
    """
    if horizon <= 0 or base <= 0 or np.isinf(index):
        return 0.0
    grown = float(np.log1p(horizon / base))
    exponent = 1.0 - index
    return base * (
        grown if abs(exponent) < INDEX_TOLERANCE else float(np.expm1(exponent * grown)) / exponent
    )


def _share_at(times: Floats, alive: Floats, age: float, side: Literal["left", "right"]) -> float:
    """Return the share that reaches a moment (left), or goes on after it (right)."""
    index = int(np.searchsorted(times, age, side=side)) - 1
    return 1.0 if index < 0 else float(alive[index])
