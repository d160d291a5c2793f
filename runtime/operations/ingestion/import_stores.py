"""Where imports go: into the warehouse, or through the service that writes it.

An embedded warehouse has one writing process. Beside a running service an import puts requests into
files of the home, and the service carries them out between its jobs. A request is complete or does
not exist, and goes once its result is written: a service that is killed in between carries it out
again, and no row is stored twice.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from fallow.errors import FallowError, TemporaryError
from fallow.settings import Settings
from fallow.system.sqlite_file import hold_lock
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.ingestion.collection import MOST_ROWS
from runtime.operations.ingestion.spool import decode_batches, encode_batches, write_durably
from warehouse.ingest import IngestResult
from warehouse.lake import Warehouse

log = logging.getLogger("fallow.import")

FOLDER = "imports"
"""Its name under the home folder."""
REQUEST, RESULT, LOCK = ".request", ".result", "lock"
POLL_S = 0.2
START_S = 5.0
"""How long a service waits for the lock, which an import tries for a moment."""
KEPT_S = 86_400.0
"""How long a result waits for its import, which may have been killed."""


class ImportStore(Protocol):
    """What an import writes to; `views` reads the same warehouse."""

    views: Warehouse

    def ingest(self, batches: Iterable[Batch]) -> IngestResult:
        """Store rows."""

    def price(self, batches: Sequence[Batch], *, is_restating: bool = False) -> None:
        """Store rates."""

    def account(self, window: Window) -> list[str]:
        """Account for a window; return the audits that fail."""


class ImportRequest(msgspec.Struct, frozen=True):
    """One step of an import: rows, rates, or a window to account for; batches are encoded."""

    rows: bytes = b""
    rates: bytes = b""
    is_restating: bool = False
    window: tuple[datetime, datetime] | None = None


class ImportResult(msgspec.Struct, frozen=True):
    """What came of a request; `exit_code` above 0 = the error that refused it."""

    ingested: IngestResult = IngestResult()
    failures: tuple[str, ...] = ()
    exit_code: int = 0
    error: str = ""
    hint: str | None = None


class OpenStore:
    """A warehouse that this process writes."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.views = warehouse

    def ingest(self, batches: Iterable[Batch]) -> IngestResult:
        """Store rows in one transaction."""
        return pipeline.ingest(self.views, batches)

    def price(self, batches: Sequence[Batch], *, is_restating: bool = False) -> None:
        """Store rates."""
        pipeline.price(self.views, batches, is_restating=is_restating)

    def account(self, window: Window) -> list[str]:
        """Account for a window; return the audits that fail."""
        return [str(failure) for failure in pipeline.account(self.views, window)[1]]


class ServiceStore:
    """The warehouse of a running service, which carries out what this process requests."""

    def __init__(
        self, warehouse: Warehouse, folder: Path, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.views, self._folder, self._pause = warehouse, folder, pause

    def ingest(self, batches: Iterable[Batch]) -> IngestResult:
        """Store rows, at most `MOST_ROWS` in a request."""
        total, waiting = IngestResult(), list[Batch]()

        def send() -> None:
            nonlocal total
            if waiting:
                total += self._send(ImportRequest(rows=encode_batches(waiting))).ingested
                waiting.clear()

        for batch in batches:
            waiting.append(batch)
            if sum(b.rows.num_rows for b in waiting) > MOST_ROWS:
                send()
        send()
        return total

    def price(self, batches: Sequence[Batch], *, is_restating: bool = False) -> None:
        """Store rates."""
        if batches:
            self._send(ImportRequest(rates=encode_batches(batches), is_restating=is_restating))

    def account(self, window: Window) -> list[str]:
        """Account for a window; return the audits that fail."""
        return [*self._send(ImportRequest(window=(window.start, window.end))).failures]

    def _send(self, request: ImportRequest) -> ImportResult:
        path = self._folder / f"{time.time_ns():020d}-{uuid.uuid4().hex}{REQUEST}"
        write_durably(path, msgspec.msgpack.encode(request))
        answer = path.with_suffix(RESULT)
        while not answer.exists():
            if not is_service_there(self._folder):
                raise TemporaryError(
                    "the service ended before it had stored the import",
                    hint="its next start stores what it was sent; run the import again then",
                )
            self._pause(POLL_S)
        result = msgspec.msgpack.decode(answer.read_bytes(), type=ImportResult)
        answer.unlink()
        if result.exit_code:
            error = FallowError(result.error, hint=result.hint)
            error.exit_code = result.exit_code  # type: ignore[misc]  # the service's own error
            raise error
        return result


@contextmanager
def open_store(settings: Settings, clock: Callable[[], datetime]) -> Iterator[ImportStore]:
    """Open the warehouse for an import, or reach the service that writes it.

    Raises:
        TemporaryError: another process than a service writes it.
    """
    try:
        warehouse = Warehouse.open(settings, write=True, clock=clock)
    except TemporaryError:
        folder = settings.home / FOLDER
        if not is_service_there(folder):
            raise
        with Warehouse.open(settings, clock=clock) as views:
            yield ServiceStore(views, folder)
        return
    with warehouse:
        yield OpenStore(warehouse)


def is_service_there(folder: Path) -> bool:
    """Return whether a service carries out the requests of a folder."""
    if not (folder / LOCK).exists():
        return False
    with hold_lock(folder / LOCK) as is_free:
        return not is_free


@contextmanager
def take_requests(
    warehouse: Warehouse, *, collects: bool = True
) -> Iterator[Callable[[], None] | None]:
    """Yield what carries out the waiting requests; imports know of this service meanwhile.

    None: this process does not collect, or the catalog takes several writing processes.
    """
    if not (collects and warehouse.place.embedded):
        yield None
        return
    folder = warehouse.place.home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    with hold_lock(folder / LOCK, wait_s=START_S):
        yield lambda: _store_requests(warehouse, folder)


def _store_requests(warehouse: Warehouse, folder: Path) -> None:
    for path in sorted(folder.glob(f"*{REQUEST}")):
        answer = path.with_suffix(RESULT)
        write_durably(answer, msgspec.msgpack.encode(_answer(warehouse, path)))
        path.unlink()
    for answer in folder.glob(f"*{RESULT}"):
        if time.time() - answer.stat().st_mtime > KEPT_S:
            answer.unlink(missing_ok=True)


def _answer(warehouse: Warehouse, path: Path) -> ImportResult:
    store = OpenStore(warehouse)
    try:
        request = msgspec.msgpack.decode(path.read_bytes(), type=ImportRequest)
        ingested = IngestResult()
        if request.rows:
            ingested = store.ingest(decode_batches(request.rows))
        if request.rates:
            rates = [*decode_batches(request.rates)]
            store.price(rates, is_restating=request.is_restating)
        failures = store.account(Window(*request.window)) if request.window else []
        log.info("imported", extra={"rows": ingested.rows, "added": ingested.added})
        return ImportResult(ingested, tuple(failures))
    except FallowError as error:
        return ImportResult(exit_code=error.exit_code, error=error.message, hint=error.hint)
    except Exception as error:  # the service outlives one request
        log.exception("an import is refused")
        return ImportResult(
            exit_code=FallowError.exit_code, error=f"the service refused it: {error}"
        )
