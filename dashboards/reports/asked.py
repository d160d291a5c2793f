"""What a report is asked, and what every audience's report says alike."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures import analyzed, extent, spend, standing, waste, waterfall
from dashboards.figures.asking import Filters
from dashboards.reports import amounts
from dashboards.reports.document import Column, Table
from fallow import money
from fallow.errors import UsageError
from fallow.seams import Views
from fallow.settings import Settings
from fallow.window import Window
from warehouse import coverage
from warehouse.coverage import Coverage
from warehouse.ledger import aligned

MOST_ROWS = 25
"""Rows of a table in a report that people read; the CSV has them all."""


class Asked(msgspec.Struct, frozen=True):
    """A window of a warehouse, whose, and when it is asked."""

    views: Views
    window: Window
    filters: Filters
    settings: Settings
    now: datetime
    coverage: Coverage
    """How much of the requested window has data."""
    whole: bool = False
    """Whether tables keep every row: for files that machines read."""


class Wasted(msgspec.Struct, frozen=True):
    """What was paid and grew nothing, by state, of a waterfall."""

    gpu_hours: float
    usd: Decimal | None
    steps: tuple[waterfall.Step, ...]


def checked(views: Views, window: Window, now: datetime) -> Window:
    """Return the window as it is accounted: whole hours, no hour that nobody looked at.

    Raises:
        UsageError: there are no data, none in the window, or it lies in the future.
    """
    if window.start >= now:
        raise UsageError(
            f"the window begins {window.start:%Y-%m-%d %H:%M} UTC, in the future",
            hint="--window 30d is the last thirty days; START/END are moments",
        )
    held = extent.extent(views)
    if held is None:
        raise UsageError(
            "the warehouse holds no telemetry",
            hint="fallow import, fallow collect --once or fallow demo bring some in",
        )
    if held.accounted is None:
        raise UsageError(
            "no hour is accounted yet", hint="fallow collect --once or fallow up do the books"
        )
    end = min(window.end, held.accounted)
    if end <= max(window.start, held.looks.start):
        raise UsageError(
            f"nothing is accounted from {window.start:%Y-%m-%d %H:%M} to "
            f"{window.end:%Y-%m-%d %H:%M} UTC",
            hint=(
                f"the data are {held.looks.start:%Y-%m-%dT%H:%MZ}/{held.accounted:%Y-%m-%dT%H:%MZ}"
            ),
        )
    return aligned(Window(max(window.start, held.looks.start), end))


def wasted(made: waterfall.Waterfall) -> Wasted:
    """Return the states in which nothing grew, the dearest first; unknown is never one."""
    steps = [step for step in made.steps if step.state in waste.STATES]
    known = [step.usd for step in steps if step.usd is not None]
    return Wasted(
        sum(step.gpu_hours for step in steps),
        None if made.usd is None else sum(known, Decimal()),
        tuple(sorted(steps, key=lambda s: (-(s.usd or 0), -s.gpu_hours))),
    )


def warnings(asked: Asked, paid: spend.Totals) -> tuple[str, ...]:
    """Say what makes the report's numbers less than whole."""
    failed = standing.audits(asked.views, asked.window)
    said = [failed] if failed else []
    said += [analyzed.fault(run) for run in analyzed.faults(asked.views)]
    down = [one for one in standing.looking(asked.views, asked.window.end) if one.down]
    said += [
        f"Collector {amounts.name(one.collector)} of {amounts.name(one.cluster)} answered no look "
        "in the last hour of this window."
        for one in down[:3]
    ]
    if len(down) > 3:  # noqa: PLR2004
        said.append(f"{len(down) - 3} more collectors did not answer either.")
    if asked.coverage.hours_with_data < asked.coverage.hours:
        said.append(f"{asked.coverage.spoken}: the figures are of those hours alone.")
    late = asked.coverage.late(asked.now, amounts.name)
    ages = coverage.ages(asked.views, asked.filters.cluster)
    late += coverage.stale(ages, asked.now, asked.settings.service.collect_every, amounts.name)
    said += [f"{line[0].upper()}{line[1:]}." for line in late]
    if paid.unpriced_gpu_hours:
        said.append(
            f"{amounts.hours(paid.unpriced_gpu_hours)} "
            f"({amounts.share(paid.unpriced_gpu_hours, paid.gpu_hours)}) have no price and are in "
            "no figure of dollars."
        )
    if paid.unknown_gpu_hours > paid.gpu_hours / 20:
        said.append(
            f"{amounts.share(paid.unknown_gpu_hours, paid.gpu_hours)} of the GPU-hours have no "
            "telemetry: they are neither waste nor work."
        )
    return tuple(said)


def table(
    asked: Asked,
    rows: pa.Table | Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    total: Sequence[str] = (),
    most: int = MOST_ROWS,
) -> Table:
    """Return rows as a table that people can read: the first ones, and how many are left out.

    `total`: columns to sum, over all rows; dollars in cents that sum to their rounded sum.
    """
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else [*rows]
    summed: dict[str, Any] = {}
    for name in total:
        known = [row[name] for row in listed if row[name] is not None]
        summed[name] = sum(known[1:], known[0]) if known else None
        if any(column.name == name and column.kind == "usd" for column in columns):
            summed[name] = money.total([row[name] for row in listed])
            parts = money.apportion([row[name] for row in listed])
            listed = [{**row, name: part} for row, part in zip(listed, parts, strict=True)]
    shown = listed if asked.whole else listed[:most]
    if summed:
        summed = {columns[0].name: "all", **summed}
    return Table(tuple(columns), shown, len(listed) - len(shown), summed or None)


def spoken(window: Window) -> str:
    """Write a window as people say it: 22 Oct to 21 Nov 2026, the last day included."""
    last = window.end - timedelta(microseconds=1)
    if window.start.hour or window.end.hour:
        return f"{window.start:%d %b %Y %H:%M} to {window.end:%d %b %Y %H:%M} UTC"
    return f"{window.start:%d %b} to {last:%d %b %Y}"
