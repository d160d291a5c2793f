"""How much longer an idle stretch would have lasted: from stretches of the past that ended or not.

Kaplan-Meier (1958) over the lengths of past stretches, those still going or stopped by us being
censored. Where the longest was still going, its share is carried on with an exponential tail
(Brown, Hollander and Korwar, 1974): else whatever outlasts history would be promised nothing. Its
rate is that of the old: ends per hour of the stretches that reached half that age, from there on;
what was forgotten for a week does not come back at the rate of lunch breaks. The rest that is
expected of a stretch of some age is the mean of what goes on from there, restricted to a horizon.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

HOUR_S = 3600.0

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


HALF = 0.5
"""Ends counted where none was seen: half an event, so that a rate is never 0."""
OLD = 0.5
"""The old are those that reached this share of an age: enough of them, and of their kind."""


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
        return _tail(_mean(lengths, ended, longest), horizon) if going else 0.0
    within = (times > age) & (times < age + horizon)
    knots = np.concatenate(([age], times[within], [min(age + horizon, longest)]))
    knots = np.minimum(knots, longest)
    reached, outlived = _at(times, alive, age, "left"), _at(times, alive, age, "right")
    levels = np.concatenate(([outlived], alive[within]))
    rest = float((np.diff(knots) * levels).sum())
    rest += float(alive[-1]) * _tail(_mean(lengths, ended, longest), age + horizon - longest)
    return rest / reached if reached > 0 else 0.0


def survival(lengths: Floats, ended: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the moments at which the share that goes on changes, and that share after each."""
    times = np.unique(lengths)
    at_risk = lengths.size - np.searchsorted(np.sort(lengths), times, side="left")
    ends = np.bincount(np.searchsorted(times, lengths[ended]), minlength=times.size)
    alive: Floats = np.cumprod(1 - ends / at_risk).astype(np.float64)
    return times, alive


def _mean(lengths: Floats, ended: Flags, age: float) -> float:
    """Return the mean time between ends of the old, counted from half an age on."""
    since = age * OLD
    old = lengths > since
    return float((lengths[old] - since).sum()) / max(float((ended & old).sum()), HALF)


def _tail(mean: float, horizon: float) -> float:
    """Return the mean of an exponential rest, restricted to a horizon."""
    return mean * -np.expm1(-horizon / mean).item() if horizon > 0 and mean > 0 else 0.0


def _at(times: Floats, alive: Floats, moment: float, side: Literal["left", "right"]) -> float:
    """Return the share that reaches a moment (left), or goes on after it (right)."""
    index = int(np.searchsorted(times, moment, side=side)) - 1
    return 1.0 if index < 0 else float(alive[index])
