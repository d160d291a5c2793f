"""Collect from live sources: which are configured, one pass over them, a backfill, a check."""

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from analyzers.stalled.gangs import METRIC
from collectors.doctor import diagnose
from collectors.exporters import ExporterCollector
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.collector import MAX_SAMPLES, PrometheusCollector
from fallow import plugin_runs, plugins
from fallow.clean_texts import check_batches
from fallow.errors import FallowError, SourceError, UsageError
from fallow.plugin_runs import PluginRun
from fallow.protections import read_stored_pod
from fallow.protocols import Collector, Views
from fallow.settings import Settings
from fallow.settings.groups import SettingsGroup
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates, read_market_rates
from runtime.operations.accounting.windows import format_window
from runtime.operations.ingestion.plugin_collectors import PluginCollector
from runtime.rendering.finding_tables import Progress
from warehouse.ingest import check_times

if TYPE_CHECKING:
    from collectors.doctor import CheckRow
    from warehouse.ingest import IngestResult
    from warehouse.lake import Warehouse

BatchObserver = Callable[[Iterable[Batch]], Iterator[Batch]]
"""Receives the batches on their way to the warehouse."""
NAMES_WAIT_S = 10.0
"""How long a scrape waits for the names that pods annotate; it takes the last ones then."""
LOOKBACK = timedelta(minutes=5)
"""Default history that one pass of `collect --once` reads from sources with history."""
CATCH_UP = timedelta(days=1)
"""A late pass reads missed history from a Prometheus up to this length; import reads more."""
MOST_ROWS = 400_000
"""Rows of a long chunk that wait to be stored: 0.2 GB of memory."""


def _get_utc_now() -> datetime:
    return datetime.now(UTC)


class SourceSettings(msgspec.Struct, frozen=True):
    """Where a collector's settings are, and which setting enables it."""

    section: str
    wanted_by: str
    or_by: str = ""
    """Another setting that enables it too."""
    is_here: bool = False
    """It reads this machine: if it is named, it needs no setting."""


SOURCES = {
    "exporters": SourceSettings("exporters", "targets", or_by="trainers"),
    "jupyter": SourceSettings("jupyter", "servers"),
    "kubernetes": SourceSettings("kubernetes", "enabled"),
    "nvml": SourceSettings("nvml", "enabled", is_here=True),
    "prometheus": SourceSettings("prometheus", "url"),
}


def load_collectors(
    settings: Settings,
    names: Sequence[str] | None = None,
    cursors: Mapping[str, datetime] | None = None,
    clock: Callable[[], datetime] = _get_utc_now,
    views: Views | None = None,
) -> dict[str, Collector]:
    """Return the collectors that the settings enable, or the named ones, by name.

    `cursors` are the warehouse's cursors: history that need not be read again. `views` have the
    metrics that pods name as their progress.

    Raises:
        UsageError: a named collector is not installed or not configured.
    """
    wanted = list(names) if names else _list_wanted(settings)
    for name in names or ():
        source = SOURCES.get(name)
        if source is not None and not source.is_here and not _is_wanted(settings, source):
            raise UsageError(
                f"collector {name!r} is not configured",
                hint=f"set {source.section}.{source.wanted_by} in fallow.yaml",
            )
    collectors = {
        name: build_prometheus_collector(settings, cursors, clock)
        if name == "prometheus"
        else _load_collector(name, settings)
        for name in wanted
        if name != "exporters"
    }
    if "exporters" in wanted:
        collectors["exporters"] = _build_exporter_collector(settings, views)
    return {name: collectors[name] for name in wanted}


def _build_exporter_collector(settings: Settings, views: Views | None) -> Collector:
    def read_annotated(views: Views) -> set[str]:
        text = "SELECT DISTINCT annotations FROM pod WHERE contains(annotations, $key)"
        rows = views.query(text, {"key": METRIC}).to_pylist()
        annotations = (read_stored_pod(json.loads(row["annotations"])) for row in rows)
        return {notes[METRIC] for notes in annotations if METRIC in notes}

    if views is None:
        return ExporterCollector(settings.exporters, settings.cluster)
    annotated = LastNames(lambda: read_annotated(views))
    return ExporterCollector(settings.exporters, settings.cluster, annotated=annotated)


