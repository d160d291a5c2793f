"""Read the figures of the table `dashboards/figures.csv` by their functions."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from importlib import import_module
from inspect import signature
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures import chargeback, inbox, queues, savings, spend, waste, waterfall
from dashboards.figures.query import Filters
from dashboards.reports import report_figures
from dashboards.reports.report_request import ReportRequest
from fallow.models import STATES
from fallow.resources import read_table
from fallow.rows import Row
from fallow.settings import Settings
from fallow.window import Window, get_month_start
from runtime.operations.accounting import ledger_totals
from runtime.operations.accounting import savings as operations_savings
from runtime.operations.analysis import incidents, pending
from warehouse import coverage
from warehouse.lake import Warehouse


class Figure(Row, frozen=True):
    """One row of the table."""

    label: str
    meaning: str
    unit: str
    function: str
    value: str
    command: str
    metric: str
    source: str


FIGURES = {
    row["label"]: msgspec.convert(row, Figure) for row in read_table("dashboards", "figures.csv")
}
READ = {label: figure for label, figure in FIGURES.items() if figure.function}
"""Those with a function of a window and filters."""


WINDOWS = ("1h", "7d", "30d", "month")
TEAMS = ("", "vision")


def find_function(figure: Figure) -> Callable[..., Any]:
    """Return the function that the table names."""
    module, _, name = figure.function.rpartition(".")
    inside = module if module.startswith("warehouse.") else f"dashboards.figures.{module}"
    function: Callable[..., Any] = getattr(import_module(inside), name)
    return function


def read_figures(views: Warehouse, window: Window, filters: Filters) -> dict[str, Any]:
    """Return every figure of the table by its label."""
    offered = {
        "views": views, "window": window, "filters": filters, "until": window.end, "behind": {},
        "cluster": filters.cluster, "promised": (),
    }  # fmt: skip
    results: dict[Any, Any] = {}
    values = {}
    for label, figure in READ.items():
        function = find_function(figure)
        if function not in results:
            wanted = [name for name in signature(function).parameters if name in offered]
            results[function] = function(**{name: offered[name] for name in wanted})
        values[label] = pick(results[function], figure.value)
    return values


def pick(result: Any, path: str) -> Any:
    """Return the value that a path names: a field, the sum of a column, the rows of a state."""
    for name in path.split(".") if path else ():
        rows = result.to_pylist() if isinstance(result, pa.Table) else result
        if not isinstance(rows, list | tuple):
            result = None if rows is None else getattr(rows, name)
        elif name in STATES:
            result = [row for row in rows if row.state == name]
        else:
            result = add(row[name] if isinstance(row, dict) else getattr(row, name) for row in rows)
    return result if path else len(result)


def add(values: Iterable[Any]) -> Any:
    """Return the sum of what is known; 0 where there is nothing, None where nothing is known."""
    listed = [*values]
    known = [value for value in listed if value is not None]
    return sum(known[1:], known[0]) if known else None if listed else 0


def same(one: Any, other: Any) -> bool:
    """Return whether two answers are one: dollars in cents, other numbers to a millionth."""
    if one is None or other is None:
        return one is other
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return round(Decimal(one), 2) == round(Decimal(str(other)), 2)
    return bool(abs(one - other) <= 1e-5 + 1e-9 * abs(one))


def find_window(settings: Settings, views: Warehouse, text: str) -> Window:
    """Return a window until the newest hour, as pages and commands choose it."""
    newest = coverage.find_newest(views, settings.ledger.max_lag, None)
    assert newest is not None
    return coverage.parse_window(text, newest.end, newest.end)


Answer = tuple[str, str, Any]
"""A figure's label, a mouth, and what it says."""


def list_contradictions(
    settings: Settings, views: Warehouse, window: Window, team: str = ""
) -> list[str]:
    """Return where two functions of the product give two answers; without `team` of all teams."""
    filters = Filters(team=team or None)
    figures = read_figures(views, window, filters)
    answers = [
        *_sum_parts(views, window, filters, figures),
        *_read_spend(views, window, team),
    ]
    answers += _read_bills(views, window, team)
    if not team:
        answers += _read_reports(settings, views, window)
        answers += _read_saved_and_incidents(settings, views, window)
    return [
        f"{label}: {figures[label]} by its function, {answer} by {mouth}"
        for label, mouth, answer in answers
        if not same(figures[label], answer)
    ]


