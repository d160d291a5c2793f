"""Open the warehouse, waited for while its catalog is away, and the queue of a collector."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fallow.errors import TemporaryError, UsageError
from fallow.settings import Settings
from fallow.system.container_limits import map_large_pieces
from runtime.operations.ingestion.ingest_queue import IngestQueue, QueueState
from runtime.operations.ingestion.spool import FOLDER, Spool
from runtime.service.roles import WRITERS, ServiceRole
from warehouse.backup import copy_before_upgrade
from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")

RETRY_S = 2.0
"""Time between two attempts to open a catalog that is away."""
REPORT_S = 60.0
"""Time between two log lines about it."""


class StoppedError(Exception):
    """Report that the service was stopped while it waited for its catalog."""


@contextmanager
def open_warehouse(
    settings: Settings,
    mine: AbstractSet[ServiceRole],
    stop: threading.Event,
    on_away: Callable[[str], None],
) -> Iterator[Warehouse]:
    """Open the warehouse for writing; a catalog on PostgreSQL that is away is waited for.

    Raises:
        StoppedError: `stop` was set meanwhile.
        UsageError: roles in separate processes share an embedded warehouse.
        TemporaryError: another process writes an embedded warehouse.
        WarehouseError: no later attempt would succeed, such as a refused password.
    """
    map_large_pieces()
    with _open(settings, mine, stop, on_away) as warehouse:
        yield warehouse


def _open(
    settings: Settings,
    mine: AbstractSet[ServiceRole],
    stop: threading.Event,
    on_away: Callable[[str], None],
) -> Warehouse:
    reported_at: float | None = None
    copy: Path | None = None
    while not stop.is_set():
        try:
            if copy is None and (copy := copy_before_upgrade(settings, datetime.now(UTC))):
                log.info("the catalog was copied before its upgrade", extra={"copy": str(copy)})
            return Warehouse.open(settings, write=True)
        except TemporaryError as error:
            if not settings.warehouse.catalog:
                raise _explain_sharing(error, mine) from error
            on_away(error.message)
            if reported_at is None or time.monotonic() - reported_at >= REPORT_S:
                log.warning("the catalog is away: it is waited for", extra={"why": error.message})
                reported_at = time.monotonic()
        stop.wait(RETRY_S)
    raise StoppedError


def _explain_sharing(error: TemporaryError, mine: AbstractSet[ServiceRole]) -> Exception:
    """Return the error of an embedded warehouse that another process writes."""
    if mine >= WRITERS:
        return error
    names = ", ".join(sorted(mine & WRITERS))
    return UsageError(
        f"{names} cannot share this warehouse: {error.message}",
        hint="run every role in one process (fallow up), or set warehouse.catalog = "
        "postgres:... for all of them",
    )


@contextmanager
def open_queue(
    settings: Settings,
    warehouse: Warehouse,
    roles: AbstractSet[ServiceRole],
    observe: Callable[[QueueState], None],
) -> Iterator[IngestQueue | None]:
    """Yield the queue of a collector whose catalog or rows are elsewhere; None = it needs none.

    An embedded warehouse shares the disk on which its rows would wait.

    Raises:
        TemporaryError: another process has the queue's folder.
        ForeignWarehouseError: the rows that wait are another warehouse's.
    """
    place = warehouse.place
    if ServiceRole.collector not in roles or (place.embedded and not place.remote):
        yield None
        return
    warehouse.marks.check("queue")
    wanted = settings.warehouse
    with Spool(place.home / FOLDER, int(wanted.queue_bytes)) as spool:
        queue = IngestQueue(warehouse, spool, most_rows=wanted.queue_rows, observe=observe)
        try:
            yield queue
        finally:
            queue.close()
