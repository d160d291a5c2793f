"""Define the request of a report, and the parts that are equal for every audience."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures import analysis_runs, data_health, extent, spend
from dashboards.figures.query import Filters
from dashboards.reports import amounts
from dashboards.reports.document import ReportColumn, ReportTable
from dashboards.text import format_share
from fallow import money
from fallow.errors import EmptyWarehouseError
from fallow.protocols import Views
from fallow.settings import Settings
from fallow.window import Window
from warehouse import coverage
from warehouse.coverage import WindowCoverage
from warehouse.ledger import align_window
from warehouse.spend import write_estimate_notes

MOST_ROWS = 25
"""Rows of a table in a report for people; the CSV has all rows."""


class ReportRequest(msgspec.Struct, frozen=True):
    """A window of a warehouse, the owner, and the time of the request."""

    views: Views
    window: Window
    filters: Filters
    settings: Settings
    now: datetime
    coverage: WindowCoverage
    """How much of the requested window has data."""
    whole: bool = False
    """Whether tables keep every row: for machine-readable files."""


def check_window(views: Views, window: Window) -> Window:
    """Return the window as it is accounted: whole hours, without hours that have no data.

    Raises:
        EmptyWarehouseError: there are no data, or no hour is accounted yet.
        UsageError: there are none in the window.
    """
    data_extent = extent.read_extent(views)
    if data_extent is None:
        raise EmptyWarehouseError(
            "the warehouse holds no telemetry yet", hint="bring some in: fallow collect --once"
        )
    if data_extent.accounted is None:
        raise EmptyWarehouseError(
            "no hour is accounted yet", hint="write the ledger: fallow collect --once"
        )
    accounted = Window(data_extent.samples.start, data_extent.accounted)
    coverage.require_data(window, accounted)
    start, end = max(window.start, accounted.start), min(window.end, accounted.end)
    return align_window(Window(start, end))


def list_warnings(request: ReportRequest, paid: spend.SpendTotals) -> tuple[str, ...]:
    """Return what makes the report's numbers incomplete."""
    failed = data_health.read_audits(request.views, request.window)
    sentences = [failed] if failed else []
    sentences += [analysis_runs.read_fault(run) for run in analysis_runs.read_faults(request.views)]
    down = [
        collector
        for collector in data_health.read_collector_health(
            request.views, request.window.end, request.filters.cluster
        )
        if collector.down
    ]
    sentences += [
        f"Collector {amounts.name(collector.collector)} of {amounts.name(collector.cluster)} "
        "answered no scrape "
        "in the last hour of this window."
        for collector in down[:3]
    ]
    if len(down) > 3:  # noqa: PLR2004
        sentences.append(f"{len(down) - 3} more collectors did not answer either.")
    if request.coverage.hours_with_data < request.coverage.hours:
        sentences.append(f"{request.coverage.spoken}: the figures are of those hours alone.")
    late = request.coverage.late(request.now, amounts.name)
    ages = coverage.read_ages(request.views, request.filters.cluster)
    late += coverage.name_stale(
        ages, request.now, request.settings.service.collect_every, amounts.name
    )
    sentences += [f"{line[0].upper()}{line[1:]}." for line in late]
    if paid.unpriced_gpu_hours:
        sentences.append(
            f"{amounts.format_hours(paid.unpriced_gpu_hours)} "
            f"({format_share(paid.unpriced_gpu_hours, paid.gpu_hours)}) have no price "
            "and are in "
            "no figure of dollars."
        )
    sentences += write_estimate_notes(paid.estimated_gpu_hours, paid.estimated_usd)
    if paid.unknown_gpu_hours > paid.gpu_hours / 20:
        sentences.append(
            f"{format_share(paid.unknown_gpu_hours, paid.gpu_hours)} of the GPU-hours "
            "have no "
            "telemetry: they are neither waste nor work."
        )
    return tuple(sentences)


def add_cluster(columns: Sequence[ReportColumn], clusters: int) -> tuple[ReportColumn, ...]:
    """Return the columns with the cluster after the workload, where rows are of several."""
    at = [c.name for c in columns].index("workload") + 1
    added = [ReportColumn("cluster", "cluster")] if clusters > 1 else []
    return (*columns[:at], *added, *columns[at:])


def build_table(
    request: ReportRequest,
    rows: pa.Table | Sequence[Mapping[str, Any]],
    columns: Sequence[ReportColumn],
    *,
    total: Sequence[str] = (),
    bills: Mapping[str, Decimal | None] = MappingProxyType({}),
    most: int = MOST_ROWS,
) -> ReportTable:
    """Return rows as a table that people can read: the first ones, and how many are left out.

    `total`: columns to sum, over all rows; dollars in cents that sum to their rounded sum, or to
    those of `bills`.
    """
    records = rows.to_pylist() if isinstance(rows, pa.Table) else [*rows]
    summed: dict[str, Any] = {}
    for name in total:
        amounts_known = [row[name] for row in records if row[name] is not None]
        summed[name] = sum(amounts_known[1:], amounts_known[0]) if amounts_known else None
        if any(column.name == name and column.kind == "usd" for column in columns):
            exact = [row[name] for row in records]
            summed[name] = bills[name] if name in bills else money.sum_money(exact)
            parts = money.apportion(exact, summed[name])
            records = [{**row, name: part} for row, part in zip(records, parts, strict=True)]
    rows_shown = records if request.whole else records[:most]
    if summed:
        summed = {columns[0].name: "all", **summed}
    return ReportTable(tuple(columns), rows_shown, len(records) - len(rows_shown), summed or None)


def format_window(window: Window) -> str:
    """Return a window as text: 22 Oct to 21 Nov 2026, the last day included."""
    last = window.end - timedelta(microseconds=1)
    if window.start.hour or window.end.hour:
        return f"{window.start:%d %b %Y %H:%M} to {window.end:%d %b %Y %H:%M} UTC"
    return f"{window.start:%d %b} to {last:%d %b %Y}"
