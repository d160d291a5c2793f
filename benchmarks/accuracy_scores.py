"""Score verdicts against the truth: correct ones, harm of a stop, and missed idle time.

A verdict counts for the ticks that lie wholly within [known, end). Before `known` no judge could
have found it, and before `acts` no judge could have acted on it. GPU-hours are those that its
workload held.

    precision   actionable GPU-hours in which the workload was truly idle, of all actionable ones
    harmful     actionable verdicts during which a stop would have lost work, at any tick
    recall      truly idle GPU-hours within a verdict, of those due: the part of every truly idle
                stretch after the detection window
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from runtime.experiments.truth import HOUR_S, Course, Doubles, Owner, Truth, list_runs
from simulator.models import TICK_S, Marks


class Verdict(msgspec.Struct, frozen=True):
    """A judge's verdict about a workload, and from when it could have been known (epoch s)."""

    owner: Owner
    known_s: float
    end_s: float
    actionable: bool
    confirmed: bool = True
    devices: tuple[str, ...] = ()
    """The devices in the verdict; empty = all that the workload holds."""
    reasons: tuple[str, ...] = ()
    """Why the verdict is not stronger."""
    gpu_hours: float = 0.0
    """For a verdict about some devices: how long they were idle within the time."""
    acts_s: float | None = None
    """When it became actionable, if that is later than `known_s`."""


class Harm(msgspec.Struct, frozen=True):
    """A stop that would have lost work."""

    owner: Owner
    at_s: float
    ticks: int


class Score(msgspec.Struct, frozen=True):
    """The accuracy of one judge in one world, in GPU-hours where no other unit is named."""

    judge: str
    actionable: float
    actionable_true: float
    episodes: int
    """Actionable verdicts."""
    harms: tuple[Harm, ...]
    due: float
    detected: float
    """Part of the due hours within confirmed verdicts, actionable or not."""
    acted: float
    """Part of the due hours within actionable verdicts."""
    ripe: float
    """Part of the due hours after the time from which their kind may be acted upon."""
    acted_ripe: float
    """Part of the ripe hours within actionable verdicts."""
    missed: Mapping[str, float]
    """Part of the due hours outside confirmed verdicts, by reason."""
    held_back: Mapping[str, float]
    """Part of the ripe hours outside actionable verdicts, by reason."""
    delays_s: tuple[float, ...]
    """Time from the beginning of a truly idle stretch to its first actionable tick."""
    part: float
    """Verdicts about some of a workload's devices while others compute."""
    part_true: float

    @property
    def precision(self) -> float:
        """Truly idle hours over actionable hours; 1 where none were actionable."""
        return self.actionable_true / self.actionable if self.actionable else 1.0

    @property
    def recall(self) -> float:
        """Found hours over due hours; 1 where none were due."""
        return self.detected / self.due if self.due else 1.0

    @property
    def actionable_recall(self) -> float:
        """Actionable hours over due hours; 1 where none were due."""
        return self.acted / self.due if self.due else 1.0

    @property
    def ripe_recall(self) -> float:
        """Actionable hours over ripe hours; 1 where none were ripe."""
        return self.acted_ripe / self.ripe if self.ripe else 1.0


def score(
    judge: str,
    truth: Truth,
    courses: Mapping[Owner, Course],
    verdicts: Iterable[Verdict],
    *,
    window_s: float,
    ripe_s: Callable[[Owner], float] | None = None,
    vetoed: Iterable[Verdict] = (),
) -> Score:
    """Score one judge's verdicts; `vetoed` are those that it withheld, with its reasons.

    Idle time is due after `window_s`, and ripe after `ripe_s` (by owner, never less than
    `window_s`). A verdict about a workload that never held a device counts fully against precision.
    """
    by_owner: dict[Owner, list[Verdict]] = {}
    for verdict in verdicts:
        by_owner.setdefault(verdict.owner, []).append(verdict)
    held_back: dict[Owner, list[Verdict]] = {}
    for verdict in vetoed:
        held_back.setdefault(verdict.owner, []).append(verdict)
    sums = _Sums()
    for owner, mine in by_owner.items():
        if owner not in courses:
            sums.actionable += sum(v.actionable * (v.end_s - v.known_s) / HOUR_S for v in mine)
    for owner, course in courses.items():
        mine, silent = by_owner.get(owner, []), held_back.get(owner, [])
        ripens_s = max(window_s, ripe_s(owner)) if ripe_s else window_s
        _add(sums, truth, course, mine, vetoed=silent, window_s=window_s, ripens_s=ripens_s)
    return Score(
        judge=judge,
        actionable=sums.actionable,
        actionable_true=sums.true,
        episodes=sums.episodes,
        harms=tuple(sums.harms),
        due=sums.due,
        detected=sums.detected,
        acted=sums.acted,
        ripe=sums.ripe,
        acted_ripe=sums.acted_ripe,
        missed=_sort_by_amount(sums.missed),
        held_back=_sort_by_amount(sums.held_back),
        delays_s=tuple(sums.delays_s),
        part=sums.part,
        part_true=sums.part_true,
    )


