"""Work that failures threw away: the table `work_lost`, of which the ledger's `lost` is made."""

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from fallow.tables import schema
from fallow.window import Window
from warehouse import dirty

if TYPE_CHECKING:
    from datetime import datetime

    from warehouse.lake import Warehouse

KEPT_COLUMNS = '"end" >= $since AND "end" < $until'


def write_work_lost(wh: "Warehouse", rows: pa.Table, window: Window) -> int:
    """Put `work_lost` rows in the place of those whose failure lies in a window; return how many.

    The ledger owes the hours of each row that is new, gone or other than before: work that was
    posted as productive is found lost afterwards. Writing the same rows again owes nothing.
    """
    bounds = window.bounds()
    names = ", ".join(f'"{name}"' for name in schema("work_lost").names)
    old = wh.query(f"SELECT {names} FROM work_lost WHERE {KEPT_COLUMNS}", bounds).to_pylist()
    rows = rows.cast(schema("work_lost"))
    new = [row for row in rows.to_pylist() if bounds["since"] <= row["end"] < bounds["until"]]
    changed = [row for row in (*old, *new) if row not in old or row not in new]
    if not changed:
        return 0
    wh.replace("work_lost", pa.Table.from_pylist(new, schema("work_lost")), KEPT_COLUMNS, bounds)
    with wh.transaction() as cursor:
        for start, end in {(_floor_hour(row["start"]), _floor_hour(row["end"])) for row in changed}:
            dirty.mark_hours(cursor, start, end + timedelta(hours=1))
    return len(new)


def _floor_hour(timestamp: "datetime") -> "datetime":
    return timestamp.replace(minute=0, second=0, microsecond=0)