def _sum_parts(
    views: Warehouse, window: Window, filters: Filters, figures: dict[str, Any]
) -> Iterator[Answer]:
    """Yield sums of rows that are parts of a figure."""
    clusters = spend.read_statement(views, window, filters, "cluster")
    yield "Paid", "bills of clusters", pick(clusters, "usd")
    alone = (
        spend.read_totals(views, window, msgspec.structs.replace(filters, cluster=name))
        for name in clusters["name"].to_pylist()
    )
    if not filters.team:
        yield "Paid", "clusters alone", add(totals.usd for totals in alone)
    for key in ("team", "workload", "state"):
        rows = spend.read_by(views, window, filters, key)
        yield "Paid GPU-hours", f"spend by {key}", pick(rows, "gpu_hours")
    states = {
        row["name"]: row for row in spend.read_by(views, window, filters, "state").to_pylist()
    }
    for label, state in (("Work lost", "lost"), ("Not available", "unavailable")):
        yield label, "spend by state", states[state]["gpu_hours"] if state in states else 0
    for key in ("team", "workload"):
        rows = waste.read_by_owner(views, window, filters, key)
        yield "Wasted GPU-hours", f"waste by {key}", pick(rows, "waste_gpu_hours")
    used = [figures[f"{name} GPU-hours"] for name in ("Used", "Wasted", "Unknown")]
    yield "Paid GPU-hours", "used + wasted + unknown", add(used)
    cases = savings.read_cases(views, window, filters).to_pylist()
    stand = add(row["usd"] for row in cases if row["result"] == "done")
    yield "Acted", "cases whose action stands", stand
    parts = [figures["Could be saved"], None if stand is None else round(Decimal(stand), 2)]
    yield "Identified", "could be saved + acted", add(part for part in parts if part is not None)
    kinds = savings.read_verified(views, window, filters)
    yield "Verified saved", "kinds of dollars", pick(kinds, "usd") if kinds.num_rows else None
    if figures["Could be saved, GPU-hours"] is None:
        return
    made = waterfall.compute_waterfall(views, window, filters)
    yield "Could be saved, GPU-hours", "the waterfall", pick(made.savings, "gpu_hours")
    for key in savings.OWNER_KEYS:
        rows = savings.read_by_owner(views, window, filters, [key])
        yield "Could be saved, GPU-hours", f"savings by {key}", pick(rows, "gpu_hours")
    listed = inbox.read_totals(views, window, filters)
    yield "Findings that save", "the page Findings", listed.saving_findings
    yield "At most", "the page Findings", listed.at_most_usd
    blocks = inbox.choose_steps(inbox.list_inbox(views, window, filters).to_pylist(), inbox.MOST)
    yield "Could be saved, GPU-hours", "blocks of actions", pick(blocks, "gpu_hours")


def _read_spend(views: Warehouse, window: Window, team: str) -> Iterator[Answer]:
    """Yield what `fallow spend` says, and MCP and `fallow.connect` with it; of a team its row."""
    table = ledger_totals.read_total_spend(
        views, f"{window.start.isoformat()}/{window.end.isoformat()}", now=window.end,
        cluster=None, by=["team"], view="loaded", share_unallocated=False,
    )  # fmt: skip
    document = {"total": table.total, "reconciliation": table.reconciliation or {}}
    rows = {row["team"]: row for row in table.rows}
    for label, figure in READ.items():
        command, _, path = figure.command.partition(" ")
        place, _, name = path.partition(".")
        if command != "spend" or place not in document:
            continue
        if not team:
            yield label, "fallow spend", document[place].get(name)
        elif place == "total" and team in rows:
            yield label, "fallow spend --by team", rows[team][name]


def _read_bills(views: Warehouse, window: Window, team: str) -> Iterator[Answer]:
    """Yield what chargeback, forecast and budget say of a team, and of all."""
    rows = chargeback.read_statement(views, window, Filters()).to_pylist()
    mine = [row for row in rows if team in ("", row["team"])]
    if mine:
        yield "Paid", "chargeback", add(row["usd_loaded"] for row in mine)
        yield "Idle and allocated", "chargeback", add(row["idle_usd"] for row in mine)
    month = Window(get_month_start(window.end - timedelta(microseconds=1)), window.end)
    if window == month:
        yield (
            "Paid",
            "forecast",
            spend.read_month(views, window.end, Filters(team=team or None)).usd,
        )
        if team:
            budgets = spend.read_team_months(views, window.end, {team: Decimal(1)})
            yield "Paid", "budget", budgets[team].usd


def _read_reports(settings: Settings, views: Warehouse, window: Window) -> Iterator[Answer]:
    """Yield what reports of the fleet read."""
    covered = coverage.measure_coverage(views, window, {}, None)
    request = ReportRequest(views, window, Filters(), settings, window.end, covered)
    made = report_figures.read_report_figures(request)
    yield "Workloads that save", "reports", len(made.advice)
    yield "Could be saved", "reports", made.stages.saveable_usd
    before = made.before.totals
    yield "Before", "the period before of reports", None if before is None else before.usd


def _read_saved_and_incidents(
    settings: Settings, views: Warehouse, window: Window
) -> Iterator[Answer]:
    """Yield what `fallow saved` and `fallow incidents` say, which know no team."""
    _, total = operations_savings.sum_savings(
        views, settings, window=window, by="policy", now=window.end
    )
    for label in ("Verified saved", "Verified actions", "Reversals"):
        name = FIGURES[label].command.partition(".")[2]
        is_measured = total["actions"] or label != "Verified saved"
        yield label, "fallow saved", total[name] if is_measured else None
    yield "Incidents", "fallow incidents", len(incidents.list_incidents(views, window))
    waiting = [pending.build_queue_row(one) for one in queues.read_queue(views, window).values()]
    yield "Waited for now", "fallow queue", pick(waiting, "gpus")
    yield "Cost of waiting", "fallow queue", pick(waiting, "waiting_cost")
