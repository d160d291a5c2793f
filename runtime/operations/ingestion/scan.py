"""Run `fallow scan`: a Prometheus's history through a temporary warehouse to one report."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from collectors.prometheus.collector import PrometheusCollector
from fallow.errors import UsageError
from fallow.settings import Settings
from fallow.settings.collectors import PrometheusSettings
from fallow.settings.service import WarehouseSettings
from fallow.system.process_folders import open_temporary_folder
from fallow.window import Window, format_duration
from runtime.operations.accounting import pipeline, reconcile, windows
from runtime.operations.accounting.prices import read_configured_rates
from runtime.operations.analysis import analyzer_runs
from runtime.operations.analysis.story import build_story
from runtime.operations.ingestion import collection
from runtime.operations.ingestion.imports import TelemetryExtent
from runtime.rendering.finding_tables import Progress
from warehouse.lake import Warehouse

if TYPE_CHECKING:
    from dashboards.waste_report import Story

QUESTION = timedelta(hours=12)
"""A server that streams its chunks copies those within a question, and decodes the first and the
last one: longer questions cost both ends less."""
MOST_SAMPLES = 8_000_000
"""Values of one chunk of time in memory."""
RETRIES = 8
"""Tries of a query again, over 90 s: nothing is stored that a scan could begin from again."""
IDLE = "idle"
"""The analyzer whose findings are reported by workload."""


def scan_prometheus(
    settings: Settings, *, since: str, now: datetime, progress: Progress
) -> "Story":
    """Read a Prometheus since a time or over a window; return its story; nothing is stored.

    Raises:
        UsageError: no URL, or `since` is not a time.
        SourceError: it responded, but without GPU telemetry or without anything usable.
        TemporaryError: it is not reachable.
    """
    if not settings.prometheus.url:
        raise UsageError("which Prometheus?", hint="fallow scan --prometheus http://host:9090")
    window = windows.parse_since(since, now)
    source = settings.prometheus
    patient = {"retries": max(source.retries, RETRIES)}
    is_default = source.chunk == PrometheusSettings().chunk  # a site's own length is kept
    source = source.model_copy(update={"chunk": QUESTION, **patient} if is_default else patient)
    collector = collection.build_prometheus_collector(
        settings.model_copy(update={"prometheus": source}),
        clock=lambda: now,
        max_samples=MOST_SAMPLES,
        on_grid=True,
    )
    with open_temporary_folder("scan") as folder:
        own = WarehouseSettings(
            threads=settings.warehouse.threads, memory_limit=settings.warehouse.memory_limit
        )
        scratch = settings.model_copy(update={"home": folder, "warehouse": own})
        return _run_scan(scratch, collector, window, progress)


def _run_scan(
    settings: Settings, collector: PrometheusCollector, window: Window, progress: Progress
) -> "Story":
    with Warehouse.open(settings, write=True, clock=lambda: window.end) as warehouse:
        extent = TelemetryExtent()
        collection.drain(warehouse, collector, window, progress, extent.observe, ahead=True)
        progress("writing the ledger", 0.85)
        pipeline.price(warehouse, read_configured_rates(settings, window.end))
        data_extent = extent.window
        if data_extent is None:
            raise collection.build_empty_error(settings, window)
        data_window = Window(max(window.start, data_extent.start), min(window.end, data_extent.end))
        failures = pipeline.account(warehouse, data_window)[1]
        progress("finding waste", 0.9)
        analysis = analyzer_runs.run_analyzers(
            warehouse,
            data_window,
            analyzer_runs.load_analyzers(settings),
            strict=False,
            summarise=False,
            at_once=analyzer_runs.PARALLEL_ANALYZERS,
        )
        analyzer_runs.store_findings(warehouse, analysis, analysis.runs)
        return build_story(
            warehouse,
            data_window,
            cluster=settings.cluster,
            findings=[f for f in analysis.findings if f.analyzer == IDLE],
            others=[row for row in analysis.ranked if row.finding.analyzer != IDLE],
            failures=failures,
            savings=reconcile.describe_savings(warehouse, data_window, settings.cluster),
            notes=[
                *analysis.notes,
                *_describe_thinning(collector, settings.prometheus.step),
                f"Read from {settings.prometheus.url}; nothing was installed or kept.",
            ],
        )


def _describe_thinning(collector: PrometheusCollector, step: timedelta) -> list[str]:
    if not collector.thinned_values:
        return []
    values = f"{collector.thinned_values / 1e6:,.0f} million device values"
    read = format_duration(step.total_seconds())
    return [f"Of {values} one of every {read} was read: short bursts are missed."]
