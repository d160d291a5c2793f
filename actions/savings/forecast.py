"""How much longer an idle stretch would have lasted: from stretches of the past that ended or not.

Kaplan-Meier (1958) over the lengths of past stretches, those still going or stopped by us being
censored; the rest that is expected of a stretch of some age is the mean of what survives from
there on, restricted to a horizon: beyond what history shows, nothing more is promised.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def expected_rest(lengths: Floats, ended: NDArray[np.bool_], age: float, horizon: float) -> float:
    """Return the expected rest of a stretch of `age`, at most `horizon`; same unit as lengths.

    Without a past stretch that reached this age nothing is known, and nothing is expected.
    """
    if horizon <= 0 or not (lengths >= age).any():
        return 0.0
    times, alive = survival(lengths, ended)
    within = (times > age) & (times < age + horizon)
    knots = np.concatenate(([age], times[within], [age + horizon]))
    reached, outlived = _at(times, alive, age, "left"), _at(times, alive, age, "right")
    levels = np.concatenate(([outlived], alive[within]))
    return float((np.diff(knots) * levels).sum() / reached) if reached > 0 else 0.0


def survival(lengths: Floats, ended: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the moments at which the share that goes on changes, and that share after each.

    After the longest stretch nothing is promised: the share is 0 from there on.
    """
    times = np.unique(lengths)
    at_risk = lengths.size - np.searchsorted(np.sort(lengths), times, side="left")
    ends = np.bincount(np.searchsorted(times, lengths[ended]), minlength=times.size)
    alive: Floats = np.cumprod(1 - ends / at_risk).astype(np.float64)
    alive[-1] = 0.0
    return times, alive


def _at(times: Floats, alive: Floats, moment: float, side: Literal["left", "right"]) -> float:
    """Return the share that reaches a moment (left), or goes on after it (right)."""
    index = int(np.searchsorted(times, moment, side=side)) - 1
    return 1.0 if index < 0 else float(alive[index])
