"""Live sources: which are configured, one pass over them, a backfill, and a doctor's look."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from fallow import boundary, plugins
from fallow.boundary import PluginRun
from fallow.errors import FallowError, UsageError
from fallow.seams import Collector
from fallow.sections import Section
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime import pipeline
from runtime.importing import aws_rows, price_rows
from runtime.showing import Progress

if TYPE_CHECKING:
    from collectors.doctor import Row
    from collectors.prometheus.collector import PrometheusCollector
    from warehouse.lake import Warehouse

Passing = Callable[[Iterable[Batch]], Iterator[Batch]]
"""Looks at batches on their way."""
LOOK = timedelta(minutes=5)
"""How far back one pass of `collect --once` asks sources that have a past."""
CATCH_UP = timedelta(days=1)
"""A pass that comes late asks a Prometheus for what it missed, up to this; beyond, import does."""
MOST_ROWS = 400_000
"""Rows of a long chunk that wait to be stored: 0.2 GB."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Source(msgspec.Struct, frozen=True):
    """Where a collector's settings stand, and which of them says that it is wanted."""

    section: str
    wanted_by: str
    is_here: bool = False
    """It is this machine: named, it is asked without any setting."""


SOURCES = {
    "exporters": Source("exporters", "targets"),
    "jupyter": Source("jupyter", "servers"),
    "kubernetes": Source("kubernetes", "enabled"),
    "nvml": Source("nvml", "enabled", is_here=True),
    "prometheus": Source("prometheus", "url"),
}


def configured(
    settings: Settings,
    names: Sequence[str] | None = None,
    done: Mapping[str, datetime] | None = None,
    clock: Callable[[], datetime] = _utc_now,
) -> dict[str, Collector]:
    """Return the collectors that the settings want, or those named, by name.

    `done` are the warehouse's cursors: what a Prometheus need not be asked again.

    Raises:
        UsageError: a named collector is not installed or not configured.
    """
    wanted = list(names) if names else [n for n, s in SOURCES.items() if _wanted(settings, s)]
    for name in names or ():
        source = SOURCES.get(name)
        if source is not None and not source.is_here and not _wanted(settings, source):
            raise UsageError(
                f"collector {name!r} is not configured",
                hint=f"set {source.section}.{source.wanted_by} in fallow.yaml",
            )
    return {
        name: prometheus(settings, done, clock) if name == "prometheus" else _make(name, settings)
        for name in wanted
    }


def prometheus(
    settings: Settings,
    done: Mapping[str, datetime] | None = None,
    clock: Callable[[], datetime] = _utc_now,
) -> "PrometheusCollector":
    """Return the Prometheus collector of these settings."""
    from collectors.prometheus.collector import PrometheusCollector  # noqa: PLC0415

    return PrometheusCollector(
        settings.prometheus,
        settings.cluster,
        clock,
        done=done,
        team_labels=settings.kubernetes.team_labels,
    )


def cursors(warehouse: "Warehouse") -> dict[str, datetime]:
    """Return the warehouse's cursors: until when each source's past is stored."""
    rows = warehouse.query("SELECT source, done_until FROM cursor").to_pylist()
    return {row["source"]: row["done_until"].replace(tzinfo=UTC) for row in rows}


def drain(
    warehouse: "Warehouse",
    collector: "PrometheusCollector",
    window: Window,
    progress: Progress,
    passing: Passing = iter,
) -> tuple[int, int]:
    """Store a Prometheus's window chunk by chunk; a cursor is stored after all that it covers.

    Returns:
        Rows added and rows that were there already.

    Raises:
        FallowError: what stopped it; what was stored before stays, the next run goes on.
    """
    held: list[Batch] = []
    added = duplicates = 0

    def store() -> None:
        nonlocal added, duplicates
        done = pipeline.ingest(warehouse, held)
        added, duplicates = added + done.added, duplicates + done.duplicates
        held.clear()

    for batch in passing(collector.collect(window)):
        held.append(batch)
        if sum(b.rows.num_rows for b in held) > MOST_ROWS:
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


def _wanted(settings: Settings, source: Source) -> bool:
    return bool(getattr(getattr(settings, source.section), source.wanted_by))


def _make(name: str, settings: Settings) -> Collector:
    plugin = plugins.load("collectors", name)
    source = SOURCES.get(name)
    section: Section | None = getattr(settings, source.section) if source else None
    made: Collector = (
        plugin(cluster=settings.cluster) if section is None else plugin(section, settings.cluster)
    )
    return made


def collect_once(
    warehouse: "Warehouse", settings: Settings, *, now: datetime, names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Look once at every configured source, do the books, and return how the looks went.

    Raises:
        UsageError: nothing is configured.
    """
    done = cursors(warehouse)
    collectors = configured(settings, names, done, lambda: now)
    if not collectors:
        raise UsageError(
            "no source is configured",
            hint=f"set one of {', '.join(f'{s.section}.{s.wanted_by}' for s in SOURCES.values())}",
        )
    window = Window(since(collectors.get("prometheus"), done, now), now)
    looks: list[dict[str, Any]] = []
    pipeline.run(
        warehouse,
        window,
        collectors=[_Watched(name, c, looks, settings.cluster) for name, c in collectors.items()],
        prices=[*price_rows(settings, now), *aws_rows(settings, now)],
    )
    return looks


def since(collector: Any, done: Mapping[str, datetime], now: datetime) -> datetime:
    """Return where a pass begins: at the last one's end, so that a late pass leaves no hole."""
    look = now - LOOK
    if collector is None:
        return look
    prefix = collector.prefix("telemetry")
    ended = [until for source, until in done.items() if source.startswith(prefix)]
    return max(now - CATCH_UP, min([look, max(ended, default=look)]))


class _Watched:
    """A collector whose `scrape` rows are also remembered, and whose fault is its own."""

    def __init__(
        self, name: str, collector: Collector, looks: list[dict[str, Any]], cluster: str
    ) -> None:
        self._name = name
        self._collector = collector
        self._looks = looks
        self._cluster = cluster

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield the collector's batches unchanged, and what came of its run."""
        run = PluginRun("collector", self._name, "done")
        try:
            yield from self._batches(window)
        except FallowError:
            raise
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            why = boundary.failed("collector", self._name, error)
            run = PluginRun("collector", self._name, "failed", why)
            none = {"target": "", "up": False, "seconds": None, "values": 0, "rejected": 0}
            self._looks.append({"collector": self._name, **none, "error": why})
        yield boundary.rows([run], cluster=self._cluster, at=window.end)

    def _batches(self, window: Window) -> Iterator[Batch]:
        for batch in self._collector.collect(window):
            if batch.table == "scrape":
                self._looks += [
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


def examine(settings: Settings, *, now: datetime) -> "list[Row]":
    """Return what a Prometheus has for us and what is missing, one row per check.

    Raises:
        FallowError: it cannot be asked at all.
    """
    from collectors.doctor import diagnose  # noqa: PLC0415
    from collectors.prometheus.client import PrometheusClient  # noqa: PLC0415

    client = PrometheusClient(settings.prometheus)
    try:
        return diagnose(client, now, matchers=settings.prometheus.selector)
    finally:
        client.close()
