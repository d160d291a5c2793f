"""Read a Prometheus's history beside the live passes: days before the first pass, newest first.

The days are read by a client of its own, one query at a time, with pauses as long as the reads.
Cursors say what is stored: after a kill the next start reads only what is missing.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fallow.errors import FallowError, NoSeriesError
from fallow.settings import Settings
from fallow.system.daemon_threads import ThreadsClosedError
from fallow.window import Window
from runtime.operations.ingestion.collection import build_prometheus_collector, drain, read_cursors
from runtime.service.sources import JobInterrupted, SourceRead, Sources
from warehouse.coverage import build_history_mark

if TYPE_CHECKING:
    import threading

    from collectors.prometheus.collector import PrometheusCollector
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")

SOURCE = "history"
DAY = timedelta(days=1)
CHUNK_VALUES = 3_000_000
"""Values of one query in memory: a quarter of a live pass's, which goes on beside it."""
MOST_PAUSE_S = 60.0
"""Longest pause after a day was read."""
EMPTY_AGAIN = timedelta(hours=1)
"""How soon a Prometheus without any GPU series in its history is read again."""


class HistoryFill:
    """The history of `prometheus.history` before `end`, read in the thread of a source.

    In that thread `account` is called after each day with rows, and `analyze` once the newest
    `analyzed` are stored, and at the end. `pause` waits for seconds; it returns True to stop.
    """

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        sources: Sources,
        *,
        end: datetime,
        clock: Callable[[], datetime],
        account: Callable[[], object],
        analyze: Callable[[], object],
        analyzed: timedelta,
        stop: "threading.Event",
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._warehouse, self._settings, self._sources = warehouse, settings, sources
        self._account, self._analyze, self._clock, self._stop = account, analyze, clock, stop
        self._pause = pause or stop.wait
        self._window = Window(end - settings.prometheus.history, end)
        self._week = end - analyzed
        self._reads = self.is_done = False
        self._not_before: datetime | None = None

    def start(self) -> None:
        """Begin to read unless that goes on already, or all is read."""
        waits = self._not_before is not None and self._clock() < self._not_before
        if self.is_done or self._reads or waits:
            return
        self._reads = True
        if self._sources.run(SOURCE, self._fill) is None:
            self._reads = False

    def _fill(self, _read: SourceRead) -> None:
        try:
            self._read_days()
        except FallowError as error:
            log.warning("history is read again later", extra={"error": error.message})
        except (JobInterrupted, ThreadsClosedError):
            raise
        except Exception:  # nobody waits for this read
            log.exception("history is read again later")
        finally:
            self._reads = False

    def _read_days(self) -> None:
        cursors = self._sources.write(lambda: read_cursors(self._warehouse))
        collector = build_prometheus_collector(
            self._settings, cursors, self._clock, max_samples=CHUNK_VALUES
        )
        days = self._window.whole(DAY).chunks(DAY)
        has_series = is_fresh = False
        for left, day in reversed(list(enumerate(days))):
            part = Window(max(day.start, self._window.start), min(day.end, self._window.end))
            began = time.monotonic()
            added = self._read_day(collector, part)
            has_series = has_series or added is not None
            if added:
                is_fresh = True
                log.info("history", extra={"start": part.start, "added": added, "days_left": left})
                self._account()
                self._check_stop(pause_s=min(time.monotonic() - began, MOST_PAUSE_S))
            self._check_stop()
            if is_fresh and (not left or part.start <= self._week < part.end):
                self._analyze()
                is_fresh = False
        if not has_series:
            self._not_before = self._clock() + EMPTY_AGAIN
            return
        since = self._window.start
        self._sources.store([build_history_mark(self._settings.cluster, since, self._clock())])
        self.is_done = True
        log.info("history is read", extra={"start": since})

    def _read_day(self, collector: "PrometheusCollector", part: Window) -> int | None:
        """Store the part of a day that is not stored; None = the server has no series of it."""
        try:
            added, _ = drain(
                self._warehouse, collector, part, self._report, ingest=self._sources.store
            )
        except NoSeriesError:
            return None
        return added

    def _report(self, _label: str, _part: float) -> None:
        self._check_stop()

    def _check_stop(self, *, pause_s: float = 0.0) -> None:
        if (pause_s and self._pause(pause_s)) or self._stop.is_set():
            raise JobInterrupted