class LastNames:
    """Names that the warehouse has; the last ones while it is away or hangs.

    A scrape does not wait for a catalog: its rows can be stored later.
    """

    def __init__(self, read: Callable[[], set[str]], wait_s: float = NAMES_WAIT_S) -> None:
        self._read, self._wait_s = read, wait_s
        self._names: set[str] = set()
        self._reader: threading.Thread | None = None

    def __call__(self) -> set[str]:
        """Return the names; the first call after a hang began waits `wait_s` seconds."""
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=self._refresh, daemon=True)
            self._reader.start()
            self._reader.join(self._wait_s)
        return self._names

    def _refresh(self) -> None:
        with suppress(FallowError):
            self._names = self._read()


def build_prometheus_collector(
    settings: Settings,
    cursors: Mapping[str, datetime] | None = None,
    clock: Callable[[], datetime] = _get_utc_now,
    max_samples: int = MAX_SAMPLES,
    *,
    on_grid: bool = False,
) -> "PrometheusCollector":
    """Return the Prometheus collector of these settings; `on_grid` as in its class."""
    return PrometheusCollector(
        settings.prometheus,
        settings.cluster,
        clock,
        cursors=cursors,
        team_labels=settings.kubernetes.team_labels,
        max_samples=max_samples,
        on_grid=on_grid,
    )


def read_cursors(warehouse: "Warehouse") -> dict[str, datetime]:
    """Return the warehouse's cursors: until when each source's history is stored."""
    rows = warehouse.query("SELECT source, done_until FROM cursor").to_pylist()
    return {row["source"]: row["done_until"].replace(tzinfo=UTC) for row in rows}


def drain(
    warehouse: "Warehouse",
    collector: "PrometheusCollector",
    window: Window,
    progress: Progress,
    observe: BatchObserver = iter,
    *,
    read_before: Iterable[Batch] = (),
    ingest: "Callable[[list[Batch]], IngestResult] | None" = None,
    ahead: bool = False,
) -> tuple[int, int]:
    """Store a Prometheus's window chunk by chunk; a cursor is stored after the rows that it covers.

    `read_before` are rows with the collector's cursors that workers have read: they come first.
    `ingest` stores rows before it returns; by default in this thread. `ahead`: another thread reads
    the next rows meanwhile, so that the collector's own cursors are ahead of what is stored.

    Returns:
        Rows added, and rows that existed already.

    Raises:
        FallowError: the error that stopped it; stored rows stay, and the next run continues.
    """
    batches: list[Batch] = []
    added = duplicates = 0

    def store() -> None:
        nonlocal added, duplicates
        rows = check_times(warehouse, batches, window.start)
        result = ingest(rows) if ingest else pipeline.ingest(warehouse, rows)
        added, duplicates = added + result.added, duplicates + result.duplicates
        batches.clear()

    batches_read = check_batches(
        itertools.chain(read_before, collector.collect(window)),
        cluster=warehouse.settings.cluster,
        source="prometheus",
        at=window.end,
    )
    for batch in observe(_read_ahead(batches_read) if ahead else batches_read):
        batches.append(batch)
        if sum(b.rows.num_rows for b in batches) > MOST_ROWS:
            store()
        if batch.table == "cursor" and batch.rows.num_rows:
            store()
            until = batch.rows["done_until"][-1].as_py().replace(tzinfo=UTC)
            part = (until - window.start).total_seconds() / window.seconds
            progress(f"read until {until:%Y-%m-%d %H:%M}", min(max(part, 0.0), 1.0))
    store()
    if collector.failure is not None:
        raise collector.failure
    return added, duplicates


def build_empty_error(settings: Settings, window: Window) -> SourceError:
    """Return the error of a Prometheus whose answers have no GPU telemetry."""
    url = settings.prometheus.url
    return SourceError(
        f"{url} has no GPU telemetry in {format_window(window)}",
        hint=f"fallow doctor --prometheus {url} says what it has",
    )


