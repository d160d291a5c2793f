"""Compute how many GPUs to keep ready: the newsvendor's quantile of requests in the lead time."""

from datetime import datetime

import msgspec
import numpy as np

from analyzers.arrays import Doubles

DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
FRIDAYS_END = 5 * DAY_HOURS


class Headroom(msgspec.Struct, frozen=True):
    """GPUs worth keeping free, on average, by hour of the day, and by hour of the week (UTC).

    The week begins on Monday. Its working days are alike, and so are Saturday and Sunday.
    """

    critical_ratio: float
    gpus: float
    by_hour: list[float]
    by_week_hour: list[float]
    lead_s: float
    stretches: int


def compute_critical_ratio(under_usd: float, over_usd: float) -> float:
    """Return Cu / (Cu + Co): the share of the time for which enough GPUs pay off (newsvendor).

    `under_usd` is the cost of one missing GPU, `over_usd` that of one surplus GPU.
    """
    total = under_usd + over_usd
    return under_usd / total if total > 0 else 0.0


def compute_headroom(
    arrivals: dict[datetime, float], since: datetime, until: datetime, lead_s: float, ratio: float
) -> Headroom:
    """Return the quantile `ratio` of GPUs requested in one lead time, with stretches of zero.

    `arrivals` are GPUs by the beginning of a stretch of `lead_s`.
    """
    count = max(1, int((until - since).total_seconds() // lead_s))
    requested = np.zeros(count)
    for time, gpus in arrivals.items():
        requested[min(max(int((time - since).total_seconds() // lead_s), 0), count - 1)] += gpus
    first = since.weekday() * DAY_HOURS + since.hour
    week_hours = (first + (np.arange(count) * lead_s // 3600)).astype(int) % WEEK_HOURS
    hours, is_weekend = week_hours % DAY_HOURS, week_hours >= FRIDAYS_END
    by_kind = {
        weekend: [
            _compute_quantile(requested[(hours == h) & (is_weekend == weekend)], ratio)
            for h in range(DAY_HOURS)
        ]
        for weekend in (False, True)
    }
    return Headroom(
        round(ratio, 6),
        _compute_quantile(requested, ratio),
        [_compute_quantile(requested[hours == h], ratio) for h in range(DAY_HOURS)],
        by_kind[False] * 5 + by_kind[True] * 2,
        lead_s,
        count,
    )


def _compute_quantile(values: Doubles, ratio: float) -> float:
    return float(np.quantile(values, ratio, method="higher")) if len(values) else 0.0
