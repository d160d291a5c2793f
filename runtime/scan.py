"""`fallow scan`: a Prometheus's past through a temporary warehouse to one report. Read-only."""

import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.errors import SourceError, UsageError
from fallow.settings import Settings, WarehouseSettings
from fallow.window import Window, parse_moment
from runtime import analyzing, collecting, pipeline, windows
from runtime.importing import Extent, price_rows
from runtime.showing import Progress
from runtime.telling import tell

if TYPE_CHECKING:
    from collectors.prometheus.collector import PrometheusCollector
    from dashboards.story import Story

IDLE = "idle"
"""The analyzer whose findings are told by workload."""


def look(settings: Settings, *, since: str, now: datetime, progress: Progress) -> "Story":
    """Read a Prometheus from `since` to now and return its story; nothing is kept.

    Raises:
        UsageError: no URL, or `since` is no moment.
        SourceError: it answered, but with no GPU telemetry or nothing we can use.
        TemporaryError: it cannot be reached.
    """
    if not settings.prometheus.url:
        raise UsageError("which Prometheus?", hint="fallow scan --prometheus http://host:9090")
    window = Window(parse_moment(since, now=now), now)
    collector = collecting.prometheus(settings, clock=lambda: now)
    with tempfile.TemporaryDirectory(prefix="fallow-scan-") as folder:
        own = WarehouseSettings(
            threads=settings.warehouse.threads, memory_limit=settings.warehouse.memory_limit
        )
        scratch = settings.model_copy(update={"home": Path(folder), "warehouse": own})
        return _through(scratch, collector, window, progress)


def _through(
    settings: Settings, collector: "PrometheusCollector", window: Window, progress: Progress
) -> "Story":
    from warehouse.lake import Warehouse  # noqa: PLC0415  (the engine loads in 0.3 s)

    with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
        extent = Extent()
        collecting.drain(warehouse, collector, window, progress, extent.passing)
        progress("doing the books", 0.85)
        pipeline.price(warehouse, price_rows(settings, window.end))
        held = extent.window
        if held is None:
            raise SourceError(
                f"{settings.prometheus.url} has no GPU telemetry in {windows.spoken(window)}",
                hint=f"fallow doctor --prometheus {settings.prometheus.url} says what it has",
            )
        seen = Window(max(window.start, held.start), min(window.end, held.end))
        failures = pipeline.account(warehouse, seen)[1]
        progress("looking for waste", 0.9)
        made = analyzing.examine(
            warehouse,
            seen,
            analyzing.chosen(settings),
            strict=False,
            summarise=False,
            at_once=analyzing.AT_ONCE,
        )
        return tell(
            warehouse,
            seen,
            cluster=settings.cluster,
            findings=[f for f in made.findings if f.analyzer == IDLE],
            others=[row for row in made.ranked if row.finding.analyzer != IDLE],
            failures=failures,
            notes=[
                *made.notes,
                f"Read from {settings.prometheus.url}; nothing was installed or kept.",
            ],
        )
