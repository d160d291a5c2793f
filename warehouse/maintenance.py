"""Keep the warehouse small and fast, report what it holds, check that it can be read.

Compaction has six kinds of step. Each step is one transaction, so that a process killed at any time
leaves the state before or after a step, and the next call continues:

    expire    delete snapshots older than a day: no query reads them
    clean     remove the files that only those snapshots needed
    flush     write out the rows of the tables that the catalog itself stores: where many are dead,
              and before a rewrite (the extension cannot compute statistics of its DOUBLE columns)
    rewrite   rewrite files with many deleted rows, without those rows
    merge     merge many small files of a partition into one sorted file
    sweep     list files that no snapshot ever had, and remove those that were listed for seven
              days (`orphans`). Not while a stage runs: it will register such files

Files that a merge or a rewrite replaces stay on disk for a day, so that running queries can finish.
Where more than `MOST_REPLACED_FILES` wait, those that were replaced over an hour ago are removed.
While a backup copies files, `clean` and `sweep` remove none: the next call does.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from fallow import tables
from fallow.errors import WarehouseError
from fallow.system.sqlite_file import hold_lock
from warehouse import schema, tiers
from warehouse.catalog import BACKUP_LOCK, CATALOG_FILE, refuse_special_files
from warehouse.orphans import sweep_orphans
from warehouse.stages.files import correct_partitions
from warehouse.stages.lease import is_stage_running
from warehouse.statements import fetch_row, fetch_rows
from warehouse.steps import load_step
from warehouse.storage import get_storage

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.warehouse")

SNAPSHOT_AGE = timedelta(days=1)
"""How long replaced files and old snapshots stay at least; `_compute_cutoff` adds the day's end."""

SMALL = 64 << 20
"""Bytes below which a file is merged with its neighbours: one hour of samples of 10,000 GPUs."""

HOLED = 0.05
"""Share of a file's rows that must be deleted before it is rewritten."""

INLINED = 1_000
"""Rows of an inlined table, dead ones included, at which it is written out: marks of some days."""

MOST_LIVE_FILES = 2_000
"""Live data files at which the service compacts before its next maintenance is due: a query opens
each file of its window. One scrape every 2 s made 2,174 files in 47 minutes."""

MOST_REPLACED_FILES = 50_000
"""Replaced files that may wait for the end of their day. With more of them maintenance keeps only
those of the last hour, which is longer than any query of ours."""

EARLY_AGE = timedelta(hours=1)
_SCHEDULED = "__ducklake_metadata_lake.ducklake_files_scheduled_for_deletion"

_COLUMNS = pa.schema(
    {
        "tier": pa.string(),
        "table": pa.string(),
        "rows": pa.int64(),
        "bytes": pa.int64(),
        "files": pa.int64(),
        "oldest": pa.timestamp("us"),
        "newest": pa.timestamp("us"),
        "bytes_per_sample": pa.float64(),
    }
)


class FileCounts(msgspec.Struct, frozen=True):
    """Data files of the lake: those that a query may open, and those that wait for removal."""

    live: int
    replaced: int


class CompactionResult(msgspec.Struct, frozen=True):
    """What one compaction did, in files; `expired` counts snapshots."""

    merged: int = 0
    rewritten: int = 0
    written: int = 0
    expired: int = 0
    removed: int = 0
    orphans: int = 0

    def __str__(self) -> str:
        return (
            f"merged {self.merged} and rewrote {self.rewritten} files into {self.written}, removed "
            f"{self.removed} replaced files, {self.orphans} orphans and {self.expired} snapshots"
        )


