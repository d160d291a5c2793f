"""Compute spend: what was paid, by the requested names, and the forecast of the month."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa

from dashboards.figures.query import BY_DAY, BY_HOUR, Filters, run_query
from fallow import money
from fallow.errors import UsageError
from fallow.models import WASTED
from fallow.protocols import Views
from fallow.window import Window
from warehouse.coverage import measure_coverage

KEYS = ("team", "namespace", "workload", "model", "pool", "state", "cluster")
HISTORY = timedelta(days=28)
"""Input of the forecast: four whole weeks, so that each weekday has the same weight."""
MOST_MISSING = 0.02
"""Share of a month's hours; a month that lacks more is known in part."""
HALF_DAY = 12
"""Accounted hours from which a day is used."""
Z80 = 1.2816
"""Standard normal quantile of 0.90: a band of 80 %."""
CENT = Decimal("0.01")
USED = ("productive", "low", "startup")
"""Of a window's totals."""


class SpendTotals(msgspec.Struct, frozen=True):
    """A window in one row; paid = used + wasted + unknown.

    Dollars are the sum of the clusters' bills, each in cents; None = no part has a price.
    """

    days: int
    """Days with any accounted hour."""
    clusters: int
    """Clusters with any: periods with different ones are not compared."""
    gpu_hours: float
    usd: Decimal | None
    used_gpu_hours: float
    """Productive, below target or starting up."""
    used_usd: Decimal | None
    wasted_gpu_hours: float
    wasted_usd: Decimal | None
    idle_gpu_hours: float
    idle_usd: Decimal | None
    unknown_gpu_hours: float
    unpriced_gpu_hours: float
    productive_gpu_hours: float
    allocated_gpu_hours: float
    estimated_gpu_hours: float
    """On spot nodes without a known price."""
    estimated_usd: Decimal | None
    known_gpu_hours: float
    """Allocated hours with known use: idle, low, productive, lost or starting up."""
    busy_gpu_hours: float
    """Those of them with work: low, productive or lost."""
    measured_gpu_hours: float
    """Allocated hours with measured effective utilisation."""
    effective_gpu_hours: float | None
    """These hours times their effective utilisation; None = not measured."""
    price_as_of: datetime | None
    state_usd: dict[str, Decimal | None]
    """Of each state of the ledger, in cents: the others are sums of these."""

    @property
    def busy(self) -> float | None:
        """Return busy time as a share (0-1) of the allocated hours with known use."""
        return self.busy_gpu_hours / self.known_gpu_hours if self.known_gpu_hours else None

    @property
    def usd_per_gpu_hour(self) -> Decimal | None:
        """Return the bill over the paid GPU-hours."""
        return self._divide_usd(self.gpu_hours)

    @property
    def usd_per_productive_gpu_hour(self) -> Decimal | None:
        """Return the bill over the productive GPU-hours."""
        return self._divide_usd(self.productive_gpu_hours)

    @property
    def effective(self) -> float | None:
        """Return the effective utilisation (0-1) of the allocated hours; None = not measured."""
        if self.effective_gpu_hours is None or not self.measured_gpu_hours:
            return None
        return self.effective_gpu_hours / self.measured_gpu_hours

    def _divide_usd(self, gpu_hours: float) -> Decimal | None:
        return None if self.usd is None or not gpu_hours else self.usd / Decimal(repr(gpu_hours))


class Point(msgspec.Struct, frozen=True):
    """A day's end in the month: dollars since it began, paid or expected with its band."""

    day: datetime
    paid: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None


class Outlook(msgspec.Struct, frozen=True):
    """Mean cost of a day, the spread between days, and how many days are known."""

    usd_per_day: float
    spread: float
    days: int

    def after(self, days: float) -> tuple[float, float]:
        """Return the cost of so many days, and half the width of its band of 80 %.

        n days around an estimated mean of m spread by s * sqrt(n + n^2 / m).
        """
        half = Z80 * self.spread * math.sqrt(days + days * days / self.days)
        return self.usd_per_day * days, half


class Month(msgspec.Struct, frozen=True):
    """The calendar month (UTC) of `until`.

    `run_rate` is the last whole day's dollars per hour times the month's hours. `forecast` is what
    was paid plus the expected rest, `low` and `high` its band of 80 %; None = too little is known,
    for example if half of the last day is not accounted. `missing_hours`: hours of the month so far
    without data of every cluster.
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
    path: tuple[Point, ...] = ()
    """Each day's end: paid until now, expected from now on."""

    @property
    def is_partial(self) -> bool:
        """Return whether hours are missing, so that dollars are at least so many."""
        so_far = (self.until - self.start) / timedelta(hours=1)
        return self.missing_hours > MOST_MISSING * so_far

    @property
    def doubt(self) -> str | None:
        """Return why there is no forecast although something was paid; None = there is one."""
        if self.usd is None or self.forecast is not None:
            return None
        return "no forecast: fewer than 12 of the last 24 hours are accounted for"

    @property
    def method(self) -> str:
        """Return a sentence about the method of the forecast."""
        return (
            "paid so far, plus the mean of the last 28 days, without those that lack a cluster, "
            "for each hour to come; "
            "the band holds the month's end in 80 of 100 cases, by how much days differ"
        )


