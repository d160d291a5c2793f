"""`fallow chargeback`, `budget` and `forecast`: the figures of Spend and Chargeback as tables."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dashboards.figures import anomalies, chargeback, extent
from dashboards.figures import spend as spend_figures
from dashboards.figures.query import Filters
from dashboards.waste_report import format_money
from fallow.window import Window
from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output, command
from runtime.operations.accounting import ledger_totals, windows
from runtime.operations.accounting.budgets import ALL_TEAMS, read_state

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

TEAM = "only this team"
FORECAST_COLUMNS = ("usd", "run_rate", "forecast", "low", "high", "budget", "missing_hours")
SHARES = ("busy_pct", "effective_pct")
"""Columns that have no sum."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "chargeback", noun="chargeback")(print_chargeback)
    command(app, "budget", noun="budgets")(print_budgets)
    command(app, "forecast", noun="forecasts")(print_forecast)


def print_chargeback(
    run: CommandRun,
    *,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
) -> None:
    """Show what each team pays: GPUs, node part, share of the rest.

    usd_gpu + usd_node + shared_usd = total_usd; the lines sum to the bill.
    """
    with run.warehouse(run.settings()) as warehouse:
        span = _find_hours(run, warehouse, windows.end_window(window, until, run.now()))
        filters = Filters(cluster=run.options.get("cluster"))
        rows = chargeback.read_statement(warehouse, span.window, filters).to_pylist()
    for note in span.notes:
        run.say(note)
    if run.output in (Output.table, Output.md) and rows:
        rows = [*rows, ledger_totals.sum_rows(rows, ["team"]) | dict.fromkeys(SHARES)]
    run.data(rows, noun="chargeback", window=span.window)


def print_budgets(run: CommandRun) -> None:
    """Show what is paid and expected of each budget of the month."""
    with run.warehouse(run.settings()) as warehouse:
        span = _find_hours(run, warehouse, None)
        at, budgets = read_state(warehouse, span.window, run.now())
    if run.options.get("cluster"):
        run.say("budgets are of all clusters")
    if not budgets:
        run.say("no budget is set: finance.usd_per_month, finance.teams_usd_per_month")
    run.data([budget.describe() for budget in budgets], noun="budgets", until=at)


def print_forecast(
    run: CommandRun, *, team: Annotated[str | None, typer.Option(help=TEAM)] = None
) -> None:
    """Show what the month has cost, and will have cost at its end."""
    settings = run.settings()
    filters = Filters(cluster=run.options.get("cluster"), team=team)
    budget = anomalies.find_budget(settings.finance, filters)
    with run.warehouse(settings) as warehouse:
        span = _find_hours(run, warehouse, None)
        month = spend_figures.read_month(warehouse, span.window.end, filters, budget)
        if budget is None:  # a team with a budget is known, whether it holds a GPU or not
            extent.require_names(warehouse, Window(month.start, month.end), team=team)
    row: dict[str, Any] = {
        "month": f"{month.start:%Y-%m}",
        "team": ALL_TEAMS if team is None else team,
    }
    row |= {name: getattr(month, name) for name in FORECAST_COLUMNS}
    row["at_least"] = month.is_partial
    if month.is_partial:
        row |= {"low": month.forecast, "high": None}
    run.data([row], noun="forecasts", until=month.until, path=month.path)
    if month.is_partial:
        lost = f"{month.missing_hours:,} hours of the month lack data of a cluster"
        run.say(f"at least {format_money(month.usd)} so far: {lost}")
    run.say(month.doubt or month.method)


def _find_hours(
    run: CommandRun, warehouse: "Warehouse", window: str | None
) -> windows.CoveredHours:
    return windows.find_ledger_hours(warehouse, window, run.now(), run.options.get("cluster"))
