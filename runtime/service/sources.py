"""Read sources side by side in bounded threads; one thread stores their rows.

A source's thread never writes to the warehouse: it hands the rows to the writing thread. A source
without history may be read again while its rows wait there. A source with history (Prometheus)
waits until each chunk is stored, because the chunk's cursor says that its rows are stored.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fallow import plugin_runs
from fallow.clean_texts import check_batches
from fallow.errors import FallowError, TemporaryError
from fallow.plugin_runs import PluginRun
from fallow.protocols import Collector
from fallow.system.daemon_threads import TaskRunner, ThreadsClosedError, call_in
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.ingestion.collection import MOST_ROWS, drain
from runtime.operations.ingestion.ingest_queue import IngestQueue
from runtime.operations.ingestion.plugin_runs import PluginRuns
from runtime.service.metrics import SelfMetrics
from warehouse.ingest import check_times

if TYPE_CHECKING:
    from warehouse.ingest import IngestResult
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")
T = TypeVar("T")

MOST_SOURCES = 32
"""Threads that read sources: one for each source, so that sources that hang leave the others
theirs. Five kinds are built in; more than 32 would be a fault of the settings."""


class JobInterrupted(Exception):  # noqa: N818  (no error: it was asked for)
    """Report that a job was interrupted between two of its parts."""


class SourceRead:
    """One read of a source.

    `read`: the source may be read again. `ended`: its rows are stored, or it failed. `error`: why
    a task of `Sources.run` failed.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.began = time.monotonic()
        self.read = threading.Event()
        self.ended = threading.Event()
        self.error: Exception | None = None
        self.rows_wait = False


class WaitingRows:
    """Bounds the rows that wait for the writing thread: a reader waits until there is room.

    Few rows count as a sixteenth of the bound: a job of the writing thread waits for at most 16
    reads that are stored before it, also when reads are faster than storing.
    """

    def __init__(self, most: int) -> None:
        self._most, self._least, self._waiting = most, most // 16, 0
        self._change = threading.Condition()

    def add(self, rows: int) -> None:
        """Wait for room, and take it; more rows than the bound wait until no others do."""
        rows = max(rows, self._least)
        with self._change:
            self._change.wait_for(lambda: not self._waiting or self._waiting + rows <= self._most)
            self._waiting += rows

    def remove(self, rows: int) -> None:
        """Give room back."""
        with self._change:
            self._waiting -= max(rows, self._least)
            self._change.notify_all()


