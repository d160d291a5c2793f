"""Find anomalies of spend and waste, and compare teams' months with their budgets."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pyarrow as pa

from dashboards.figures import spend
from dashboards.figures.query import BY_HOUR, Filters, run_query
from fallow.protocols import Views
from fallow.settings.dashboard import FinanceSettings
from fallow.window import Window
from warehouse.ledger import align_window

WEEKS = timedelta(weeks=8)
BudgetState = Literal["over", "will be over", "may be over", "within", "unknown"]


class TeamBudget(msgspec.Struct, frozen=True):
    """A team's month (UTC): planned, paid and expected dollars; None = unknown."""

    team: str
    budget: Decimal
    usd: Decimal | None
    forecast: Decimal | None
    high: Decimal | None

    @property
    def stands(self) -> BudgetState:
        """Return its state beside the budget."""
        if self.usd is not None and self.usd > self.budget:
            return "over"
        if self.usd is None or self.forecast is None or self.high is None:
            return "unknown"
        if self.forecast > self.budget:
            return "will be over"
        return "may be over" if self.high > self.budget else "within"

    @property
    def used_pct(self) -> float | None:
        """Return what was paid, in percent of the budget; of a budget of 0 there is none."""
        if self.usd is None or not self.budget:
            return None
        return float(100 * self.usd / self.budget)

    @property
    def load(self) -> Decimal:
        """Return the forecast as a part of the budget; beside a budget of 0 it is endless."""
        expected = self.forecast or Decimal()
        if self.budget or not expected:
            return expected / (self.budget or 1)
        return Decimal("Infinity")

    def describe(self) -> dict[str, Any]:
        """Return its row: team, stands, budget, usd, used_pct, forecast, high."""
        return {
            "team": self.team,
            "stands": self.stands,
            "budget": self.budget,
            "usd": self.usd,
            "used_pct": self.used_pct,
            "forecast": self.forecast,
            "high": self.high,
        }


def read_usual(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return each hour's dollars beside the median of the same hour in up to eight weeks before.

    Columns: hour (UTC), usd, wasted_usd (idle and lost), usual_usd (null = no week before with
    every cluster), weeks.
    """
    hours_window = align_window(window)
    wide = Window(hours_window.start - WEEKS, hours_window.end)
    comparable = spend.find_comparable_start(views, wide, filters.cluster)
    return run_query(
        views,
        (*BY_HOUR, "anomalies/hours"),
        wide,
        filters,
        shown=hours_window.start.replace(tzinfo=None),
        comparable=comparable.replace(tzinfo=None),
    )


def read_budget_time(window: Window, accounted: datetime | None, now: datetime) -> datetime:
    """Return the time at which budgets are reported: now, to the hour.

    For a window that ends before the newest `accounted` hour, it is the window's end. Old data
    alone do not move it, because an old month would be reported as the current one.
    """
    if accounted is not None and window.end < accounted:
        return window.end
    return max(window.end, now.replace(minute=0, second=0, microsecond=0))


def read_budgets(
    views: Views, until: datetime, planned: Mapping[str, Decimal]
) -> tuple[TeamBudget, ...]:
    """Return the state of each budgeted team's month at a time, the worst first.

    A budget is of all clusters, and of fully loaded dollars.
    """
    months = spend.read_team_months(views, until, planned) if planned else {}
    budget_rows = [compare_budget(team, planned[team], month) for team, month in months.items()]
    return tuple(sorted(budget_rows, key=lambda b: (-b.load, b.team)))


def find_budget(finance: FinanceSettings, filters: Filters) -> Decimal | None:
    """Return the month's budget for the filters: a team's, all teams', or none for other parts."""
    names = filters.named
    if set(names) == {"team"}:
        return finance.teams_usd_per_month.get(names["team"])
    return None if names else finance.usd_per_month


def compare_budget(team: str, budget: Decimal, month: spend.Month) -> TeamBudget:
    """Return the state of a month beside its budget."""
    forecast, high = month.forecast, month.high
    if month.is_partial and forecast is not None and forecast <= budget:
        # It will be at least so much: whether it is within the budget is unknown.
        forecast = high = None
    return TeamBudget(team, budget, month.usd, forecast, high)
