"""Compare the month's budgets with what was paid and is expected, for the CLI and the metrics."""

from datetime import datetime

from dashboards.figures import anomalies, extent, spend
from dashboards.figures.anomalies import TeamBudget
from dashboards.figures.query import Filters
from fallow.window import Window
from warehouse.lake import Warehouse

ALL_TEAMS = "(all)"
"""The whole bill, beside the budgets of teams."""


def read_state(
    warehouse: Warehouse, window: Window, now: datetime
) -> tuple[datetime, list[TeamBudget]]:
    """Return the time at which budgets are reported, and each of them: the whole bill's first.

    They are of all clusters.
    """
    finance = warehouse.settings.finance
    data_extent = extent.read_extent(warehouse)
    accounted = data_extent.accounted if data_extent else None
    at = anomalies.read_budget_time(window, accounted, now)
    budgets = list(anomalies.read_budgets(warehouse, at, finance.teams_usd_per_month))
    if finance.usd_per_month is not None:
        month = spend.read_month(warehouse, at, Filters(), finance.usd_per_month)
        budgets.insert(0, anomalies.compare_budget(ALL_TEAMS, finance.usd_per_month, month))
    return at, budgets
