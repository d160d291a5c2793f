"""Read every source again before an act: side by side, and within one total deadline.

    a thread for each source ─► rows ─► the thread that writes ─► accounted ─► judged

Whoever waits for the readings holds neither the journal nor the thread that writes. A source that
gave no complete answer in time makes the readings fail: what is unknown is not acted upon. The
rows of the other sources are stored.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from collectors.prometheus.latest import read_latest
from fallow.action_models import Facts
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.protocols import Collector
from fallow.settings import Settings
from fallow.system.daemon_threads import (
    DaemonThreads,
    TaskRunner,
    ThreadsClosedError,
    call_in,
)
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.ingestion.collection import (
    drain,
    find_next_start,
    load_collectors,
    read_cursors,
)

if TYPE_CHECKING:
    from warehouse.ingest import IngestResult
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.acting")
T = TypeVar("T")

MOST_READINGS = 32
"""Threads that read: one for each source, so that sources that hang leave the others theirs."""
POLL_S = 0.1
"""How soon a wait for a source ends when the service stops."""
WRITE_END_S = 60.0
"""How long the end of an actor's own writing thread is waited for: the warehouse closes then."""
CASE = "Prometheus, of one case"
"""The source of the last values of one case's pods."""


class Reading:
    """One read of one source, and how long the source needed for it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ended = threading.Event()
        self.error: Exception | None = None
        self._began = time.monotonic()
        self._writes_s = 0.0
        self._writes_since: float | None = None

    def source_s(self) -> float:
        """Return the seconds since it began, without those in which its rows were stored."""
        since = self._writes_since
        return (time.monotonic() if since is None else since) - self._began - self._writes_s

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Do not count the time of this block."""
        began = self._writes_since = time.monotonic()
        try:
            yield
        finally:
            # In this order another thread sees too few seconds at worst, never too many.
            self._writes_s += time.monotonic() - began
            self._writes_since = None


Task = Callable[[Reading], object]


class LastReadings:
    """Reads of the sources of a warehouse, at most one of each source at a time.

    `readers` run the reads, `writer` stores their rows; `stop` ends every wait for a source. A
    reading may take as long as evidence may be old: what comes later could not be acted upon.
    """

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        *,
        readers: TaskRunner,
        writer: TaskRunner,
        stop: threading.Event,
    ) -> None:
        self._warehouse, self._settings = warehouse, settings
        self._readers, self._writer, self._stop = readers, writer, stop
        self._within_s = settings.actions.evidence_age.total_seconds()
        self._current: dict[str, Reading] = {}

    def refresh(self, now: datetime) -> None:
        """Read every configured source, and account for the rows.

        Raises:
            TemporaryError: a source gave no complete answer in time.
        """
        cursors = read_cursors(self._warehouse)
        collectors = load_collectors(self._settings, None, cursors, lambda: now, self._warehouse)
        window = Window(find_next_start(collectors.get("prometheus"), cursors, now), now)
        self._read({name: partial(self._collect, c, window) for name, c in collectors.items()})
        accounted = Window(now - pipeline.LEDGER_LOOKBACK, now)
        self.write(lambda: pipeline.account(self._warehouse, accounted))

    def reread(self, facts: Facts, now: datetime) -> None:
        """Read the hosts of one case's pods now, where a Prometheus has them.

        Raises:
            TemporaryError: it gave no complete answer in time.
        """
        settings, space = self._settings, facts.finding.subject.namespace
        pods = [(space, pod.pod) for pod in facts.pods or ()]
        if not settings.prometheus.url or not pods:
            return

        def read(reading: Reading) -> None:
            rows = [*read_latest(settings.prometheus, settings.cluster, pods, now)]
            self._store(reading, rows)

        self._read({CASE: read})

    def write(self, task: Callable[[], T]) -> T:
        """Run a task in the writing thread, and return its result or raise its error."""
        return call_in(self._writer, task)

    def _collect(self, collector: Collector, window: Window, reading: Reading) -> None:
        """Read a source and store its rows; a source with history stores chunk by chunk."""
        store = partial(self._store, reading)
        if not hasattr(collector, "failure"):
            store([*collector.collect(window)])
            return
        source = cast(Any, collector)
        try:
            drain(self._warehouse, source, window, lambda _text, _part: None, ingest=store)
        except FallowError as error:
            if error is not source.failure:
                raise
            # Its failed scrape is stored: cases that need this source are held for that reason.

    def _store(self, reading: Reading, batches: Iterable[Batch]) -> "IngestResult":
        rows = list(batches)
        with reading.storing():
            return self.write(lambda: pipeline.ingest(self._warehouse, rows))

    def _read(self, tasks: Mapping[str, Task]) -> None:
        """Run tasks side by side; raise the first error, or which sources still go on."""
        begun = {name: self._start(name, task) for name, task in tasks.items()}
        late = [name for name, reading in begun.items() if not self._has_ended(reading)]
        for reading in begun.values():
            if reading is not None and reading.ended.is_set() and reading.error is not None:
                raise reading.error
        if late:
            raise TemporaryError(
                f"no complete answer within {self._within_s:g} s from {', '.join(late)}: "
                "what is unknown is not acted upon",
                hint="fallow doctor",
            )

    def _start(self, name: str, task: Task) -> Reading | None:
        """Begin to read a source; None = its last read still goes on."""
        before = self._current.get(name)
        if before is not None and not before.ended.is_set():
            return None
        reading = self._current[name] = Reading(name)

        def run() -> None:
            try:
                task(reading)
            except Exception as error:  # noqa: BLE001  (whoever waits for the reading raises it)
                reading.error = error
            finally:
                reading.ended.set()

        self._readers.submit(run)
        return reading

    def _has_ended(self, reading: Reading | None) -> bool:
        """Wait for a reading until it ended or its time is over; return whether it ended."""
        if reading is None:
            return False
        while not reading.ended.wait(POLL_S):
            if self._stop.is_set():
                raise ThreadsClosedError("the service stops: its sources are not waited for")
            if reading.source_s() >= self._within_s:
                log.warning(
                    "a source is still being read: nothing is done without it",
                    extra={"collector": reading.source, "since_s": round(reading.source_s(), 1)},
                )
                return False
        return True


@contextmanager
def open_last_readings(
    warehouse: "Warehouse",
    settings: Settings,
    *,
    writer: TaskRunner | None = None,
    stop: threading.Event | None = None,
) -> Iterator[LastReadings]:
    """Yield reads of the configured sources in threads that end with the block or the process.

    `writer`: the thread that writes to this warehouse; none = one for this block, while nothing
    else writes to it.

    Raises:
        UsageError: no source is configured, so no evidence can be fresh.
    """
    if not load_collectors(settings, cursors={}):
        raise UsageError(
            "no source is configured: evidence cannot be read again before acting",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )
    readers = DaemonThreads("last-reading", MOST_READINGS)
    own = DaemonThreads("write", 1)
    try:
        yield LastReadings(
            warehouse,
            settings,
            readers=readers,
            writer=writer or own,
            stop=stop or threading.Event(),
        )
    finally:
        readers.close(time.monotonic())
        own.close(time.monotonic() + WRITE_END_S)
