"""Forecast how much longer an idle stretch would have lasted, from past stretches.

Kaplan-Meier (1958) over the lengths of past stretches; those still going or stopped by us are
censored. Where the longest was still going, its share continues with a Pareto tail: else a stretch
longer than the history would have a forecast of nothing. The time for which people leave work alone
is heavy-tailed (Barabasi 2005): the longer a stretch has lasted, the longer it will. An exponential
tail underestimated forgotten notebooks. The index of the tail is Hill's (1975) over the stretches
that reached half of the longest, with censored ones counted as still going. The
expected remaining time at some age is the mean over the stretches that continue from there,
restricted to a horizon.
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
"""Events counted where no end was observed: half an event, so that a rate is never 0."""
OLD_SHARE = 0.5
"""Share of the longest length that a stretch must exceed to enter the tail's index."""
MAX_LOG_REST = 50.0
"""Maximum logarithm of a growth factor: longer than any horizon, and still finite."""
INDEX_TOLERANCE = 1e-9
"""For an index this near to 1 the integral is a logarithm."""


RESAMPLES = 400
"""Number of resampled pasts: each end of a 95 % interval is based on ten of them."""
CONFIDENCE = 0.95
MIN_ALIVE = 1e-9
"""A continuing share below this is a rounding error of zero."""
SEED = 1958


class IdleStretches(msgspec.Struct, frozen=True):
    """The data before one action: past stretches, and the GPUs it frees with their horizons."""

    lengths: Floats
    ended: Flags
    age: float
    numbers: NDArray[np.int64]
    """Number of each stretch's workload: stretches of one workload are similar."""
    gpu_horizons: tuple[tuple[float, float], ...]
    """GPUs, and the horizon until which they may be released."""


class SavingForecast(msgspec.Struct, frozen=True):
    """The expected GPU-hours that several actions release together, and the interval."""

    gpu_hours: float
    low: float
    high: float


def forecast_savings(actions: Sequence[IdleStretches]) -> SavingForecast:
    """Return the expected sum of all actions' remaining idle times, and its 95 % interval.

    Two quantities are uncertain: the length of this stretch under a known distribution, and the
    distribution, which is estimated from a few stretches of a few workloads. The interval includes
    both. The distribution is drawn by resampling workloads (Bayesian bootstrap, Rubin 1981), the
    same draw for all actions, and each action's remaining time is drawn from it. An action without
    any past may release all or nothing.
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
            expected += gpus * compute_expected_rest(
                action.lengths, action.ended, action.age, horizon
            )
    low, high = np.quantile(sums, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return SavingForecast(expected, min(float(low), expected), max(float(high), expected))


def _draw_remaining(action: IdleStretches, weights: Floats, rng: np.random.Generator) -> Floats:
    """Return a remaining time per resampled past; without a past it is zero or unlimited."""
    quantile = rng.random(len(weights))
    if not action.lengths.size:
        return np.where(quantile < HALF, 0.0, np.inf)
    order = np.argsort(action.lengths, kind="stable")
    lengths, ended = action.lengths[order], action.ended[order]
    stretch_weights = weights[:, action.numbers[order]]
    # At equal lengths ended stretches come first: a censored one was still at risk then.
    times, first = np.unique(lengths, return_index=True)
    at_risk = np.cumsum(stretch_weights[:, ::-1], axis=1)[:, ::-1][:, first]
    ends_there = np.add.reduceat(np.where(ended, stretch_weights, 0.0), first, axis=1)
    alive = np.cumprod(1 - np.minimum(ends_there / at_risk, 1.0), axis=1)
    alive[alive < MIN_ALIVE] = 0.0
    reached = int(np.searchsorted(times, action.age, side="left"))
    start = alive[:, reached - 1] if reached else np.ones(len(weights))
    # Where the distribution gives this age a share of zero, the tail applies.
    target = np.where(start > 0, quantile * start, -1.0)
    outlived = (alive > target[:, None]).sum(axis=1)
    beyond = (outlived >= times.size) | (start <= 0)
    base = max(float(times[-1]), action.age)
    index = _compute_weighted_index(lengths, ended, stretch_weights, float(times[-1]))
    ends = times[np.minimum(outlived, times.size - 1)]
    # The inverse of the tail's share, (base / x) ** index, capped far beyond any horizon.
    further = np.exp(np.minimum(rng.standard_exponential(len(weights)) / index, MAX_LOG_REST))
    lengths_drawn = np.where(beyond, base * further, ends)
    remaining: Floats = np.maximum(lengths_drawn - action.age, 0.0)
    return remaining


def _compute_weighted_index(
    lengths: Floats, ended: Flags, weights: Floats, longest: float
) -> Floats:
    """Return the index of the tail in each resampled past; see `_index`."""
    since = longest * OLD_SHARE
    old = lengths > since
    if not old.any():
        return np.full(len(weights), np.inf)
    exposed = (weights[:, old] * np.log(lengths[old] / since)).sum(axis=1)
    ends = weights[:, old & ended].sum(axis=1)
    index: Floats = np.maximum(ends, HALF) / exposed
    return index


def compute_expected_rest(lengths: Floats, ended: Flags, age: float, horizon: float) -> float:
    """Return the expected remaining time at `age`, at most `horizon`; same unit as lengths.

    Without any past stretch the result is zero.
    """
    if horizon <= 0 or not lengths.size:
        return 0.0
    times, alive = compute_survival(lengths, ended)
    longest = float(times[-1])
    if age >= longest:
        going = alive[-1] > 0 or age > longest
        return _tail(_index(lengths, ended, longest), age, horizon) if going else 0.0
    within = (times > age) & (times < age + horizon)
    knots = np.concatenate(([age], times[within], [min(age + horizon, longest)]))
    knots = np.minimum(knots, longest)
    reached, outlived = (
        _compute_share_at(times, alive, age, "left"),
        _compute_share_at(times, alive, age, "right"),
    )
    levels = np.concatenate(([outlived], alive[within]))
    rest = float((np.diff(knots) * levels).sum())
    beyond = _tail(_index(lengths, ended, longest), longest, age + horizon - longest)
    rest += float(alive[-1]) * beyond
    return rest / reached if reached > 0 else 0.0


def compute_survival(lengths: Floats, ended: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the lengths at which the continuing share changes, and the share after each."""
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
    """Return the mean remaining time if the share after `base` is (base / x) ** index.

    The mean is restricted to `horizon`.

    Source: the integral of that share from `base` to `base + horizon`.
    """
    if horizon <= 0 or base <= 0 or np.isinf(index):
        return 0.0
    grown = float(np.log1p(horizon / base))
    exponent = 1.0 - index
    return base * (
        grown if abs(exponent) < INDEX_TOLERANCE else float(np.expm1(exponent * grown)) / exponent
    )


def _compute_share_at(
    times: Floats, alive: Floats, age: float, side: Literal["left", "right"]
) -> float:
    """Return the share that reaches an age (left), or continues after it (right)."""
    index = int(np.searchsorted(times, age, side=side)) - 1
    return 1.0 if index < 0 else float(alive[index])
