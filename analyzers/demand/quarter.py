"""Project a cluster's demand over the next quarter, and how many GPUs to buy or give back.

The level is one figure a week, without weekdays and holidays: a random walk with noise around a
level or, seldom, a line (the local level model of exponential smoothing). How much of its variance
is the walk's is not known: futures are drawn from the likelihood of each part, with the uncertainty
of line and variance (generalised least squares), so that few weeks make a wide interval. How far
the days of a week scatter says how much of the variance is noise. The days of a future week are
those of a drawn week of the past, by weekday, with their hours; a holiday has the factor of
holidays where two were seen, else a Sunday's.
"""

from collections.abc import Collection
from datetime import date, timedelta

import msgspec
import numpy as np

from analyzers.arrays import Bools, Doubles
from fallow.fragmentation import Integers

DAY, WEEK, SUNDAY = 24, 7, 6
QUARTER_DAYS = 91
LEAST_DAYS = 28
"""Four weeks: each weekday four times."""
LEAST_HOLIDAYS = 2
PATHS = 200
LOW, HIGH = 0.1, 0.9
FITS = 4
PARTS = (0.3, 0.9, 0.99)
"""Parts of the weekly variance that are the walk's: that a level stays, no past proves."""
LINE_ODDS = 0.2
"""Of a line that goes on for a quarter, before the past is seen."""
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


class LevelFit(msgspec.Struct, frozen=True):
    """One description of the weekly level: its likelihood, and the weeks ahead."""

    odds: float
    """Logarithm."""
    mean: Doubles
    root: Doubles
    """Of the covariance, in units of the variance."""
    squares: float
    freedom: int


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
    # Whole weeks, counted back from the end: their weekdays are those of the weeks ahead.
    weeks = days // WEEK
    whole = slice(days - weeks * WEEK, None)
    daily = means[whole] / np.maximum(factors[kinds[whole]], EPS)
    levels = daily.reshape(weeks, WEEK).mean(axis=1)
    hours = table[whole] / np.maximum(np.repeat(levels, WEEK) * factors[kinds[whole]], EPS)[:, None]
    quiet = np.array([_is_quiet(day, holidays) for day in past[whole]])
    quiet_ahead = np.array([_is_quiet(day, holidays) for day in ahead])
    rng = np.random.default_rng(SEED)
    needs = np.empty(PATHS)
    scatter = float(np.square(daily.reshape(weeks, WEEK) - levels[:, None]).sum()) / WEEK
    for path, level in enumerate(_draw_levels(levels, scatter, QUARTER_DAYS // WEEK, rng)):
        numbers = _draw_days(quiet, quiet_ahead, rng)
        own = np.repeat(level, WEEK) * factors[kinds_ahead]
        needs[path] = np.quantile(own[:, None] * hours[numbers], quantile)
    low, need, high = (round(float(np.quantile(needs, q)), 6) for q in (LOW, 0.5, HIGH))
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


def _draw_levels(levels: Doubles, scatter: float, weeks: int, rng: np.random.Generator) -> Doubles:
    """Return `PATHS` futures of the weekly level, of so many weeks each.

    `scatter`: squares of the days within their weeks, as of means of a week.
    """
    count = len(levels)
    numbers = np.arange(1.0, count + weeks + 1)
    line = np.stack([np.ones(len(numbers)), numbers], axis=1)
    fits = [
        _fit_level(levels, line[:, :columns], part, scatter) for part in PARTS for columns in (1, 2)
    ]
    odds = np.array([future.odds for future in fits])
    odds = np.exp(odds - odds.max())
    futures = np.empty((PATHS, weeks))
    for path, n in enumerate(rng.choice(len(fits), PATHS, p=odds / odds.sum())):
        fit = fits[n]
        deviation = np.sqrt(fit.squares / rng.chisquare(fit.freedom))
        futures[path] = fit.mean + deviation * (fit.root @ rng.standard_normal(weeks))
    return np.maximum(futures, 0)


def _fit_level(levels: Doubles, line: Doubles, part: float, scatter: float) -> LevelFit:
    """Fit a level, or a line, of which a part of the variance is a walk's.

    The prior of the slope is worth one week.
    """
    numbers = np.arange(1.0, len(line) + 1)
    spread = part * np.minimum.outer(numbers, numbers) + (1 - part) * np.eye(len(line))
    count, days = len(levels), (WEEK - 1) * (len(levels) - 1)
    freedom, noise = count - line.shape[1] + days, scatter / (1 - part)
    inverse = np.linalg.inv(spread[:count, :count])
    facts = line[:count]
    precision = facts.T @ inverse @ facts
    fit = np.linalg.solve(precision, facts.T @ inverse @ levels)
    rest = levels - facts @ fit
    squares = float(rest @ inverse @ rest) + noise + EPS**2
    flat = levels - (inverse @ levels).sum() / inverse.sum()
    slopes, constant = line.shape[1] - 1, float(flat @ inverse @ flat) + noise + EPS**2
    mixed = (constant + slopes * count * squares) / (1 + slopes * count)
    odds = float(np.linalg.slogdet(inverse)[1] - np.log(inverse.sum()))
    odds -= (count - 1 + days) * float(np.log(mixed)) + days * float(np.log(1 - part))
    odds -= slopes * float(np.log(count + 1) - 2 * np.log(LINE_ODDS))
    gain = spread[count:, :count] @ inverse
    loose = line[count:] - gain @ facts
    covariance = spread[count:, count:] - gain @ spread[:count, count:]
    covariance += loose @ np.linalg.solve(precision, loose.T)
    root: Doubles = np.linalg.cholesky(covariance).astype(np.float64)
    return LevelFit(
        odds / 2,
        line[count:] @ fit + gain @ rest,
        root,
        squares,
        freedom,
    )


def _draw_days(quiet: Bools, quiet_ahead: Bools, rng: np.random.Generator) -> Integers:
    """Return a day of the past for each day ahead: of drawn weeks, and as quiet."""
    starts = rng.integers(0, len(quiet) // WEEK, len(quiet_ahead) // WEEK)
    numbers: Integers = (starts[:, None] * WEEK + np.arange(WEEK)).ravel()
    for is_quiet in (True, False):
        same = np.flatnonzero(quiet == is_quiet)
        other = (quiet_ahead == is_quiet) & (quiet[numbers] != is_quiet)
        if len(same):
            numbers[other] = rng.choice(same, int(other.sum()))
    return numbers
