"""Did the waiting fall? Rows of the quota table from before and after a step, compared.

Three questions, each enough to take a step back:

  harm > good   harm: what givers waited for within what they gave away,
                sum over hours of max(0, min(used + waiting, old) - max(used, new));
                good: what receivers used of what they got, max(0, min(used, new) - old)
  regret        harm above a twentieth of what givers asked within their old guarantees: the
                back-test promised less, and a guarantee goes before somebody else's good
  longer lines  hours waited per GPU-hour had, sum waiting / sum used, rose by a quarter and above
                that of every single day before, though no more was asked for

Demand that grew makes everybody wait longer, whoever has which quota: then lines say nothing. Too
few hours, or nobody who says what waits, is no answer: worse is None.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import msgspec

LEAST_HOURS = 24
"""Hours seen after a step, and before it, that make an answer."""
LEAST_HARM = 1.0
"""GPU-hours."""
REGRET = 0.05
LONGER = 1.25
LEAST_RISE = 0.02
"""Hours waited per GPU-hour had: less is noise."""
BUSIER = 1.10


class Look(msgspec.Struct, frozen=True):
    """What one quota said in one hour, in devices."""

    hour: datetime
    key: str
    nominal: float
    used: float
    waiting: float | None


class Judged(msgspec.Struct, frozen=True):
    """Whether a step did harm; None = too little was seen to say."""

    worse: bool | None
    why: str
    harm_gpu_hours: float = 0.0
    """Waited for within what was given away."""
    good_gpu_hours: float = 0.0
    """Used of what was got."""
    waited_before: float | None = None
    """Hours waited per GPU-hour had."""
    waited_after: float | None = None


def worsened(before: Sequence[Look], after: Sequence[Look]) -> Judged:
    """Say whether waiting time worsened from the hours before a step to those after it."""
    short = _too_short(before, "before") or _too_short(after, "after")
    if short:
        return Judged(None, short)
    old, new = _last(before), _last(after)
    harm = round(sum(_harm(one, old, new) for one in after), 6)
    good = round(sum(_good(one, old, new) for one in after), 6)
    was, now = _waited(before), _waited(after)
    worse, why = _longer(before, after, was, now)
    asked = sum(_within(one, old, new) for one in after)
    if harm >= LEAST_HARM and (harm > good or harm > REGRET * asked):
        gave = f"givers waited for {harm:,.1f} GPU-hours of what they gave ({harm / asked:.1%})"
        worse, why = True, f"{gave}, receivers used {good:,.1f}"
    return Judged(worse, why, harm, good, _rounded(was), _rounded(now))


def _too_short(looks: Sequence[Look], when: str) -> str:
    if not looks or any(one.waiting is None for one in looks):
        return f"what waited {when} the step is not known"
    hours: dict[str, set[datetime]] = {}
    for one in looks:
        hours.setdefault(one.key, set()).add(one.hour)
    least = min(len(seen) for seen in hours.values())
    if least < LEAST_HOURS:
        return f"{least} hours were seen {when} the step, at least {LEAST_HOURS} make an answer"
    return ""


def _last(looks: Sequence[Look]) -> dict[str, float]:
    """Return each quota's guarantee in the last hour it was seen."""
    return {one.key: one.nominal for one in sorted(looks, key=lambda one: one.hour)}


def _harm(one: Look, old: Mapping[str, float], new: Mapping[str, float]) -> float:
    had, has = old.get(one.key, 0.0), new[one.key]
    asked = one.used + (one.waiting or 0.0)
    return max(0.0, min(asked, had) - max(one.used, has)) if has < had else 0.0


def _within(one: Look, old: Mapping[str, float], new: Mapping[str, float]) -> float:
    """Return what a giver asked for within its old guarantee."""
    had = old.get(one.key, 0.0)
    return min(one.used + (one.waiting or 0.0), had) if new[one.key] < had else 0.0


def _good(one: Look, old: Mapping[str, float], new: Mapping[str, float]) -> float:
    had, has = old.get(one.key, 0.0), new[one.key]
    return max(0.0, min(one.used, has) - had) if has > had else 0.0


def _longer(
    before: Sequence[Look], after: Sequence[Look], was: float, now: float
) -> tuple[bool, str]:
    days: dict[date, list[Look]] = {}
    for one in before:
        days.setdefault(one.hour.date(), []).append(one)
    worst = max(_waited(looks) for looks in days.values())
    said = f"{now:.3f} hours were waited per GPU-hour had, {was:.3f} before"
    if now <= max(was * LONGER, was + LEAST_RISE, worst):
        return False, said
    if _asked(after) > BUSIER * _asked(before):
        return False, f"{said}, but {_asked(after) / _asked(before) - 1:.0%} more was asked for"
    return True, f"{said}, and {worst:.3f} on the worst day before"


def _waited(looks: Sequence[Look]) -> float:
    """Return hours waited per GPU-hour had; where nothing was had, all that waited counts."""
    waited = sum(one.waiting or 0.0 for one in looks)
    return waited / max(sum(one.used for one in looks), 1.0)


def _asked(looks: Sequence[Look]) -> float:
    """Return what was had and waited for, on the mean of the hours."""
    asked = sum(one.used + (one.waiting or 0.0) for one in looks)
    return asked / max(1, len({one.hour for one in looks}))


def _rounded(value: float) -> float:
    return round(value, 6)
