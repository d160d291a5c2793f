"""Store work that failures destroyed: the table `work_lost`, from which `lost` is derived."""

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from fallow.tables import get_schema
from fallow.window import Window
from warehouse import dirty

if TYPE_CHECKING:
    from datetime import datetime

    from warehouse.lake import Warehouse

KEPT_COLUMNS = '"end" >= $since AND "end" < $until'


def write_work_lost(wh: "Warehouse", rows: pa.Table, window: Window) -> int:
    """Replace the `work_lost` rows whose failure is in a window; return how many were written.

    The hours of each new, removed or changed row are marked, so that the accounting that calls this
    writes them again: work that the ledger has as productive may turn out to be lost. Equal rows
    mark nothing.
    """
    bounds = window.bounds()
    names = ", ".join(f'"{name}"' for name in get_schema("work_lost").names)
    old = wh.query(f"SELECT {names} FROM work_lost WHERE {KEPT_COLUMNS}", bounds).to_pylist()
    rows = rows.cast(get_schema("work_lost"))
    new = [row for row in rows.to_pylist() if bounds["since"] <= row["end"] < bounds["until"]]
    changed = [row for row in (*old, *new) if row not in old or row not in new]
    if not changed:
        return 0
    wh.replace(
        "work_lost", pa.Table.from_pylist(new, get_schema("work_lost")), KEPT_COLUMNS, bounds
    )
    with wh.transaction() as cursor:
        for start, end in {(_floor_hour(row["start"]), _floor_hour(row["end"])) for row in changed}:
            dirty.mark_hours(cursor, start, end + timedelta(hours=1), is_taken=True)
    return len(new)


def _floor_hour(timestamp: "datetime") -> "datetime":
    return timestamp.replace(minute=0, second=0, microsecond=0)
