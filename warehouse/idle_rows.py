"""Store the idle rows of whole hours: what the judge of idleness reads of hours that have passed.

The judge makes them (`analyzers/idle/kept_rows.py`). They follow from `rollup_5m`, `signal` and
`allocation` of an hour and of those around it: whoever writes signals of an hour forgets it here in
the same transaction, so that no reader takes rows of before.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from fallow.tables import get_schema
from fallow.window import Window
from warehouse.opened import OpenWarehouse
from warehouse.statements import fetch_row, run_change

if TYPE_CHECKING:
    import duckdb

HOUR = timedelta(hours=1)
_WITHIN = "bucket >= $since AND bucket < $until"


def write_idle_rows(
    wh: OpenWarehouse, tables: Iterable[pa.Table], hours: Window, shape: str
) -> int:
    """Replace the idle rows of whole hours, and list these hours; return how many rows.

    Until then the hours are listed with a shape that nobody reads. Hours that another process
    forgets meanwhile, or makes as well, stay out of the list: their rows may be of before.
    """
    bounds = hours.bounds()
    count = round(hours.seconds / HOUR.seconds)
    starts = [bounds["since"] + number * HOUR for number in range(count)]
    now = wh.clock().replace(tzinfo=None)
    begun = f"begun {uuid4()}"
    listed = [{"bucket": start, "shape": begun, "written_at": now} for start in starts]
    wh.replace("idle_hour", pa.Table.from_pylist(listed, get_schema("idle_hour")), _WITHIN, bounds)
    rows = pa.concat_tables([get_schema("idle_row").empty_table(), *tables])
    rows = rows.sort_by([("device", "ascending"), ("bucket", "ascending"), ("line", "ascending")])
    written = wh.replace("idle_row", rows, _WITHIN, bounds, is_sorted=True)
    with wh.transaction() as cursor:
        others = f"DELETE FROM idle_hour WHERE {_WITHIN} AND shape <> $begun"
        run_change(cursor, others, {**bounds, "begun": begun})
        mine = f"UPDATE idle_hour SET shape = $shape WHERE {_WITHIN}"
        run_change(cursor, mine, {**bounds, "shape": shape})
    return written


def forget_hours(cursor: "duckdb.DuckDBPyConnection", since: datetime, until: datetime) -> None:
    """Take the hours that [since, until), naive UTC, touches out of the list of kept ones."""
    # Most homes have none, and a deletion costs the lake more than this question.
    if not fetch_row(cursor, "SELECT bucket FROM lake.main.idle_hour LIMIT 1"):
        return
    cursor.execute(
        "DELETE FROM lake.main.idle_hour WHERE bucket > $since - INTERVAL 1 HOUR"
        " AND bucket < $until",
        {"since": since, "until": until},
    )


def delete_idle_rows(wh: OpenWarehouse, before: datetime) -> None:
    """Delete the rows of old hours: where they are judged, they follow from rollups again."""
    with wh.snapshot() as cursor:
        sql = "SELECT bucket FROM lake.main.idle_hour WHERE bucket < $before LIMIT 1"
        if not fetch_row(cursor, sql, {"before": before}):
            return
    with wh.transaction() as cursor:
        for table in ("idle_hour", "idle_row"):
            cursor.execute(f"DELETE FROM lake.main.{table} WHERE bucket < $1", [before])