def read_totals(views: Views, window: Window, filters: Filters) -> SpendTotals:
    """Return the window in one row."""
    steps = (*BY_HOUR, "spend/totals")
    (row,) = run_query(views, steps, window, filters, wasted=[*WASTED]).to_pylist()
    exact = [{part["state"]: part["usd"] for part in bill} for bill in row.pop("bills")]
    if filters == Filters(cluster=filters.cluster, team=filters.team or "", view=filters.view):
        states = sorted({state for bill in exact for state in bill})
        whole = {state: money.sum_known(bill.get(state) for bill in exact) for state in states}
        team_bills = read_team_bills(views, window, filters)
        bills = [money.split_states(whole, team_bills.get(filters.team or ""))]
    else:
        bills = [money.split_states(bill) for bill in exact]
    state_usd = {
        state: money.sum_known(bill.get(state) for bill in bills)
        for state in sorted({state for bill in bills for state in bill})
    }
    usd = money.sum_known(state_usd.values())

    def total(states: Collection[str]) -> Decimal | None:
        parts = (state_usd[state] for state in state_usd if state in states)
        return None if usd is None else money.sum_known(parts) or Decimal("0.00")

    return SpendTotals(
        **row,
        usd=usd,
        used_usd=total(USED),
        wasted_usd=total(WASTED),
        idle_usd=total(("idle",)),
        state_usd=state_usd,
    )


