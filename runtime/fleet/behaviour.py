"""How each kind of workload moves: activity per tick, and when it holds its device for nothing.

Activity is SM_ACTIVE (0-1) averaged over one tick; `held` marks the ticks in which the workload
was made to hold a device without using it: the planted truth.
"""

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

DAY_S = 86_400
CHECKPOINT_S = 360.0
WORK_HOURS = (9, 18)
WORK_DAYS = 5
NIGHT_HOURS = (1, 7)
PAUSES = 0.3
"""Share of ticks in which somebody at a notebook may pause."""


class Curve(msgspec.Struct, frozen=True):
    """What one device does over all ticks."""

    activity: Floats
    held: Marks
    memory: float
    requests: Floats | None = None
    kernel_busy: Marks | None = None
    conflict: bool = False
    input_bound: bool = False


Maker = Callable[[np.random.Generator, Floats, int], Curve]


def _busy(rng: np.random.Generator, n: int, mean: float, spread: float) -> Floats:
    return np.clip(rng.normal(mean, spread, n), 0.06, 0.92)


def training(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """Steady work with a checkpoint of about six minutes every four hours."""
    activity = _busy(rng, len(seconds), 0.86, 0.03)
    checkpoint = (seconds % (4 * 3600)) < CHECKPOINT_S
    activity[checkpoint] *= 0.35
    return Curve(activity, np.zeros(len(seconds), bool), 0.91)


def input_bound(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """Duty-cycled work that waits for its data loader: slow, yet never idle."""
    wave = 0.22 + 0.16 * np.sin(seconds / 1700.0)
    activity = np.clip(wave + rng.normal(0, 0.04, len(seconds)), 0.06, 0.6)
    return Curve(activity, np.zeros(len(seconds), bool), 0.62, input_bound=True)


def serving(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """Follows the day: quiet at four in the morning, never quite silent."""
    day = 0.5 - 0.5 * np.cos(2 * np.pi * ((seconds % DAY_S) / DAY_S - 4 / 24))
    activity = np.clip(0.12 + 0.45 * day + rng.normal(0, 0.03, len(seconds)), 0.07, 0.95)
    return Curve(activity, np.zeros(len(seconds), bool), 0.88, requests=activity * 40)


def forgotten(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """Served for the first eighth of the time; since then a model in memory and no request."""
    held = np.arange(len(seconds)) >= len(seconds) // 8
    activity = np.where(held, 0.0, _busy(rng, len(seconds), 0.35, 0.05))
    return Curve(activity, held, 0.88, requests=np.where(held, 0.0, activity * 40))


def kept(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """Finished its work after four sevenths of the time, and the cluster was kept."""
    held = np.arange(len(seconds)) >= len(seconds) * 4 // 7
    return Curve(np.where(held, 0.0, _busy(rng, len(seconds), 0.7, 0.05)), held, 0.55)


def abandoned(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """A notebook used for some hours, then left with its kernel and its CUDA context."""
    begin = int(rng.uniform(0.04, 0.12) * len(seconds))
    held = np.arange(len(seconds)) >= begin
    activity = _interactive(rng, ~held)
    return Curve(activity, held, 0.38, kernel_busy=activity > 0)


def day_notebook(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """A notebook used from nine to six on working days, held day and night."""
    hour = (seconds % DAY_S) / 3600
    working = (seconds // DAY_S + 3) % 7 < WORK_DAYS  # 1970-01-01 was a Thursday; Monday is 0
    at_work = (hour >= WORK_HOURS[0]) & (hour < WORK_HOURS[1]) & working
    activity = _interactive(rng, at_work)
    return Curve(activity, ~at_work, 0.41, kernel_busy=activity > 0)


def night_batch(rng: np.random.Generator, seconds: Floats, _rank: int) -> Curve:
    """Scores from one to seven at night and holds its devices for the rest of the day."""
    hour = (seconds % DAY_S) / 3600
    at_work = (hour >= NIGHT_HOURS[0]) & (hour < NIGHT_HOURS[1])
    activity = np.where(at_work, _busy(rng, len(seconds), 0.65, 0.06), 0.0)
    return Curve(activity, ~at_work, 0.7, requests=activity * 25)


def idle_rank(rng: np.random.Generator, seconds: Floats, rank: int) -> Curve:
    """A job whose last rank never got work."""
    if rank < 3:  # noqa: PLR2004  (four ranks; the fourth is the idle one)
        return training(rng, seconds, rank)
    held = np.ones(len(seconds), bool)
    return Curve(np.zeros(len(seconds)), held, 0.04)


def conflict(rng: np.random.Generator, seconds: Floats, rank: int) -> Curve:
    """Works, but its profiling counters stand at zero (dcgm-exporter issue 662, XID 31)."""
    busy = training(rng, seconds, rank)
    return Curve(busy.activity, busy.held, 0.8, conflict=True)


def _interactive(rng: np.random.Generator, using: Marks) -> Floats:
    """Work while it is used: busy, with pauses of one tick to think, none at either end."""
    pause = rng.random(len(using)) < PAUSES
    pause[1:] &= ~pause[:-1]
    pause[2:] &= ~pause[:-2]
    for near in (1, 2, 3):
        pause[near:] &= using[:-near]
        pause[:-near] &= using[near:]
    work = np.maximum(_busy(rng, len(using), 0.4, 0.15), 0.15)
    return np.where(using & ~pause, work, 0.0)


BEHAVIOURS: dict[str, Maker] = {
    "training": training,
    "input-bound training": input_bound,
    "serving": serving,
    "forgotten serving": forgotten,
    "finished but kept": kept,
    "abandoned notebook": abandoned,
    "day notebook": day_notebook,
    "night batch": night_batch,
    "idle rank": idle_rank,
    "conflict": conflict,
}
