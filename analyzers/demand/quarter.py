"""Project a cluster's demand over the next quarter, and how many GPUs to buy or give back.

A day's mean is a linear trend times the factor of its kind: a weekday, or a holiday, where two of
them were seen; else a holiday counts as a Sunday. Hours follow whole days of the past, drawn from
working days for working days and from the others for the others. The interval is that of `PATHS`
futures: each fits the trend again after weeks of errors were drawn (block bootstrap, H. R. Kuensch,
Annals of Statistics 17(3), 1989), and draws the errors of its own days.
"""

from collections.abc import Collection
from datetime import date, timedelta

import msgspec
import numpy as np

from analyzers.arrays import Doubles
from fallow.fragmentation import Integers

DAY, WEEK, SUNDAY = 24, 7, 6
QUARTER_DAYS = 91
LEAST_DAYS = 28
"""Four weeks: each weekday four times."""
LEAST_HOLIDAYS = 2
PATHS = 200
LOW, HIGH = 0.1, 0.9
FITS = 4
EPS = 1e-9
SEED = 7
SATURDAY = 5
MONTH_H = 730.0
"""Hours of a month, as bills of clouds count them."""


class QuarterPlan(msgspec.Struct, frozen=True):
    """The GPUs that the next quarter needs, against those that are there.

    `need` is the median of the futures' quantile of hourly demand; `low` to `high` holds 80 % of
    the futures. `change`: GPUs to buy (above 0) or give back (below 0), 0 while the interval holds
    today's number; `change_low` and `change_high` are its interval.
    """

    refused: str | None
    start: date
    days: int
    quantile: float
    capacity: float
    history_days: int
    need: float = 0.0
    low: float = 0.0
    high: float = 0.0
    trend_gpus_per_week: float = 0.0
    change: int = 0
    change_low: int = 0
    change_high: int = 0
    holidays: int = 0
    """Of the calendar, within the quarter."""
    usd_month: float | None = None
    """What the change costs per month of 730 hours; below 0 = it saves."""


def plan_quarter(
    demand: Doubles,
    first: date,
    capacity: float,
    usd_h: float | None,
    *,
    quantile: float,
    holidays: Collection[date] = (),
) -> QuarterPlan:
    """Plan the quarter after whole days of hourly demand in GPUs; `first` is their first day."""
    days = len(demand) // DAY
    table = demand[len(demand) - days * DAY :].reshape(days, DAY)
    start = first + timedelta(days=days)
    plan = QuarterPlan(None, start, QUARTER_DAYS, quantile, round(capacity, 3), days)
    if days < LEAST_DAYS:
        why = f"{days} days of history: {LEAST_DAYS} are needed"
        return msgspec.structs.replace(plan, refused=why)
    past, ahead = _list_dates(first, days), _list_dates(start, QUARTER_DAYS)
    seen = sum(day in holidays for day in past) >= LEAST_HOLIDAYS
    kinds, kinds_ahead = (_sort_days(dates, holidays, seen=seen) for dates in (past, ahead))
    means = table.mean(axis=1)
    if not means.any():
        return msgspec.structs.replace(plan, refused="no GPU was requested")
    factors, trend = _fit_days(means, kinds)
    errors = means / np.maximum(trend @ _count(0, days) * factors[kinds], EPS)
    shapes = table / np.maximum(means, EPS)[:, None]
    resting = np.array([n for n, day in enumerate(past) if _is_quiet(day, holidays)])
    working = np.array([n for n, day in enumerate(past) if not _is_quiet(day, holidays)])
    quiet_ahead = np.array([_is_quiet(day, holidays) for day in ahead])
    rng = np.random.default_rng(SEED)
    needs = np.empty(PATHS)
    for path in range(PATHS):
        again = trend @ _count(0, days) * factors[kinds] * _draw_weeks(errors, days, rng)
        new_factors, new_trend = _fit_days(again, kinds)
        level = np.maximum(new_trend @ _count(days, QUARTER_DAYS), 0)
        own = level * new_factors[kinds_ahead] * _draw_weeks(errors, QUARTER_DAYS, rng)
        numbers = np.where(
            quiet_ahead,
            _draw_days(resting, QUARTER_DAYS, rng),
            _draw_days(working, QUARTER_DAYS, rng),
        )
        needs[path] = np.quantile(own[:, None] * shapes[numbers], quantile)
    low, need, high = (float(np.quantile(needs, q)) for q in (LOW, 0.5, HIGH))
    change = 0 if low <= capacity <= high else int(np.ceil(need - capacity))
    return msgspec.structs.replace(
        plan,
        need=round(need, 3),
        low=round(low, 3),
        high=round(high, 3),
        trend_gpus_per_week=round(float(trend[1]) * WEEK, 3),
        change=change,
        change_low=int(np.ceil(low - capacity)),
        change_high=int(np.ceil(high - capacity)),
        holidays=sum(day in holidays for day in ahead),
        usd_month=None if usd_h is None else round(change * usd_h * MONTH_H, 2),
    )


def _list_dates(first: date, days: int) -> list[date]:
    return [first + timedelta(days=n) for n in range(days)]


def _is_quiet(day: date, holidays: Collection[date]) -> bool:
    return day.weekday() >= SATURDAY or day in holidays


def _sort_days(dates: list[date], holidays: Collection[date], *, seen: bool) -> Integers:
    """Return the kind of each day: its weekday; a holiday is a Sunday, or a kind of its own."""
    rest = WEEK if seen else SUNDAY
    return np.array([rest if day in holidays else day.weekday() for day in dates])


def _fit_days(means: Doubles, kinds: Integers) -> tuple[Doubles, Doubles]:
    """Return the factor of each kind of day, and level and slope of the trend."""
    factors, facts = np.ones(WEEK + 1), _count(0, len(means)).T
    trend = np.array([means.mean(), 0.0])
    for _ in range(FITS):
        level = np.maximum(facts @ trend, EPS)
        factors = np.array(
            [
                means[kinds == k].sum() / level[kinds == k].sum() if (kinds == k).any() else 1.0
                for k in range(WEEK + 1)
            ]
        )
        # Equal to weighted least squares: the errors are relative, so quiet days weigh more.
        trend = np.linalg.lstsq(facts, means / np.maximum(factors[kinds], EPS), rcond=None)[0]
    return factors, trend


def _count(first: int, days: int) -> Doubles:
    """Return two rows: ones, and the numbers of the days."""
    return np.stack([np.ones(days), np.arange(first, first + days, dtype=np.float64)])


def _draw_weeks(errors: Doubles, days: int, rng: np.random.Generator) -> Doubles:
    """Return errors of so many days, drawn by whole weeks."""
    starts = rng.integers(0, len(errors) - WEEK + 1, -(-days // WEEK))
    sample: Doubles = np.concatenate([errors[s : s + WEEK] for s in starts])[:days]
    return sample


def _draw_days(candidates: Integers, days: int, rng: np.random.Generator) -> Integers:
    """Return the numbers of so many days, drawn from some days of the past."""
    numbers: Integers = rng.choice(candidates, days)
    return numbers
