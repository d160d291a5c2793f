"""Open the warehouse in a worker: one snapshot, one thread, a bounded memory."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from fallow.settings import Settings
from warehouse.lake import Warehouse, get_utc_now
from warehouse.statements import fetch_row

if TYPE_CHECKING:
    import duckdb

MEMORY = "1200MB"
"""Engine memory of one worker where `warehouse.memory_limit` is empty. With Arrow, Polars and
Python a task stays below 1.5 GB."""


def open_snapshot(
    settings: Settings, snapshot: int, clock: Callable[[], datetime] = get_utc_now
) -> Warehouse:
    """Open the warehouse for reading, as it was at a snapshot.

    Raises: as `Warehouse.open`.
    """
    wanted = settings.warehouse
    bounds = {"threads": wanted.threads or 1, "memory_limit": wanted.memory_limit or MEMORY}
    bounded = settings.model_copy(update={"warehouse": wanted.model_copy(update=bounds)})
    return Warehouse.open(bounded, snapshot=snapshot, clock=clock)


def read_snapshot(warehouse: Warehouse) -> int:
    """Return the number of the newest snapshot."""
    with warehouse.snapshot() as cursor:
        return get_snapshot(cursor)


def get_snapshot(cursor: "duckdb.DuckDBPyConnection") -> int:
    """Return the number of the cursor's snapshot."""
    row = fetch_row(cursor, "SELECT id FROM ducklake_current_snapshot('lake')")
    return int(row[0]) if row else 0