class Sources:
    """The sources of a service: at most one read of each at a time.

    `readers` run the reads, `writer` stores their rows: one thread, which also runs the jobs that
    write. `since`: from when a source with history is read first.
    """

    def __init__(
        self,
        warehouse: "Warehouse",
        collectors: Mapping[str, Collector],
        metrics: SelfMetrics,
        *,
        readers: TaskRunner,
        writer: TaskRunner,
        stop: threading.Event,
        since: Mapping[str, datetime],
        queue: IngestQueue | None = None,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self._warehouse, self._collectors, self._metrics = warehouse, collectors, metrics
        self._readers, self._writer, self._stop = readers, writer, stop
        self._queue = queue
        self._waiting = WaitingRows(most_rows)
        self._runs = PluginRuns(warehouse, metrics.record_plugin_runs)
        self._lock = threading.Lock()
        self._since = dict(since)
        self._current: dict[str, SourceRead] = {}
        self._unstored: dict[SourceRead, list[Batch]] = {}
        """What was read and is not stored or queued yet."""

    def start(
        self, names: AbstractSet[str], period: timedelta, now: datetime
    ) -> Sequence[SourceRead]:
        """Read sources up to `now`; a source whose last read still goes on is skipped."""
        began = (self.run(name, partial(self._collect, period, now)) for name in sorted(names))
        return [read for read in began if read is not None]

    def run(
        self, source: str, task: Callable[[SourceRead], object], *, wait_s: float = 0.0
    ) -> SourceRead | None:
        """Run a task in a source's thread; None = skipped, the last one goes on after `wait_s`."""
        before = self._current.get(source)
        if before is not None and wait_s:
            before.read.wait(wait_s)
        with self._lock:
            before = self._current.get(source)
            read = SourceRead(source)
            if before is None:
                self._current[source] = read
        if before is not None:
            self._metrics.record_skipped_collection(source)
            log.warning(
                "a source is still being read: its turn is skipped",
                extra={"collector": source, "since_s": round(read.began - before.began, 1)},
            )
            return None
        self._readers.submit(partial(self._run, read, task))
        return read

    def store(self, batches: Iterable[Batch]) -> "IngestResult":
        """Store rows in the writing thread, and wait until they are stored.

        Raises: as `Warehouse.ingest`.
        """
        rows = list(batches)
        return self.write(lambda: pipeline.ingest(self._warehouse, rows), _count(rows))

    def queue(self, batches: Iterable[Batch]) -> "IngestResult":
        """Store rows as `store`, or keep them while PostgreSQL or S3 is away."""
        rows = check_times(self._warehouse, batches)
        return self.write(lambda: self._ingest(rows), _count(rows))

    def _ingest(self, batches: Sequence[Batch]) -> "IngestResult":
        """Store rows, or keep them while PostgreSQL or S3 is away; in the writing thread.

        A source with history is not queued: it is read again from where its rows end.
        """
        if self._queue is not None:
            return self._queue.ingest(batches)
        return pipeline.ingest(self._warehouse, batches)

    def write(self, task: Callable[[], T], rows: int = 0) -> T:
        """Run a task in the writing thread, and return its result or raise its error."""

        def work() -> T:
            try:
                return task()
            finally:
                self._waiting.remove(rows)

        self._waiting.add(rows)
        return call_in(self._writer, work)

    def keep_unstored(self) -> None:
        """Keep on disk what was read and not stored, when the writing thread has ended or hangs.

        Rows that it stores all the same are delivered twice and stored once.
        """
        with self._lock:
            waiting = [batches for batches in self._unstored.values() if batches]
            self._unstored.clear()
        if self._queue is None or not waiting:
            return
        log.info("rows wait on disk for the next start", extra={"reads": len(waiting)})
        for batches in waiting:
            try:
                self._queue.keep(batches, on_disk=True)
            except TemporaryError as error:
                log.error("rows that waited are lost", extra={"error": error.message})  # noqa: TRY400

    def keep_failure(self, source: str, error: Exception, at: datetime) -> None:
        """Log a plugin's fault, and store it in the table that users see; in the writing thread."""
        why = plugin_runs.log_failure("collector", source, error)
        self._runs.keep([PluginRun("collector", source, "failed", why)], at)

    def _run(self, read: SourceRead, task: Callable[[SourceRead], object]) -> None:
        try:
            self._check_stop()
            task(read)
        except (JobInterrupted, ThreadsClosedError):
            read.rows_wait = False
        except Exception as error:  # noqa: BLE001  (whoever waits for the read raises it)
            read.error = error
        finally:
            with self._lock:
                self._current.pop(read.source, None)
            read.read.set()
            if not read.rows_wait:
                read.ended.set()

    def _collect(self, period: timedelta, now: datetime, read: SourceRead) -> None:
        name, collector = read.source, self._collectors[read.source]
        with self._lock:
            window = Window(min(self._since.get(name, now - period), now - period), now)
        batches: list[Batch] = []
        added, fault = 0, None
        try:
            if hasattr(collector, "failure"):
                source = cast(Any, collector)
                chunks = drain(self._warehouse, source, window, self._check_stop, ingest=self.store)
                added = chunks[0]
            else:
                read_batches = self._check(name, collector.collect(window), now)
                batches = check_times(self._warehouse, read_batches, window.start)
        except (JobInterrupted, ThreadsClosedError):
            raise
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            fault = error
        read_s, rows = time.monotonic() - read.began, _count(batches)
        if fault is None:
            # A next read may begin before these rows are stored.
            self._set_since(name, now)

        def finish() -> None:
            try:
                self._finish(read, window, batches, added=added, read_s=read_s, fault=fault)
            finally:
                self._waiting.remove(rows)
                read.ended.set()

        with self._lock:
            self._unstored[read] = batches
        self._waiting.add(rows)
        read.rows_wait = True
        self._writer.submit(finish)

    def _finish(
        self,
        read: SourceRead,
        window: Window,
        batches: Sequence[Batch],
        *,
        added: int,
        read_s: float,
        fault: Exception | None,
    ) -> None:
        """Store what a read brought, and record how it ended; in the writing thread."""
        name, began = read.source, time.monotonic()
        if fault is None:
            try:
                if batches:
                    added += self._ingest(batches).added
                with suppress(TemporaryError):  # the rows are safe; the next pass keeps it
                    self._runs.keep([PluginRun("collector", name, "done")], window.end)
            except Exception as error:  # noqa: BLE001  (rows that cannot be stored are a fault too)
                fault = error
        seconds = read_s + time.monotonic() - began
        with self._lock:
            self._unstored.pop(read, None)
        if fault is None:
            self._metrics.record_collection(name, seconds, added=added, up=True, now=window.end)
            log.info("collected", extra={"collector": name, "added": added})
            return
        self._set_since(name, window.start, earlier=True)  # it is read again from there
        self._metrics.record_collection(name, seconds, added=0, up=False)
        if isinstance(fault, FallowError):
            log.warning("collector failed", extra={"collector": name, "error": str(fault)})
        else:
            self.keep_failure(name, fault, window.end)

    def _check(self, source: str, batches: Iterable[Batch], at: datetime) -> Iterator[Batch]:
        cluster = self._warehouse.settings.cluster
        return check_batches(batches, cluster=cluster, source=source, at=at)

    def _set_since(self, name: str, timestamp: datetime, *, earlier: bool = False) -> None:
        with self._lock:
            before = self._since.get(name, timestamp)
            self._since[name] = min(before, timestamp) if earlier else timestamp

    def _check_stop(self, _label: str = "", _part: float = 0.0) -> None:
        """Stop between two chunks of a long history: the next run continues after these chunks."""
        if self._stop.is_set():
            raise JobInterrupted


def wait_for(reads: Iterable[SourceRead], within_s: float) -> None:
    """Wait until reads ended, at most this long; a read that goes on stores its rows later."""
    end = time.monotonic() + within_s
    for read in reads:
        read.ended.wait(max(end - time.monotonic(), 0))


def _count(batches: Iterable[Batch]) -> int:
    return sum(batch.rows.num_rows for batch in batches)