def read_status(warehouse: "Warehouse") -> pa.Table:
    """Return what each tier holds, from the catalog: no data file of a table is opened.

    tier: hot (raw samples), warm (rollups), cold (archived days), ledger (other tables), retired
    (replaced files that wait for their removal), catalog. rows, bytes, files; oldest and newest
    in UTC, whole days in the cold tier; bytes_per_sample of raw samples: bytes on disk per measured
    value, identities included.
    """
    names = tables.list_table_names()
    time_columns = {name: get_storage(name).time_column for name in names}
    measured = list_measured_columns()
    parameters = {
        "names": list(names),
        "tiers": [_name_tier(name) for name in names],
        "time_columns": list(time_columns.values()),
        "measured": list(measured),
        "wanted": sorted({*measured, *(m for m in time_columns.values() if m)}),
    }
    with warehouse.snapshot() as cursor:
        status = cursor.execute(load_step("maintenance/status"), parameters).to_arrow_table()
        rows = status.to_pylist()
        retired = cursor.execute(load_step("maintenance/retired")).fetchall()
        rows += [_delete_retired(warehouse, retired), _compact_catalog(warehouse, cursor)]
    return pa.Table.from_pylist(rows, schema=_COLUMNS)


def count_files(warehouse: "Warehouse") -> FileCounts:
    """Return how many data files the lake has; only the catalog is read."""
    with warehouse.snapshot() as cursor:
        row = fetch_row(cursor, load_step("maintenance/file_counts"))
    live, replaced = row or (0, 0)
    return FileCounts(int(live), int(replaced))


def compact_warehouse(
    warehouse: "Warehouse",
    *,
    on_step: Callable[[str], None] = lambda _: None,
    is_shared: bool = True,
    removes_orphans: bool = False,
) -> CompactionResult:
    """Compact the lake and the cold tier; call `on_step` before and after each step's commit.

    While the cold tier's store is away, only the sweep of its files is left out. `is_shared` False:
    no other process and no query of this one reads meanwhile, so that what was replaced is removed
    at once. `removes_orphans`: those that wait for a person, too. A warehouse in memory has no
    files.

    Raises:
        TemporaryError: the disk is full, or the catalog is not reachable. Completed steps stay
            complete and the next call continues.
        WarehouseError: files of a table cannot be combined; those of the others are.
    """
    if warehouse.place.in_memory:
        return CompactionResult()
    if not warehouse.place.remote:
        refuse_special_files(warehouse.place.data)
    cutoff = _compute_cutoff(warehouse) if is_shared else datetime.max.replace(tzinfo=UTC)
    can_remove = warehouse.marks.stamp("data")
    expired = _run_function(warehouse, "expire_snapshots", on_step, cutoff) if can_remove else 0
    with _list_removals(warehouse, can_remove=can_remove) as is_allowed:
        removed = 0
        if is_allowed:
            removed = _run_function(warehouse, "cleanup_old_files", on_step, cutoff)
        if is_allowed and count_files(warehouse).replaced > MOST_REPLACED_FILES:
            early_expired, early_removed = _remove_early(warehouse, on_step)
            expired, removed = expired + early_expired, removed + early_removed
    _flush_inlined(warehouse, on_step)
    correct_partitions(warehouse)
    combined = _combine_all(warehouse, on_step)
    with _list_removals(warehouse, can_remove=can_remove) as is_allowed:
        # A running stage will register files that no snapshot has yet.
        can_sweep = is_allowed and not is_stage_running(warehouse)
        orphans = sweep_orphans(warehouse, is_approved=removes_orphans) if can_sweep else 0
    on_step("orphans swept")
    if combined.failures:
        table, error = next(iter(combined.failures.items()))
        raise WarehouseError(
            f"files of {len(combined.failures)} tables are not combined, such as {table}: "
            f"{error.message}",
            hint=error.hint,
        )
    merged, rewritten = combined.merged, combined.rewritten
    return CompactionResult(merged, rewritten, combined.written, expired, removed, orphans)


@contextmanager
def _list_removals(warehouse: "Warehouse", *, can_remove: bool) -> Iterator[bool]:
    """Yield whether files may be removed now: not while a backup copies them."""
    if not can_remove:
        yield False
        return
    with hold_lock(warehouse.place.home / BACKUP_LOCK) as is_held:
        if not is_held:
            log.info("a backup is being written: the next compaction removes replaced files")
        yield is_held


def list_measured_columns() -> tuple[str, ...]:
    """Return the columns of `sample` that hold measured values, not identities."""
    named = {"gpu_index", "sharers", "interval_s"}
    kinds = {"i16", "i32", "i64", "f32", "f64"}
    return tuple(
        c.name
        for c in tables.list_columns("sample")
        if c.type in kinds and not c.key and c.name not in named
    )


