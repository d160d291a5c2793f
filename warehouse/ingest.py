"""Store batches once: whatever is sent twice, late or out of order, the tables end up the same.

A call is one transaction. Append tables keep the first row of a key; upsert tables keep the
newest row, column by column, and a null never overwrites a value. Rows from the future are left
out and counted. New sample rows mark their 5-minute buckets dirty for the rollup.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fallow import tables
from fallow.errors import WarehouseError
from fallow.tables import Batch
from warehouse.storage import storage

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

BUCKET = timedelta(minutes=5)
_SPEAKS_FOR = 1.25
"""A look speaks for 1.25 intervals: a quarter of jitter is not a gap."""

_EARLIEST = {"first_seen", "created_at"}
_LATEST = {"last_seen", "done_until"}


class Ingested(msgspec.Struct, frozen=True):
    """What became of the rows of one call.

    rows = added + duplicates + future; `added` are rows that were new, or that changed something
    in a table kept up to date.
    """

    rows: int = 0
    added: int = 0
    duplicates: int = 0
    future: int = 0


def ingest(warehouse: "Warehouse", batches: Iterable[Batch]) -> Ingested:
    """Store batches in one transaction; see `Warehouse.ingest`."""
    gathered: dict[str, list[pa.Table]] = {}
    for batch in batches:
        gathered.setdefault(batch.table, []).append(batch.rows)
    limit = warehouse.clock() + warehouse.settings.warehouse.future_tolerance
    limit = limit.astimezone(UTC).replace(tzinfo=None)
    rows = added = future = 0
    work: list[tuple[str, pa.Table]] = []
    for table, parts in gathered.items():
        if storage(table).mode == "derived":
            raise WarehouseError(f"table {table!r} is derived; nothing is ingested into it")
        whole = pa.concat_tables(parts)
        rows += whole.num_rows
        present = _until(whole, storage(table).moment, limit)
        future += whole.num_rows - present.num_rows
        if present.num_rows:
            work.append((table, present))
    if work:
        with warehouse.transaction() as cursor:
            for table, present in work:
                cursor.register("incoming", present)
                if storage(table).mode == "append":
                    new = _append(cursor, table, present)
                else:
                    new = _upsert(cursor, table, present)
                cursor.unregister("incoming")
                if table == "sample" and new:
                    _mark_dirty(cursor, present)
                added += new
    return Ingested(rows, added, rows - added - future, future)


def _until(rows: pa.Table, moment: str | None, limit: datetime) -> pa.Table:
    if moment is None:
        return rows
    ahead = pc.greater(rows.column(moment), pa.scalar(limit, pa.timestamp("us")))
    if not pc.any(ahead).as_py():
        return rows
    return rows.filter(pc.invert(pc.fill_null(ahead, fill_value=False)))


def _append(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> int:
    keys = tables.key(table)
    on = " AND ".join([*_range(table, rows), *(f't."{k}" = b."{k}"' for k in keys)])
    source = "incoming" if _distinct(rows, keys) else f"({_first(table)})"
    return _count(
        cursor.execute(
            f'MERGE INTO "{table}" t USING {source} b ON {on} WHEN NOT MATCHED THEN INSERT BY NAME'
        )
    )


def _range(table: str, rows: pa.Table) -> list[str]:
    """Return literal bounds on the moment, so that the engine opens only files in that range."""
    moment = storage(table).moment
    if moment is None or rows.column(moment).null_count or moment not in tables.key(table):
        return []
    ends = pc.min_max(rows.column(moment)).as_py()
    low, high = (f"TIMESTAMP '{ends[end].isoformat(sep=' ')}'" for end in ("min", "max"))
    if low == high:
        return [f't."{moment}" = {low}']
    return [f't."{moment}" >= {low}', f't."{moment}" <= {high}']


def _distinct(rows: pa.Table, keys: tuple[str, ...]) -> bool:
    groups = rows.select(keys).group_by(list(keys), use_threads=False).aggregate([])
    return bool(groups.num_rows == rows.num_rows)


def _first(table: str) -> str:
    """Return SQL for one row per key of `incoming`: the same one in whatever order they came."""
    keys = ", ".join(f'"{k}"' for k in tables.key(table))
    rest = ", ".join(f'"{c.name}" NULLS LAST' for c in tables.columns(table) if not c.key)
    place = f"row_number() OVER (PARTITION BY {keys} ORDER BY {rest})"
    return f"SELECT * FROM incoming QUALIFY {place} = 1"


def _upsert(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> int:
    keys = tables.key(table)
    newest = storage(table).newest
    others = [c.name for c in tables.columns(table) if not c.key]
    source = "incoming"
    if not _distinct(rows, keys):
        source = f"({_collapsed(table, others, newest)})"
    newer = "true" if newest is None else f'coalesce(b."{newest}" >= t."{newest}", true)'
    values = {name: _merged(name, newer) for name in others}
    changed = " OR ".join(f'({value}) IS DISTINCT FROM t."{n}"' for n, value in values.items())
    updates = ", ".join(f'"{name}" = {value}' for name, value in values.items())
    on = " AND ".join([*_range(table, rows), *(f't."{k}" = b."{k}"' for k in keys)])
    return _count(
        cursor.execute(
            f'MERGE INTO "{table}" t USING {source} b ON {on}'
            f" WHEN MATCHED AND ({changed}) THEN UPDATE SET {updates}"
            " WHEN NOT MATCHED THEN INSERT BY NAME"
        )
    )


def _merged(name: str, newer: str) -> str:
    if name in _EARLIEST:
        return f'least(t."{name}", b."{name}")'
    if name in _LATEST:
        return f'greatest(t."{name}", b."{name}")'
    return (
        f'CASE WHEN {newer} THEN coalesce(b."{name}", t."{name}")'
        f' ELSE coalesce(t."{name}", b."{name}") END'
    )


def _collapsed(table: str, others: list[str], newest: str | None) -> str:
    keys = ", ".join(f'"{k}"' for k in tables.key(table))
    # Among equally new rows the greatest value wins, so that their order does not matter.
    recency = f'"{newest}"' if newest else "NULL"
    picked = []
    for name in others:
        if name in _EARLIEST:
            value = f'min("{name}")'
        elif name in _LATEST:
            value = f'max("{name}")'
        else:
            order = f'{recency} DESC NULLS LAST, "{name}" DESC'
            value = f'first("{name}" ORDER BY {order}) FILTER ("{name}" IS NOT NULL)'
        picked.append(f'{value} AS "{name}"')
    return f"SELECT {keys}, {', '.join(picked)} FROM incoming GROUP BY {keys}"


def _mark_dirty(cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Mark the buckets the rows lie in, and the next one where a look speaks into it."""
    step = np.timedelta64(BUCKET)
    ts = rows.column("ts").to_numpy()
    seconds = np.nan_to_num(rows.column("interval_s").to_numpy().astype(np.float64))
    reach = ts + (seconds * _SPEAKS_FOR * 1e6).astype("timedelta64[us]")
    first = ts.astype("int64") // step.astype("timedelta64[us]").astype("int64")
    last = (reach.astype("int64") - 1) // step.astype("timedelta64[us]").astype("int64")
    last = np.clip(last, first, first + 1)
    cluster = rows.column("cluster").combine_chunks()
    marks = pa.table(
        {
            "cluster": pa.concat_arrays([cluster, cluster]),
            "bucket": np.concatenate([first, last]),
        }
    )
    marks = marks.group_by(["cluster", "bucket"], use_threads=False).aggregate([])
    buckets = marks.column("bucket").to_numpy() * step.astype("timedelta64[us]")
    marks = marks.set_column(1, "bucket", pa.array(buckets.astype("datetime64[us]")))
    cursor.register("marks", marks)
    cursor.execute(
        "INSERT INTO dirty BY NAME SELECT * FROM marks ANTI JOIN dirty USING (cluster, bucket)"
    )
    cursor.unregister("marks")


def _count(done: duckdb.DuckDBPyConnection) -> int:
    row: Any = done.fetchone()
    return int(row[0]) if row else 0