def _read_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches; while one is used, a thread reads the next one."""
    with ThreadPoolExecutor(1, "read-ahead") as pool:
        waiting = pool.submit(next, batches, None)
        while (batch := waiting.result()) is not None:
            waiting = pool.submit(next, batches, None)
            yield batch


def _is_wanted(settings: Settings, source: SourceSettings) -> bool:
    section = getattr(settings, source.section)
    return any(getattr(section, name) for name in (source.wanted_by, source.or_by) if name)


def _list_wanted(settings: Settings) -> list[str]:
    plugins.check_names(settings.plugins)
    own = [name for name, source in SOURCES.items() if _is_wanted(settings, source)]
    return [*own, *plugins.list_configured("collectors", settings.plugins)]


def _load_collector(name: str, settings: Settings) -> Collector:
    source = SOURCES.get(name)
    collector: Collector
    if source is None:
        build = partial(plugins.build, "collectors", name, settings.plugins)
        collector = PluginCollector(partial(build, cluster=settings.cluster))
    else:
        section: SettingsGroup = getattr(settings, source.section)
        collector = plugins.load("collectors", name)(section, settings.cluster)
    return collector


def collect_once(
    warehouse: "Warehouse", settings: Settings, *, now: datetime, names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Read every configured source once, account for the rows, and return the scrapes' results.

    Raises:
        UsageError: nothing is configured.
    """
    cursors = read_cursors(warehouse)
    collectors = load_collectors(settings, names, cursors, lambda: now, warehouse)
    if not collectors:
        raise UsageError(
            "no source is configured",
            hint=f"set one of {', '.join(f'{s.section}.{s.wanted_by}' for s in SOURCES.values())}",
        )
    window = Window(find_next_start(collectors.get("prometheus"), cursors, now), now)
    scrapes: list[dict[str, Any]] = []
    pipeline.run(
        warehouse,
        window,
        collectors=[
            _RecordingCollector(name, c, scrapes, settings.cluster)
            for name, c in collectors.items()
        ],
        prices=[*read_configured_rates(settings, now), *read_market_rates(settings, now)],
    )
    return scrapes


def find_next_start(collector: Any, cursors: Mapping[str, datetime], now: datetime) -> datetime:
    """Return where a pass begins: at the last pass's end, so that a late pass leaves no gap."""
    start = now - LOOKBACK
    if collector is None:
        return start
    prefix = collector.prefix("telemetry")
    ended = [until for source, until in cursors.items() if source.startswith(prefix)]
    return max(now - CATCH_UP, min([start, max(ended, default=start)]))


class _RecordingCollector:
    """A collector that also remembers its `scrape` rows, and whose errors affect only itself."""

    def __init__(
        self, name: str, collector: Collector, scrapes: list[dict[str, Any]], cluster: str
    ) -> None:
        self._name = name
        self._collector = collector
        self._scrapes = scrapes
        self._cluster = cluster

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield the collector's batches unchanged, then the result of its run."""
        run = PluginRun("collector", self._name, "done")
        try:
            batches = self._batches(window)
            yield from check_batches(
                batches, cluster=self._cluster, source=self._name, at=window.end
            )
        except FallowError:
            raise
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            why = plugin_runs.log_failure("collector", self._name, error)
            run = PluginRun("collector", self._name, "failed", why)
            none = {"target": "", "up": False, "seconds": None, "values": 0, "rejected": 0}
            self._scrapes.append({"collector": self._name, **none, "error": why})
        yield plugin_runs.to_batch([run], cluster=self._cluster, at=window.end)

    def _batches(self, window: Window) -> Iterator[Batch]:
        for batch in self._collector.collect(window):
            if batch.table == "scrape":
                self._scrapes += [
                    {
                        "collector": row["collector"],
                        "target": row["target"],
                        "up": row["up"],
                        "seconds": row["seconds"],
                        "values": row["samples"],
                        "rejected": row["rejected"],
                        "error": row["error"],
                    }
                    for row in batch.rows.to_pylist()
                ]
            yield batch


def examine_prometheus(settings: Settings, *, now: datetime) -> "list[CheckRow]":
    """Return what a Prometheus has for Fallow and what is missing, one row per check.

    Raises:
        FallowError: it does not respond at all.
    """
    client = PrometheusClient(settings.prometheus)
    try:
        return diagnose(client, now, matchers=settings.prometheus.selector)
    finally:
        client.close()