def _name_tier(table: str) -> str:
    if get_storage(table).mode == "append":
        return "hot"
    return "warm" if table in tiers.ROLLED else "ledger"


def _delete_retired(
    warehouse: "Warehouse", files: list[tuple[str | None, bool, int | None]]
) -> object:
    root, total_bytes = warehouse.place.data, 0
    for path, relative, size in files:
        if size is not None:
            total_bytes += size
        elif path is not None and not warehouse.place.remote:
            file = Path(root, path) if relative else Path(path)
            total_bytes += file.stat().st_size if file.exists() else 0
    return {
        "tier": "retired",
        "table": "files to remove",
        "files": len(files),
        "bytes": total_bytes,
    }


def _compact_catalog(warehouse: "Warehouse", cursor: "duckdb.DuckDBPyConnection") -> object:
    row = fetch_row(
        cursor,
        "SELECT count(*), min(snapshot_time), max(snapshot_time) FROM ducklake_snapshots('lake')",
    )
    snapshots, oldest, newest = row or (0, None, None)
    path = warehouse.place.home / CATALOG_FILE
    return {
        "tier": "catalog",
        "table": f"snapshots, schema {schema.read_version(cursor)}",
        "rows": snapshots,
        "bytes": path.stat().st_size if warehouse.place.embedded else None,
        "files": 1 if warehouse.place.embedded else None,
        "oldest": oldest and oldest.astimezone(UTC).replace(tzinfo=None),
        "newest": newest and newest.astimezone(UTC).replace(tzinfo=None),
    }


def _compute_cutoff(warehouse: "Warehouse") -> datetime:
    """Return the timestamp (aware UTC) before which snapshots and files may be deleted.

    It is the last microsecond of a day, because a SQLite catalog compares only the dates: for
    "older than noon" it deletes the whole day, also files that were replaced a second ago, and
    their readers fail. For a day's end SQLite and PostgreSQL delete the same.
    """
    oldest_read = warehouse.clock().astimezone(UTC) - SNAPSHOT_AGE
    return oldest_read.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
        microseconds=1
    )


def _run_function(
    warehouse: "Warehouse", function: str, on_step: Callable[[str], None], before: datetime
) -> int:
    with warehouse.transaction() as cursor:
        rows = cursor.execute(
            f"CALL ducklake_{function}('lake', older_than => $before)", {"before": before}
        ).fetchall()
        on_step(f"{function} done")
    on_step(f"{function} committed")
    return len(rows)


def _remove_early(warehouse: "Warehouse", on_step: Callable[[str], None]) -> tuple[int, int]:
    """Expire snapshots older than an hour, and remove files that are replaced for so long.

    Snapshots are named by number, because a SQLite catalog compares ages by day only.
    """
    before = warehouse.clock().astimezone(UTC) - EARLY_AGE
    with warehouse.transaction() as cursor:
        rows = cursor.execute(
            "SELECT snapshot_id FROM ducklake_snapshots('lake') WHERE snapshot_time < $before"
            " AND snapshot_id < (SELECT max(snapshot_id) FROM ducklake_snapshots('lake'))",
            {"before": before},
        ).fetchall()
        old = [number for (number,) in rows]
        if old:
            call = "CALL ducklake_expire_snapshots('lake', versions => $versions)"
            cursor.execute(call, {"versions": old}).fetchall()
    on_step("early expiry committed")
    # `cleanup_old_files` compares ages by day too: what is due becomes two days older.
    with warehouse.transaction() as cursor:
        cursor.execute(
            f"UPDATE {_SCHEDULED} SET schedule_start ="
            " schedule_start::TIMESTAMPTZ - INTERVAL 2 DAY"
            " WHERE schedule_start::TIMESTAMPTZ < $before",
            {"before": before},
        )
    on_step("early removal prepared")
    cutoff = _compute_cutoff(warehouse)
    return len(old), _run_function(warehouse, "cleanup_old_files", on_step, cutoff)