def read_by(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return a row per name of `key`, the most expensive first; rows sum to `totals`.

    Columns: name, cluster (of a workload; null by another key), gpu_hours (GPU h), usd (null = no
    rate), idle_gpu_hours, idle_usd, unknown_gpu_hours, unpriced_gpu_hours, share_pct (% of
    gpu_hours), busy_pct (hours with work, % of the allocated hours with known use), effective_pct
    (effective utilisation of the allocated hours, %; null = not measured).

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group spend by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return run_query(
        views,
        (*(BY_DAY if key == "workload" else BY_HOUR), "spend/grouped"),
        window,
        filters,
        by=key,
    )


def read_statement(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return the rows of `read_by` in cents that sum to `read_totals`, as `fallow spend --by`."""
    rows = read_by(views, window, filters, key)
    totals = read_totals(views, window, filters)
    exact_usd, exact_idle = (rows[name].to_pylist() for name in ("usd", "idle_usd"))
    usd, idle_usd = money.split(exact_usd, exact_idle, (totals.usd, totals.idle_usd))
    return set_columns(rows, {"usd": usd, "idle_usd": idle_usd})


def read_team_bills(
    views: Views, window: Window, filters: Filters
) -> dict[str, tuple[Decimal | None, Decimal | None]]:
    """Return each team's dollars and their idle part, in the cents of `fallow spend --by team`.

    Of the filters the cluster and the view apply: a team's cents depend on all teams.
    """
    of_all = Filters(cluster=filters.cluster, view=filters.view)
    rows = read_statement(views, window, of_all, "team").to_pylist()
    return {row["name"]: (row["usd"], row["idle_usd"]) for row in rows}


def set_columns(rows: pa.Table, columns: Mapping[str, Sequence[Decimal | None]]) -> pa.Table:
    """Return rows with other values in columns of dollars."""
    for name, usd in columns.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.array(usd, rows.schema.field(at).type))
    return rows


def read_daily(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return day (UTC), state, gpu_hours, allocated_gpu_hours and usd of the window."""
    return run_query(views, (*BY_HOUR, "spend/daily"), window, filters)


def find_comparable_start(views: Views, window: Window, cluster: str | None) -> datetime:
    """Return from when on a window's hours have every cluster that has data on its last day.

    Sums of hours before lack a cluster: nothing is forecast or called usual from them.
    """
    steps = (*BY_HOUR, "spend/clusters")
    rows = run_query(views, steps, window, Filters(cluster=cluster)).to_pylist()
    last_day = (window.end - timedelta(days=1)).replace(tzinfo=None)
    starts = [row["first_hour"] for row in rows if row["last_hour"] >= last_day]
    return max(starts).replace(tzinfo=UTC) if starts else window.start


def read_month(
    views: Views, until: datetime, filters: Filters, budget: Decimal | None = None
) -> Month:
    """Return month to date, run rate, forecast and their daily path at a time (UTC)."""
    return _read_months(views, until, filters, {None: budget})[None]


def read_team_months(
    views: Views, until: datetime, budgets: Mapping[str, Decimal]
) -> dict[str, Month]:
    """Return the month of each team that has a budget, of all clusters, in one reading."""
    months = _read_months(views, until, Filters(), dict(budgets.items()))
    return {team: months[team] for team in budgets}


def _read_months(
    views: Views, until: datetime, filters: Filters, budgets: Mapping[str | None, Decimal | None]
) -> dict[str | None, Month]:
    """Return the month of each key of `budgets`: a team, or None for all that `filters` select."""
    until = until.astimezone(UTC)
    start = _find_month(until)
    wide = Window(min(start, until - HISTORY), until)
    steps = (*BY_HOUR, "spend/hourly")
    rows = run_query(views, steps, wide, filters, by_team=None not in budgets).to_pylist()
    by_team: dict[str | None, list[tuple[datetime, Decimal | None]]]
    by_team = {name: [] for name in budgets}
    for row in rows:
        hour = row["hour"].replace(tzinfo=UTC)
        if hour < until and row["team"] in by_team:
            by_team[row["team"]].append((hour, row["usd"]))
    history = find_comparable_start(views, Window(until - HISTORY, until), filters.cluster)
    covered = measure_coverage(views, Window(start, until), {}, filters.cluster)
    missing = covered.hours - covered.hours_with_data
    so_far = Window(start, until)
    paid: dict[str | None, Decimal | None]
    if None in budgets:
        paid = {None: read_totals(views, so_far, filters).usd}
    else:
        bills = read_team_bills(views, so_far, filters)
        paid = {team: bills[team][0] if team in bills else None for team in budgets}
    return {
        team: _build_month(
            hours, until, history, missing, budget=budgets[team], usd_to_date=paid[team]
        )
        for team, hours in by_team.items()
    }


def _build_month(
    priced_hours: list[tuple[datetime, Decimal | None]],
    until: datetime,
    history: datetime,
    missing_hours: int,
    *,
    budget: Decimal | None,
    usd_to_date: Decimal | None,
) -> Month:
    """Return the month of these hours; what is before `history` lacks a cluster."""
    start = _find_month(until)
    end = (start + timedelta(days=32)).replace(day=1)
    month_hours = [(hour, usd) for hour, usd in priced_hours if hour >= start]
    recent = [
        (hour, float(usd)) for hour, usd in priced_hours if usd is not None and hour >= history
    ]
    last = [usd for hour, usd in recent if hour >= until - timedelta(days=1)]
    fresh = len(last) >= HALF_DAY
    outlook = _forecast_month(recent, until) if fresh else None
    forecast, low, high = _compute_ends(usd_to_date, outlook, _convert_hours(until, end))
    return Month(
        start=start,
        until=until,
        end=end,
        usd=usd_to_date,
        run_rate=_round_to_cents(sum(last) / len(last) * _convert_hours(start, end))
        if fresh
        else None,
        forecast=forecast,
        low=low,
        high=high,
        budget=budget,
        missing_hours=missing_hours,
        path=_compute_path(month_hours, usd_to_date, outlook, until, end),
    )


def _find_month(until: datetime) -> datetime:
    # The first instant of a month belongs to the month that ended.
    inside = until - timedelta(microseconds=1)
    return inside.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _forecast_month(hours: list[tuple[datetime, float]], until: datetime) -> Outlook | None:
    days: dict[int, list[float]] = {}
    for hour, usd in hours:
        days.setdefault(int((until - hour).total_seconds() - 1) // 86400, []).append(usd)
    rates = np.array(
        [sum(d) / len(d) * 24 for k, d in days.items() if len(d) >= HALF_DAY and k < HISTORY.days]
    )
    if not len(rates):
        return None
    spread = rates.std(ddof=1) if len(rates) > 1 else rates.mean()
    return Outlook(float(rates.mean()), float(spread), len(rates))


def _compute_ends(
    usd_to_date: Decimal | None, outlook: Outlook | None, ahead: float
) -> tuple[Decimal | None, Decimal | None, Decimal | None]:
    if usd_to_date is None or outlook is None:
        return None, None, None
    more, half = outlook.after(ahead / 24)
    return (
        usd_to_date + _round_to_cents(more),
        usd_to_date + _round_to_cents(max(0.0, more - half)),
        usd_to_date + _round_to_cents(more + half),
    )


def _compute_path(
    month_hours: list[tuple[datetime, Decimal | None]],
    usd_to_date: Decimal | None,
    outlook: Outlook | None,
    until: datetime,
    end: datetime,
) -> tuple[Point, ...]:
    """Return the sum at the end of each day: paid until now, expected from now on."""
    sums: dict[datetime, float] = {}
    total = 0.0
    for hour, usd in month_hours:
        total += float(usd or 0)
        sums[hour.replace(hour=0)] = total
    points = [Point(day=day, paid=paid) for day, paid in sums.items()]
    if usd_to_date is None or outlook is None:
        return tuple(points)
    day = until
    while day < end:
        more, half = outlook.after(_convert_hours(until, day) / 24)
        at = float(usd_to_date) + more
        # A day is marked at its beginning; the sum is the one at its end.
        day_start = (day - timedelta(microseconds=1)).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        points.append(Point(day_start, None, at, max(float(usd_to_date), at - half), at + half))
        day = min(end, day + timedelta(days=1))
    more, half = outlook.after(_convert_hours(until, end) / 24)
    at = float(usd_to_date) + more
    last = (end - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (*points, Point(last, None, at, max(float(usd_to_date), at - half), at + half))


def _convert_hours(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / 3600


def _round_to_cents(usd: float) -> Decimal:
    return Decimal(repr(usd)).quantize(CENT)
