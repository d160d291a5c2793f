"""Compute how many GPUs to keep ready: the newsvendor's quantile of requests in the lead time."""

from datetime import datetime

import msgspec
import numpy as np

from analyzers.arrays import Doubles

DAY_HOURS = 24


class Headroom(msgspec.Struct, frozen=True):
    """GPUs worth keeping free, on average and by hour of the day (UTC)."""

    critical_ratio: float
    gpus: float
    by_hour: list[float]
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
    hours = (since.hour + (np.arange(count) * lead_s // 3600)).astype(int) % DAY_HOURS
    return Headroom(
        round(ratio, 6),
        _compute_quantile(requested, ratio),
        [_compute_quantile(requested[hours == h], ratio) for h in range(DAY_HOURS)],
        lead_s,
        count,
    )


def _compute_quantile(values: Doubles, ratio: float) -> float:
    return float(np.quantile(values, ratio, method="higher")) if len(values) else 0.0
