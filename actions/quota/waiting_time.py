"""Test whether waiting fell: compare rows of the quota table from before and after a step.

There are three tests. Each alone is enough to undo a step:

  harm > good   harm: waiting demand of givers within what they gave away,
                sum over hours of max(0, min(used + waiting, old) - max(used, new));
                good: use by receivers of what they got, max(0, min(used, new) - old)
  reversal      harm above 5 % of the givers' demand within their old nominal quotas: the back-test
                promised less, and a nominal quota has priority over another account's gain
  longer queues hours waited per GPU-hour used, sum waiting / sum used, rose by 25 % and above
                that of every single day before, though demand did not rise

Demand that grew makes every account wait longer, whatever its quota: then queues prove nothing.
With too few hours, or no source of waiting demand, there is no verdict: worse is None.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import msgspec

MIN_HOURS = 24
"""Minimum hours of data after a step, and before it, for a verdict."""
MIN_HARM = 1.0
"""GPU-hours: less harm is ignored."""
MAX_HARM_SHARE = 0.05
MAX_RATIO = 1.25
MIN_RISE = 0.02
"""Hours waited per GPU-hour used: a smaller rise is noise."""
DEMAND_RATIO = 1.10


class QuotaSample(msgspec.Struct, frozen=True):
    """The figures of one quota in one hour, in devices."""

    hour: datetime
    key: str
    nominal: float
    used: float
    waiting: float | None


class StepVerdict(msgspec.Struct, frozen=True):
    """Whether a step did harm; None = too few data."""

    worse: bool | None
    why: str
    harm_gpu_hours: float = 0.0
    """Waiting demand within what was given away."""
    good_gpu_hours: float = 0.0
    """Use of what was received."""
    waited_before: float | None = None
    """Hours waited per GPU-hour used."""
    waited_after: float | None = None


def compare_waiting(before: Sequence[QuotaSample], after: Sequence[QuotaSample]) -> StepVerdict:
    """Return whether waiting time worsened from the hours before a step to those after it."""
    too_short = _explain_too_short(before, "before") or _explain_too_short(after, "after")
    if too_short:
        return StepVerdict(None, too_short)
    old, new = _find_latest_nominal(before), _find_latest_nominal(after)
    harm = round(sum(_compute_harm_hours(sample, old, new) for sample in after), 6)
    gain = round(sum(_compute_gain_hours(sample, old, new) for sample in after), 6)
    ratio_before, ratio_after = _compute_waiting_ratio(before), _compute_waiting_ratio(after)
    worse, why = _compare_days(before, after, ratio_before, ratio_after)
    demand = sum(_compute_demand_within(sample, old, new) for sample in after)
    if harm >= MIN_HARM and (harm > gain or harm > MAX_HARM_SHARE * demand):
        text = f"givers waited for {harm:,.1f} GPU-hours of what they gave ({harm / demand:.1%})"
        worse, why = True, f"{text}, receivers used {gain:,.1f}"
    return StepVerdict(
        worse, why, harm, gain, _round_value(ratio_before), _round_value(ratio_after)
    )


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


def _find_latest_nominal(samples: Sequence[QuotaSample]) -> dict[str, float]:
    """Return each quota's nominal quota in the last hour with data."""
    return {
        sample.key: sample.nominal for sample in sorted(samples, key=lambda sample: sample.hour)
    }


def _compute_harm_hours(
    sample: QuotaSample, old: Mapping[str, float], new: Mapping[str, float]
) -> float:
    before, after = old.get(sample.key, 0.0), new[sample.key]
    demand = sample.used + (sample.waiting or 0.0)
    return max(0.0, min(demand, before) - max(sample.used, after)) if after < before else 0.0


def _compute_demand_within(
    sample: QuotaSample, old: Mapping[str, float], new: Mapping[str, float]
) -> float:
    """Return a giver's demand within its old nominal quota."""
    before = old.get(sample.key, 0.0)
    return min(sample.used + (sample.waiting or 0.0), before) if new[sample.key] < before else 0.0


def _compute_gain_hours(
    sample: QuotaSample, old: Mapping[str, float], new: Mapping[str, float]
) -> float:
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
    worst = max(_compute_waiting_ratio(samples) for samples in days.values())
    text = f"{ratio_after:.3f} hours were waited per GPU-hour had, {ratio_before:.3f} before"
    if ratio_after <= max(ratio_before * MAX_RATIO, ratio_before + MIN_RISE, worst):
        return False, text
    demand_before, demand_after = _compute_mean_demand(before), _compute_mean_demand(after)
    if not demand_before:
        return False, f"{text}, but nothing was asked for before"
    if demand_after > DEMAND_RATIO * demand_before:
        return False, f"{text}, but {demand_after / demand_before - 1:.0%} more was asked for"
    return True, f"{text}, and {worst:.3f} on the worst day before"


def _compute_waiting_ratio(samples: Sequence[QuotaSample]) -> float:
    """Return hours waited per GPU-hour used; with no use, all that waited counts."""
    waited = sum(sample.waiting or 0.0 for sample in samples)
    return waited / max(sum(sample.used for sample in samples), 1.0)


def _compute_mean_demand(samples: Sequence[QuotaSample]) -> float:
    """Return the mean demand (used and waiting) of the hours."""
    demand = sum(sample.used + (sample.waiting or 0.0) for sample in samples)
    return demand / max(1, len({sample.hour for sample in samples}))


def _round_value(value: float) -> float:
    return round(value, 6)