def _flush_inlined(warehouse: "Warehouse", on_step: Callable[[str], None]) -> None:
    metadata = "__ducklake_metadata_lake"
    holed = {table for table, is_holed, _ in _find_crowded(warehouse) if is_holed}
    with warehouse.snapshot() as cursor:
        inlined = cursor.execute(
            "SELECT live_table.table_name, inlined.table_name"
            f" FROM {metadata}.ducklake_inlined_data_tables AS inlined"
            f" INNER JOIN {metadata}.ducklake_table AS live_table USING (table_id)"
            " WHERE live_table.end_snapshot IS NULL"
        ).fetchall()
        grown = {
            table
            for table, rows in inlined
            if fetch_row(
                cursor,
                f'SELECT count(*) > {0 if table in holed else INLINED} FROM {metadata}."{rows}"',
            )
            == (True,)
        }
    for table in sorted(grown):
        with warehouse.transaction() as cursor:
            call = f"CALL ducklake_flush_inlined_data('lake', table_name => '{table}')"
            cursor.execute(call).fetchall()
        on_step(f"flush {table} committed")


def _find_crowded(warehouse: "Warehouse") -> list[tuple[str, bool, bool]]:
    with warehouse.snapshot() as cursor:
        sql = load_step("maintenance/crowded")
        return cursor.execute(sql, {"small": SMALL, "threshold": HOLED}).fetchall()


class _CombinedFiles(msgspec.Struct):
    """How many files were merged, rewritten and written, and why some tables have theirs still."""

    merged: int = 0
    rewritten: int = 0
    written: int = 0
    failures: dict[str, WarehouseError] = {}


def _combine_all(warehouse: "Warehouse", on_step: Callable[[str], None]) -> _CombinedFiles:
    """Rewrite and merge the files of each table; one that fails keeps no other from its turn."""
    result = _CombinedFiles()
    for is_merge in (False, True):
        for table, holed, crowded in _find_crowded(warehouse):
            if table in result.failures or not (crowded if is_merge else holed):
                continue
            try:
                _check_row_counts(warehouse, table)
                before, after = _combine_files(warehouse, table, on_step, is_merge=is_merge)
            except WarehouseError as error:
                result.failures[table] = error
                continue
            result.written += after
            if is_merge:
                result.merged += before
            else:
                result.rewritten += before
    return result


def _check_row_counts(warehouse: "Warehouse", table: str) -> None:
    """Refuse files whose rows the catalog counts otherwise: combining them ends the process."""
    with warehouse.snapshot() as cursor:
        counts = {
            n: c for t, n, c in fetch_rows(cursor, load_step("maintenance/files")) if t == table
        }
        listed = fetch_rows(
            cursor,
            "SELECT data_file FROM ducklake_list_files('lake', $table)"
            " WHERE delete_file IS NOT NULL OR data_file_size_bytes < $small",
            {"table": table, "small": SMALL},
        )
        paths = [path for (path,) in listed]
        footers = "SELECT file_name, num_rows FROM parquet_file_metadata($paths)"
        for path, rows in fetch_rows(cursor, footers, {"paths": paths}) if paths else ():
            count = counts.get(path.rpartition("/")[2], rows)
            if rows != count:
                raise WarehouseError(
                    f"{path} holds {rows:,} rows, the catalog says {count:,}",
                    hint="restore the warehouse from a backup: fallow restore; `fallow warehouse"
                    " verify` lists what is damaged",
                )


def _combine_files(
    warehouse: "Warehouse", table: str, on_step: Callable[[str], None], *, is_merge: bool
) -> tuple[int, int]:
    function = "merge_adjacent_files" if is_merge else "rewrite_data_files"
    option = f"max_file_size => {SMALL}" if is_merge else f"delete_threshold => {HOLED}"
    with warehouse.transaction() as cursor:
        rows = cursor.execute(f"CALL ducklake_{function}('lake', '{table}', {option})").fetchall()
        on_step(f"{function} {table} done")
    on_step(f"{function} {table} committed")
    return sum(row[2] for row in rows), sum(row[3] for row in rows)
