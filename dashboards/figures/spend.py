"""Spend: what was paid, by what people ask for, and where the month will end."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa

from dashboards.figures.asking import Filters, ask
from fallow.errors import UsageError
from fallow.seams import Views
from fallow.window import Window

KEYS = ("team", "namespace", "workload", "model", "pool", "state", "cluster")
HISTORY = timedelta(days=28)
"""What the forecast knows: four whole weeks, so that each weekday counts the same."""
HALF_DAY = 12
"""Accounted hours from which a day counts."""
BAND = 0.80
Z80 = 1.2816
"""Standard normal quantile of 0.90: a band of 80 %."""
CENT = Decimal("0.01")


class Totals(msgspec.Struct, frozen=True):
    """A window in one row; dollars None = nothing of it has a price."""

    gpu_hours: float
    usd: Decimal | None
    idle_gpu_hours: float
    idle_usd: Decimal | None
    unknown_gpu_hours: float
    unpriced_gpu_hours: float
    price_as_of: datetime | None


class Month(msgspec.Struct, frozen=True):
    """The calendar month (UTC) that `until` lies in.

    `run_rate` is the last whole day's dollars per hour times the month's hours; `forecast` is what
    was paid plus what the rest is expected to cost, `low` and `high` its band of 80 %; None = too
    little is known. `missing_hours`: hours of the month so far that nobody accounted for.
    """

    start: datetime
    until: datetime
    end: datetime
    usd: Decimal | None
    run_rate: Decimal | None
    forecast: Decimal | None
    low: Decimal | None
    high: Decimal | None
    budget: Decimal | None
    missing_hours: int

    @property
    def method(self) -> str:
        """Say how the forecast was made."""
        return (
            "paid so far, plus the mean of the last 28 days for each hour to come; "
            "the band holds the month's end in 80 of 100 cases, by how much days differ"
        )


def totals(views: Views, window: Window, filters: Filters) -> Totals:
    """Return the window in one row."""
    row = ask(views, ("paid", "spend/totals"), window, filters).to_pylist()[0]
    return Totals(**row)


def by(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return a row per name of `key`, the dearest first; rows sum to `totals`.

    Columns: name, gpu_hours (GPU h), usd (null = no rate), idle_gpu_hours, idle_usd,
    unknown_gpu_hours, unpriced_gpu_hours, share_pct (% of gpu_hours).

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group spend by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return ask(views, ("paid", "spend/grouped"), window, filters, by=key)


def daily(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return day, state, gpu_hours and usd of each day (UTC) of the window."""
    return ask(views, ("paid", "spend/daily"), window, filters)


def month(views: Views, until: datetime, filters: Filters, budget: Decimal | None = None) -> Month:
    """Return month to date, run rate and forecast at a moment (UTC)."""
    until = until.astimezone(UTC)
    start = until.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if start == until:  # the first moment of a month belongs to the one that ended
        start = (until - timedelta(seconds=1)).replace(day=1, hour=0, minute=0, second=0)
    end = (start + timedelta(days=32)).replace(day=1)
    rows = ask(
        views,
        ("paid", "spend/hourly"),
        Window(min(start, until - HISTORY), until),
        filters,
    )
    hours = [hour.replace(tzinfo=UTC) for hour in rows["hour"].to_pylist()]
    usd = rows["usd"].to_pylist()
    mine = [u for h, u in zip(hours, usd, strict=True) if h >= start]
    paid = [u for u in mine if u is not None]
    recent = [(h, float(u)) for h, u in zip(hours, usd, strict=True) if u is not None and h < until]
    spent = sum(paid, Decimal()) if paid else None
    whole = _hours(start, end)
    last = [u for h, u in recent if h >= until - timedelta(days=1)]
    expected = _expected(recent, until, _hours(until, end))
    return Month(
        start=start,
        until=until,
        end=end,
        usd=spent,
        run_rate=_cents(sum(last) / len(last) * whole) if last else None,
        forecast=None if spent is None or expected is None else spent + _cents(expected[0]),
        low=_at_least(spent, expected, -1),
        high=_at_least(spent, expected, 1),
        budget=budget,
        missing_hours=max(0, math.ceil(_hours(start, until)) - len(mine)),
    )


def _expected(
    hours: list[tuple[datetime, float]], until: datetime, ahead: float
) -> tuple[float, float] | None:
    """Return what the hours to come cost, and half the width of the band.

    From whole days: the spread of n future days around an estimated mean is s * sqrt(n + n^2 / m).
    """
    days: dict[int, list[float]] = {}
    for hour, usd in hours:
        days.setdefault(int((until - hour).total_seconds() - 1) // 86400, []).append(usd)
    rates = np.array(
        [sum(d) / len(d) * 24 for k, d in days.items() if len(d) >= HALF_DAY and k < HISTORY.days]
    )
    if not len(rates):
        return None
    n, m = ahead / 24, len(rates)
    spread = float(rates.std(ddof=1)) if m > 1 else float(rates.mean())
    return float(rates.mean()) * n, Z80 * spread * math.sqrt(n + n * n / m)


def _at_least(
    spent: Decimal | None, expected: tuple[float, float] | None, sign: int
) -> Decimal | None:
    if spent is None or expected is None:
        return None
    return spent + max(Decimal(), _cents(expected[0] + sign * expected[1]))


def _hours(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / 3600


def _cents(usd: float) -> Decimal:
    return Decimal(repr(usd)).quantize(CENT)
