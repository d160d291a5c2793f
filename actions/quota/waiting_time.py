"""Did the waiting fall? Rows of the quota table from before and after a step, compared.

Three questions, each enough to take a step back:

  harm > good   harm: what givers waited for within what they gave away,
                sum over hours of max(0, min(used + waiting, old) - max(used, new));
                good: what receivers used of what they got, max(0, min(used, new) - old)
  reversal      harm above a twentieth of what givers asked within their old guarantees: the
                back-test promised less, and a guarantee goes before somebody else's good
  longer lines  hours waited per GPU-hour had, sum waiting / sum used, rose by a quarter and above
                that of every single day before, though no more was asked for

Demand that grew makes everybody wait longer, whoever has which quota: then lines say nothing. Too
few hours, or nobody who says what waits, is no answer: worse is None.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import msgspec

MIN_HOURS = 24
"""Hours seen after a step, and before it, that make an answer."""
MIN_HARM = 1.0
"""GPU-hours."""
MAX_HARM_SHARE = 0.05
MAX_RATIO = 1.25
MIN_RISE = 0.02
"""Hours waited per GPU-hour had: less is noise."""
DEMAND_RATIO = 1.10


class QuotaSample(msgspec.Struct, frozen=True):
    """What one quota said in one hour, in devices."""

    hour: datetime
    key: str
    nominal: float
    used: float
    waiting: float | None


class StepVerdict(msgspec.Struct, frozen=True):
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


def compare_waiting(before: Sequence[QuotaSample], after: Sequence[QuotaSample]) -> StepVerdict:
    """Say whether waiting time worsened from the hours before a step to those after it."""
    too_short = _explain_too_short(before, "before") or _explain_too_short(after, "after")
    if too_short:
        return StepVerdict(None, too_short)
    old, new = _latest_guarantees(before), _latest_guarantees(after)
    harm = round(sum(_harm_hours(sample, old, new) for sample in after), 6)
    gain = round(sum(_gain_hours(sample, old, new) for sample in after), 6)
    ratio_before, ratio_after = _waiting_ratio(before), _waiting_ratio(after)
    worse, why = _compare_days(before, after, ratio_before, ratio_after)
    demand = sum(_demand_within(sample, old, new) for sample in after)
    if harm >= MIN_HARM and (harm > gain or harm > MAX_HARM_SHARE * demand):
        text = f"givers waited for {harm:,.1f} GPU-hours of what they gave ({harm / demand:.1%})"
        worse, why = True, f"{text}, receivers used {gain:,.1f}"
    return StepVerdict(worse, why, harm, gain, _rounded(ratio_before), _rounded(ratio_after))


def _explain_too_short(samples: Sequence[QuotaSample], when: str) -> str:
    if not samples or any(sample.waiting is None for sample in samples):
        return f"what waited {when} the step is not known"
    hours: dict[str, set[datetime]] = {}
    for sample in samples:
        hours.setdefault(sample.key, set()).add(sample.hour)
    fewest = min(len(hour_set) for hour_set in hours.values())
    if fewest < MIN_HOURS:
        return f"{fewest} hours were seen {when} the step, at least {MIN_HOURS} make an answer"
    return ""


def _latest_guarantees(samples: Sequence[QuotaSample]) -> dict[str, float]:
    """Return each quota's guarantee in the last hour it was seen."""
    return {
        sample.key: sample.nominal for sample in sorted(samples, key=lambda sample: sample.hour)
    }


def _harm_hours(sample: QuotaSample, old: Mapping[str, float], new: Mapping[str, float]) -> float:
    before, after = old.get(sample.key, 0.0), new[sample.key]
    demand = sample.used + (sample.waiting or 0.0)
    return max(0.0, min(demand, before) - max(sample.used, after)) if after < before else 0.0


def _demand_within(
    sample: QuotaSample, old: Mapping[str, float], new: Mapping[str, float]
) -> float:
    """Return what a giver asked for within its old guarantee."""
    before = old.get(sample.key, 0.0)
    return min(sample.used + (sample.waiting or 0.0), before) if new[sample.key] < before else 0.0


def _gain_hours(sample: QuotaSample, old: Mapping[str, float], new: Mapping[str, float]) -> float:
    before, after = old.get(sample.key, 0.0), new[sample.key]
    return max(0.0, min(sample.used, after) - before) if after > before else 0.0


def _compare_days(
    before: Sequence[QuotaSample],
    after: Sequence[QuotaSample],
    ratio_before: float,
    ratio_after: float,
) -> tuple[bool, str]:
    days: dict[date, list[QuotaSample]] = {}
    for sample in before:
        days.setdefault(sample.hour.date(), []).append(sample)
    worst = max(_waiting_ratio(samples) for samples in days.values())
    text = f"{ratio_after:.3f} hours were waited per GPU-hour had, {ratio_before:.3f} before"
    if ratio_after <= max(ratio_before * MAX_RATIO, ratio_before + MIN_RISE, worst):
        return False, text
    if _mean_demand(after) > DEMAND_RATIO * _mean_demand(before):
        return (
            False,
            f"{text}, but {_mean_demand(after) / _mean_demand(before) - 1:.0%} more was asked for",
        )
    return True, f"{text}, and {worst:.3f} on the worst day before"


def _waiting_ratio(samples: Sequence[QuotaSample]) -> float:
    """Return hours waited per GPU-hour had; where nothing was had, all that waited counts."""
    waited = sum(sample.waiting or 0.0 for sample in samples)
    return waited / max(sum(sample.used for sample in samples), 1.0)


def _mean_demand(samples: Sequence[QuotaSample]) -> float:
    """Return what was had and waited for, on the mean of the hours."""
    demand = sum(sample.used + (sample.waiting or 0.0) for sample in samples)
    return demand / max(1, len({sample.hour for sample in samples}))


def _rounded(value: float) -> float:
    return round(value, 6)
