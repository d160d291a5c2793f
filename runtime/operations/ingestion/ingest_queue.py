"""Queue rows while the catalog is away: in memory up to a bound, then on disk, delivered in order.

    ingest ─► warehouse
       └─ away ─► memory ─ over the bound, or old ─► files (`spool`) ─► warehouse

Rows are acknowledged when they are stored or on disk. Rows in memory are not: a process that is
killed loses at most what `MOST_AGE_S` and `warehouse.queue_rows` allow, and SIGTERM moves them to
disk. Delivery may repeat what was stored already, because ingest stores no row twice. Rows in the
future are left out when they come: at delivery the clock may be another one.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from fallow.errors import FallowError, TemporaryError, WarehouseError
from fallow.tables import Batch
from runtime.operations.ingestion.spool import (
    Spool,
    SpoolFile,
    SpoolFullError,
    compute_oldest_age_s,
)
from warehouse.ingest import IngestResult, check_times

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.queue")

MOST_AGE_S = 60.0
"""Rows wait in memory no longer: then they are moved to disk."""
MOST_AT_ONCE = 400_000
"""Rows of files that are stored in one transaction: 0.2 GB of memory."""


class QueueState(msgspec.Struct, frozen=True):
    """What waits: rows in memory; files, rows and bytes on disk; the age of the oldest file.

    `refused`: rows that were refused since the start, because the bound on disk was reached.
    """

    memory_rows: int = 0
    files: int = 0
    disk_rows: int = 0
    disk_bytes: int = 0
    oldest_s: float = 0.0
    refused: int = 0


class IngestQueue:
    """Stores rows, or keeps them until they can be stored.

    One thread at a time calls `ingest` and `deliver`, the one that writes to the warehouse. Any
    thread may call `keep`, also while that one hangs.
    """

    def __init__(
        self,
        warehouse: "Warehouse",
        spool: Spool,
        *,
        most_rows: int,
        observe: Callable[[QueueState], None] = lambda _state: None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warehouse, self._spool, self._most = warehouse, spool, most_rows
        self._observe, self._ticks = observe, ticks
        self._lock = threading.Lock()
        self._memory: deque[tuple[float, list[Batch]]] = deque()
        self._refused = 0
        self._away = ""

    @property
    def state(self) -> QueueState:
        """Return what waits."""
        with self._lock:
            return self._read_state()

    def ingest(self, batches: Iterable[Batch]) -> IngestResult:
        """Store rows after those that wait; if the warehouse is away, keep them.

        Returns what was stored, also of the rows that waited: nothing while the warehouse is away.

        Raises:
            TemporaryError: as `keep`; nothing of these rows is kept.
            WarehouseError: the warehouse answers and refuses these rows.
        """
        before = list(batches)
        rows = check_times(self._warehouse, before)
        future = _count(before) - _count(rows)
        stored = IngestResult(rows=future, future=future)
        if self._waits():
            stored += self.deliver()
        if not self._waits():
            try:
                return stored + self._warehouse.ingest(rows)
            except TemporaryError as error:
                self._note_away(error)
            except WarehouseError as error:
                if self._is_open():
                    raise
                self._note_away(error)
        self.keep(rows)
        return stored + IngestResult(rows=_count(rows))

    def keep(self, batches: Iterable[Batch], *, on_disk: bool = False) -> None:
        """Keep rows for later; on disk once memory has too many, or its oldest are too old.

        Raises:
            SpoolFullError: the bound on disk is reached: the oldest rows stay, these are refused.
            TemporaryError: the disk is full.
        """
        checked = check_times(self._warehouse, batches)
        rows = [batch for batch in checked if batch.rows.num_rows]
        if not rows:
            return
        with self._lock:
            try:
                waiting = sum(_count(entry) for _, entry in self._memory) + _count(rows)
                if on_disk or waiting > self._most or self._is_old():
                    self._move_to_disk()
                    self._spool.write(rows)
                else:
                    self._memory.append((self._ticks(), rows))
            except TemporaryError:
                self._refused += _count(rows)
                raise
            finally:
                self._observe(self._read_state())

    def deliver(self) -> IngestResult:
        """Store what waits, the oldest first, until the warehouse is away or refuses rows."""
        total = IngestResult()
        try:
            while part := self._store_next():
                total += part
            if self._away:
                log.warning("the warehouse is back: all rows that waited are stored")
            self._away = ""
        except (TemporaryError, WarehouseError) as error:
            self._note_away(error)
        finally:
            with self._lock:
                if self._is_old():
                    with suppress(SpoolFullError):  # they stay in memory; newer ones are refused
                        self._move_to_disk()
                self._observe(self._read_state())
        return total

    def close(self) -> None:
        """Move what is in memory to disk: the next process delivers it."""
        with self._lock:
            try:
                self._move_to_disk()
            except TemporaryError as error:
                log.error("rows that waited are lost", extra={"error": error.message})  # noqa: TRY400
            self._observe(self._read_state())

    def _waits(self) -> bool:
        with self._lock:
            return bool(self._memory or self._spool.files)

    def _store_next(self) -> IngestResult | None:
        """Store the oldest rows that wait; None = none wait. Files are older than memory."""
        if self._spool.files:
            return self._store_files(MOST_AT_ONCE)
        with self._lock:
            entry = self._memory[0] if self._memory else None
        if entry is None:
            return None
        try:
            stored = self._warehouse.ingest(entry[1])
        except WarehouseError:
            if not self._is_open():
                raise
            with self._lock:
                self._move_to_disk()  # where rows that are refused are kept aside
            return IngestResult()
        with self._lock:
            if self._memory and self._memory[0] is entry:
                self._memory.popleft()
        return stored

    def _store_files(self, most_rows: int) -> IngestResult:
        """Store the oldest files together; rows that an open warehouse refuses are kept aside."""
        files: list[SpoolFile] = []
        batches: list[Batch] = []
        for file in self._spool.files:
            batches += self._spool.read(file)
            files.append(file)
            if _count(batches) > most_rows:
                break
        try:
            stored = self._warehouse.ingest(batches) if batches else IngestResult()
        except WarehouseError as error:
            if not self._is_open():
                raise
            if len(files) > 1:
                return self._store_files(0)  # one file: find out which one is refused
            self._spool.set_aside(files[0], error.message)
            return IngestResult()
        for file in files:
            self._spool.remove(file)
        return stored

    def _is_open(self) -> bool:
        """Return whether the warehouse answers: then a refusal is about the rows."""
        try:
            self._warehouse.query("SELECT source FROM cursor LIMIT 1")
        except FallowError:
            return False
        return True

    def _move_to_disk(self) -> None:
        while self._memory:
            self._spool.write(self._memory[0][1])
            self._memory.popleft()

    def _note_away(self, error: FallowError) -> None:
        if error.message != self._away:
            log.warning("the warehouse is away: rows wait", extra={"error": error.message})
        self._away = error.message

    def _is_old(self) -> bool:
        return bool(self._memory) and self._ticks() - self._memory[0][0] >= MOST_AGE_S

    def _read_state(self) -> QueueState:
        files = self._spool.files
        rows = sum(_count(batches) for _, batches in self._memory)
        return QueueState(
            memory_rows=rows,
            files=len(files),
            disk_rows=sum(file.rows for file in files),
            disk_bytes=sum(file.size for file in files),
            oldest_s=compute_oldest_age_s(files),
            refused=self._refused,
        )


def _count(batches: Sequence[Batch]) -> int:
    return sum(batch.rows.num_rows for batch in batches)