def pool_scores(scores: Sequence[Score]) -> Score:
    """Return one judge's score over several worlds together."""
    return Score(
        judge=scores[0].judge,
        actionable=sum(s.actionable for s in scores),
        actionable_true=sum(s.actionable_true for s in scores),
        episodes=sum(s.episodes for s in scores),
        harms=tuple(h for s in scores for h in s.harms),
        due=sum(s.due for s in scores),
        detected=sum(s.detected for s in scores),
        acted=sum(s.acted for s in scores),
        ripe=sum(s.ripe for s in scores),
        acted_ripe=sum(s.acted_ripe for s in scores),
        missed=_add_up(s.missed for s in scores),
        held_back=_add_up(s.held_back for s in scores),
        delays_s=tuple(d for s in scores for d in s.delays_s),
        part=sum(s.part for s in scores),
        part_true=sum(s.part_true for s in scores),
    )


def _add_up(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    hours: dict[str, float] = {}
    for part in parts:
        for why, more in part.items():
            hours[why] = hours.get(why, 0.0) + more
    return _sort_by_amount(hours)


def _sort_by_amount(hours: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(hours.items(), key=lambda item: -item[1]))


class _Sums(msgspec.Struct):
    actionable: float = 0.0
    true: float = 0.0
    episodes: int = 0
    harms: list[Harm] = []
    due: float = 0.0
    detected: float = 0.0
    acted: float = 0.0
    ripe: float = 0.0
    acted_ripe: float = 0.0
    missed: dict[str, float] = {}
    held_back: dict[str, float] = {}
    delays_s: list[float] = []
    part: float = 0.0
    part_true: float = 0.0


def _add(
    sums: _Sums,
    truth: Truth,
    course: Course,
    verdicts: Sequence[Verdict],
    *,
    vetoed: Sequence[Verdict],
    window_s: float,
    ripens_s: float,
) -> None:
    detected, acted = (np.zeros(len(truth.ticks), np.bool_) for _ in range(2))
    for verdict in verdicts:
        span = _tick_range(truth.ticks, verdict)
        if verdict.devices:
            _add_part(sums, course, verdict, span)
            continue
        detected[span] |= verdict.confirmed
        if not verdict.actionable:
            continue
        span = _tick_range(truth.ticks, verdict, acting=True)
        acted[span] = True
        sums.episodes += 1
        sums.actionable += _convert_hours(course.gpus[span])
        sums.true += _convert_hours(course.gpus[span][course.idle[span]])
        harm_ticks = np.flatnonzero(course.harm[span])
        if len(harm_ticks):
            at_s = float(truth.ticks[span][harm_ticks[0]])
            sums.harms.append(Harm(course.owner, at_s, len(harm_ticks)))
    due, ripe = (np.zeros(len(truth.ticks), np.bool_) for _ in range(2))
    for begin, end in list_runs(course.idle):
        due_from = begin + round(window_s / TICK_S)
        due[due_from:end] = True
        ripe[begin + round(ripens_s / TICK_S) : end] = True
        hit = np.flatnonzero(acted[begin:end])
        if due_from < end and len(hit):
            sums.delays_s.append(float(hit[0]) * TICK_S)
    sums.due += _convert_hours(course.gpus[due])
    sums.detected += _convert_hours(course.gpus[due & detected])
    sums.acted += _convert_hours(course.gpus[due & acted])
    sums.ripe += _convert_hours(course.gpus[ripe])
    sums.acted_ripe += _convert_hours(course.gpus[ripe & acted])
    whole = [v for v in (*verdicts, *vetoed) if not v.devices]
    silent = [v for v in whole if not v.confirmed]
    _explain(sums.missed, truth, course, due & ~detected, silent)
    _explain(sums.held_back, truth, course, ripe & ~acted, whole)


def _add_part(sums: _Sums, course: Course, verdict: Verdict, span: slice) -> None:
    true = 0.0
    for device in verdict.devices:
        if device in course.by_device:
            gpus, idle = course.by_device[device]
            true += _convert_hours(gpus[span][idle[span]])
    sums.part += verdict.gpu_hours
    # Ranks are idle in turn: a verdict names all of them and counts the turns.
    sums.part_true += min(true, verdict.gpu_hours)


def _explain(
    hours_by_reason: dict[str, float],
    truth: Truth,
    course: Course,
    missed: Marks,
    verdicts: Sequence[Verdict],
) -> None:
    """Assign every missed tick to the first reason that a verdict about it has."""
    remaining = missed.copy()
    for verdict in verdicts:
        span = _tick_range(truth.ticks, verdict)
        hours = _convert_hours(course.gpus[span][remaining[span]])
        remaining[span] = False
        if hours:
            first = verdict.reasons[0] if verdict.reasons else "suspected only"
            why = "a stretch was cut, and waits again" if verdict.actionable else first
            hours_by_reason[why] = hours_by_reason.get(why, 0.0) + hours
    hours = _convert_hours(course.gpus[remaining])
    if hours:
        why = "no run long enough was seen"
        hours_by_reason[why] = hours_by_reason.get(why, 0.0) + hours


def _tick_range(ticks: Doubles, verdict: Verdict, *, acting: bool = False) -> slice:
    later = verdict.acts_s if acting and verdict.acts_s is not None else verdict.known_s
    begin = int(np.searchsorted(ticks, later))
    # A tick has a duration; the last tick that counts ends with the verdict.
    end = int(np.searchsorted(ticks, verdict.end_s - TICK_S, side="right"))
    return slice(begin, max(begin, end))


def _convert_hours(gpus: Doubles) -> float:
    return float(gpus.sum()) * TICK_S / HOUR_S
