"""`fallow chargeback`, `budget` and `forecast`: the figures of Spend and Chargeback as tables."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dashboards.figures import anomalies, chargeback, extent
from dashboards.figures import spend as spend_figures
from dashboards.figures.query import Filters
from dashboards.waste_report import format_money
from fallow import money
from fallow.errors import UsageError
from fallow.window import Window, get_month_start
from runtime.cli.options import TEAM, UNTIL, WINDOW, CommandRun, Output
from runtime.operations.accounting import ledger_totals, windows
from runtime.operations.accounting.budgets import ALL_TEAMS, read_state

if TYPE_CHECKING:
    from fallow.settings import Settings
    from warehouse.lake import Warehouse

FORECAST_BY = ("cluster", "team")
"""What has a month of its own; of finer names too few hours are alike."""
FORECAST_COLUMNS = ("usd", "run_rate", "forecast", "low", "high", "budget", "missing_hours")
SHARES = ("busy_pct", "effective_pct")
"""Columns that have no sum."""


def print_chargeback(
    run: CommandRun,
    *,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
    team: Annotated[str | None, typer.Option(help=TEAM)] = None,
) -> None:
    """Show what each team pays: GPUs, node part, share of the rest.

    usd_gpu + usd_node + shared_usd = total_usd; the lines sum to the bill.
    """
    with run.warehouse(run.settings()) as warehouse:
        span = _find_hours(run, warehouse, windows.end_window(window, until, run.now()))
        filters = Filters(cluster=run.options.get("cluster"))
        extent.require_names(warehouse, span.window, team=team)
        rows = chargeback.read_statement(warehouse, span.window, filters).to_pylist()
    rows = [row for row in rows if team in (None, row["team"])]
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
    run: CommandRun,
    *,
    team: Annotated[str | None, typer.Option(help=TEAM)] = None,
    by: Annotated[str | None, typer.Option(help="a row of each: team, or cluster")] = None,
) -> None:
    """Show what the month has cost, and will have cost at its end."""
    if by is not None and by not in FORECAST_BY:
        why = "only a team or a cluster pays from month to month"
        raise UsageError(f"no forecast --by {by!r}: {why}", hint="fallow forecast --by team")
    settings = run.settings()
    chosen = Filters(cluster=run.options.get("cluster"), team=team)
    with run.warehouse(settings) as warehouse:
        until = _find_hours(run, warehouse, None).window.end
        so_far = Window(get_month_start(until - timedelta(microseconds=1)), until)
        if anomalies.find_budget(settings.finance, chosen) is None:
            # A team with a budget is known, whether it holds a GPU or not.
            extent.require_names(warehouse, so_far, team=team)
        parts = [chosen]
        if by is not None:
            names = extent.read_names(warehouse, so_far, chosen).get(by, ())
            parts = [msgspec.structs.replace(chosen, **{by: name}) for name in names]
        months = [_read_month(warehouse, settings, until, part) for part in parts]
    rows = [_build_forecast(*item, by) for item in zip(parts, months, strict=True)]
    path = {} if by else {"path": months[0].path}
    run.data(rows, noun="forecasts", until=until, **path)
    partial = [month for month in months if month.is_partial]
    if partial:
        lost = f"{partial[0].missing_hours:,} hours of the month lack data of a cluster"
        usd = money.sum_known([month.usd for month in months])
        run.say(f"at least {format_money(usd)} so far: {lost}")
    for line in dict.fromkeys(month.doubt or month.method for month in months):
        run.say(line)


def _read_month(
    warehouse: "Warehouse", settings: "Settings", until: datetime, filters: Filters
) -> spend_figures.Month:
    budget = anomalies.find_budget(settings.finance, filters)
    return spend_figures.read_month(warehouse, until, filters, budget)


def _build_forecast(filters: Filters, month: spend_figures.Month, by: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"month": f"{month.start:%Y-%m}"}
    row |= {"cluster": filters.cluster} if by == "cluster" else {}
    row["team"] = ALL_TEAMS if filters.team is None else filters.team
    row |= {name: getattr(month, name) for name in FORECAST_COLUMNS}
    row["at_least"] = month.is_partial
    return row | ({"low": month.forecast, "high": None} if month.is_partial else {})


def _find_hours(
    run: CommandRun, warehouse: "Warehouse", window: str | None
) -> windows.CoveredHours:
    return windows.find_ledger_hours(warehouse, window, run.now(), run.options.get("cluster"))
