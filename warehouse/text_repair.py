"""Repair rows of before Fallow checked the texts that it stores, as ingest would store them now.

A row that sources wrote and that ingest would refuse is removed, and listed as a rejection. What
Fallow itself wrote of such a row keeps its hours and its money: there the text is escaped. Hours
are accounted again, because a list of devices may have become unknown.
"""

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from fallow.clean_texts import build_unclean_condition, clean_rows
from fallow.rejections import build_batch
from fallow.tables import Batch
from warehouse import dirty
from warehouse.ingest import upsert_rows
from warehouse.storage import list_tables

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

_WRITTEN = ("device", "rollup_5m", "rollup_1h", "ledger", "ledger_1h", "ledger_1d")
"""Tables that copy texts of sources, and are kept longer than these."""
_OWN = {"action", "finding", "saving", "plugin_run", "cursor", "rejection"}
"""Journals and results of Fallow's own."""


class TextRepair(msgspec.Struct, frozen=True):
    """How many rows of a table were removed, and in how many a text was made clean."""

    table: str
    removed: int
    cleaned: int


def repair_texts(warehouse: "Warehouse", *, changes: bool = True) -> list[TextRepair]:
    """Repair all tables, each in a transaction; return what was repaired.

    A run that was killed is continued by the next. Archived days are left as they are. `changes`
    False: only count.
    """
    sources = [t for t in list_tables("append", "upsert") if t not in _OWN | {*_WRITTEN}]
    repairs = (_repair(warehouse, table, changes=changes) for table in (*sources, *_WRITTEN))
    return [repair for repair in repairs if repair is not None]


def _repair(warehouse: "Warehouse", table: str, *, changes: bool) -> TextRepair | None:
    unclean = build_unclean_condition(table)
    with warehouse.catalog_cursor() as cursor:
        sql = f'SELECT * FROM lake.main."{table}" WHERE {unclean}'
        rows = Batch.of(table, _read_columns(cursor.execute(sql).to_arrow_table())).rows
    clean, rejections = clean_rows(table, rows, keeps_all=table in _WRITTEN)
    if not rejections:
        return None
    removed = rows.num_rows - clean.num_rows
    repair = TextRepair(table, removed, sum(r.count for r in rejections) - removed)
    if not changes:
        return repair
    cluster, at = warehouse.settings.cluster, warehouse.clock()
    with warehouse.transaction() as cursor:
        cursor.execute(f'DELETE FROM "{table}" WHERE {unclean}')
        cursor.register("clean", clean)
        cursor.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM clean')
        cursor.unregister("clean")
        if table not in _WRITTEN:
            listed = build_batch(rejections, cluster=cluster, source="upgrade", at=at)
            upsert_rows(cursor, "rejection", listed.rows)
            dirty.mark_all_hours(cursor)
    return repair


def _read_columns(rows: pa.Table) -> dict[str, object]:
    return {name: rows.column(name) for name in rows.column_names}
