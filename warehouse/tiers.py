"""Move days of rows from the lake to the cold tier, safe at any interruption.

    1 copy      the day's rows to a staged Parquet file, named after its content
    2 put       the file into the store, completely or not at all; read it back and compare
    3 commit    in one transaction: check that the rows are the same, register the file, delete
                the rows

Every view follows the registration. Until step 3 commits, the rows in the lake are valid and no
view reads the file; after it, the views read the file. Each step can be repeated. The file's name
consists of the day, the schema and a checksum of the rows: a repeated copy replaces itself, and a
copy of other rows never changes a file that a query may be reading.

Late rows of an archived day stay in the lake, where views read them, and become a second file of
that day at the next move. Rollups are replaced, not appended to: `restore_days` moves a day back
into the lake inside the transaction that replaces its buckets.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow import tables
from fallow.errors import TemporaryError
from fallow.settings.service import WarehouseSettings
from warehouse.cold_reach import find_place
from warehouse.cold_storage import ColdStore, open_store
from warehouse.failures import explain_errors
from warehouse.idle_rows import delete_idle_rows
from warehouse.opened import OpenWarehouse
from warehouse.statements import fetch_row, fetch_rows
from warehouse.steps import load_step
from warehouse.storage import get_storage, list_tables
from warehouse.views.tiers import TierState, define_view, read_files

if TYPE_CHECKING:
    import duckdb

RAW = tuple(t for t in list_tables("append") if get_storage(t).partition)
ROLLED = ("rollup_5m", "rollup_1h")
DAY = timedelta(days=1)


class MoveResult(msgspec.Struct, frozen=True):
    """What a move put into the cold tier."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


class ArchivedFile(msgspec.Struct, frozen=True):
    """One file of the cold tier: a table's rows of one day."""

    table: str
    day: datetime
    path: str
    rows: int
    bytes: int
    sha256: str


def move_to_cold(
    warehouse: OpenWarehouse, now: datetime, *, on_step: Callable[[str], None] = lambda _: None
) -> MoveResult:
    """Archive every whole day older than the settings keep; call `on_step` at each step.

    Raises:
        TemporaryError: the store is not reachable, the disk is full, or rows arrived meanwhile.
            Nothing is lost and nothing is hidden, and the next call continues.
        WarehouseError: the store refuses access.
    """
    _delete_signals(warehouse, compute_horizon(warehouse.settings.warehouse, "signal", now))
    place = open_reachable(warehouse)
    result = MoveResult()
    for table in (*RAW, *ROLLED):
        for day in _list_days(
            warehouse, table, compute_horizon(warehouse.settings.warehouse, table, now)
        ):
            with explain_errors(warehouse.place.name):  # the folder's errors, too
                archived = _archive_day(warehouse, place, table, day, on_step)
            result = MoveResult(
                result.files + 1, result.rows + archived.rows, result.bytes + archived.bytes
            )
    return result


def open_reachable(warehouse: OpenWarehouse) -> ColdStore:
    """Return the store; refuse one that is away, before anything is written for it.

    A folder that is not mounted would take the files, and hide them once it is mounted.

    Raises:
        TemporaryError: it is away.
    """
    place = open_store(warehouse.settings)
    with warehouse.snapshot() as cursor:
        used = read_state(warehouse, cursor).places()
    if place.root in warehouse.list_away(used):
        raise TemporaryError(
            f"the cold tier {place.root} is away: it has none of the archived files",
            hint="mount the folder, or correct warehouse.cold; nothing was moved or lost",
        )
    place.check()
    warehouse.marks.check("cold")
    return place


def _delete_signals(warehouse: OpenWarehouse, before: datetime) -> None:
    """Delete old signals and idle rows: they follow from the rollups, if such hours are written."""
    with warehouse.snapshot() as cursor:
        row = fetch_row(
            cursor, "SELECT count(*) FROM signal WHERE bucket < $before", {"before": before}
        )
    if row and row[0]:
        with warehouse.transaction() as cursor:
            cursor.execute("DELETE FROM signal WHERE bucket < $1", [before])
    delete_idle_rows(warehouse, before)


def compute_horizon(settings: WarehouseSettings, table: str, now: datetime) -> datetime:
    """Return the midnight (naive UTC); a table's days before it belong in the cold tier."""
    days = settings.raw_days if table in RAW else settings.warm_days
    horizon = now.astimezone(UTC).replace(tzinfo=None) - timedelta(days=days)
    return horizon.replace(hour=0, minute=0, second=0, microsecond=0)


def count_archived_days(warehouse: OpenWarehouse) -> dict[str, int]:
    """Return how many days are archived in each place; see `cold_reach`."""
    with warehouse.snapshot() as cursor:
        rows = cursor.execute("SELECT DISTINCT path, day FROM cold_file").fetchall()
    days = {(find_place(path), day) for path, day in rows}
    return dict(Counter(place for place, _ in days))


def read_state(warehouse: OpenWarehouse, cursor: "duckdb.DuckDBPyConnection") -> TierState:
    """Return in which tier rows are, as this transaction sees it."""
    if warehouse.place.in_memory:
        return TierState()
    # The lake asks the catalog six times for a table without rows, which most warehouses have here.
    if not fetch_row(cursor, load_step("maintenance/has_archived")):
        return TierState()
    files = fetch_rows(cursor, "SELECT noun, path FROM lake.main.cold_file ORDER BY ALL")
    return TierState(cold=tuple(files))


def build_source(noun: str, seen: TierState) -> str:
    """Return `noun AS (...)` over all tiers, for a WITH clause inside a write transaction.

    The engine searches the files of `seen` on a local disk, needed or not: leave out the others.
    """
    return f'"{noun}" AS NOT MATERIALIZED ({define_view(noun, seen, for_writer=True)})'


def restore_days(
    cursor: "duckdb.DuckDBPyConnection",
    seen: TierState,
    table: str,
    start: datetime,
    end: datetime,
) -> None:
    """Move a rollup's archived days of [start, end) back into the lake, where they are replaced."""
    paths = seen.overlap(table, start, end)
    if not paths:
        return
    cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {read_files(paths)}")
    cursor.execute(
        "DELETE FROM cold_file WHERE noun = $noun AND list_contains($paths, path)",
        {"noun": table, "paths": paths},
    )
    cursor.execute(  # maintenance removes the files once no snapshot reads them
        "INSERT INTO orphan_file BY NAME SELECT unnest($paths) AS path, 'cold' AS place,"
        " now()::TIMESTAMP AS first_seen, true AS was_named",
        {"paths": paths},
    )


def drop_archived(
    warehouse: OpenWarehouse,
    cursor: "duckdb.DuckDBPyConnection",
    table: str,
    rows: pa.Table,
    before: datetime,
) -> pa.Table:
    """Return the rows whose key no archived file has; files have only rows older than `before`.

    Raises:
        UnreadableDaysError: the store of these rows' days is away.
    """
    time_column = get_storage(table).time_column
    if table not in RAW or time_column is None or not rows.num_rows:
        return rows
    oldest, newest = pc.min_max(rows.column(time_column)).as_py().values()
    if oldest >= before:
        return rows
    files = read_state(warehouse, cursor).overlap(table, oldest, newest + timedelta(microseconds=1))
    if not files:
        return rows
    cursor.register("arriving", rows)
    on = ", ".join(f'"{name}"' for name in tables.get_key(table))
    with warehouse.reading_files(files):
        left = cursor.execute(
            f"SELECT * FROM arriving ANTI JOIN {read_files(files)} USING ({on})"
        ).to_arrow_table()
    cursor.unregister("arriving")
    return left


def _list_days(warehouse: OpenWarehouse, table: str, before: datetime) -> list[datetime]:
    time_column = get_storage(table).time_column
    with warehouse.transaction() as cursor:
        rows = cursor.execute(
            f'SELECT DISTINCT date_trunc(\'day\', "{time_column}")::TIMESTAMP FROM "{table}"'
            f' WHERE "{time_column}" < $before ORDER BY 1',
            {"before": before},
        ).fetchall()
    return [row[0] for row in rows]


def _archive_day(
    warehouse: OpenWarehouse,
    place: ColdStore,
    table: str,
    day: datetime,
    on_step: Callable[[str], None],
) -> ArchivedFile:
    folder = warehouse.place.home / "staging"
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f"{table}-{day:%Y%m%d}.parquet"
    where = {"start": day, "end": day + DAY}
    rows = f'FROM lake.main."{table}" WHERE {_write_span(table)}'
    try:
        with warehouse.transaction() as cursor:
            order = ", ".join(f'"{c}"' for c in get_storage(table).sort)
            cursor.execute(
                f"COPY (SELECT * {rows} ORDER BY {order}) TO '{staged}'"
                " (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2)",
                where,
            )
            print_ = _compute_checksum(cursor, table, f"FROM {read_files([str(staged)])}")
        on_step("copied")
        name = f"{table}-{day:%Y%m%d}-{_hash_schema(table)}-{print_[1]:016x}.parquet"
        path = f"{place.root}/{table}/month={day:%Y-%m}/day={day:%Y-%m-%d}/{name}"
        archived = ArchivedFile(
            table, day, path, print_[0], staged.stat().st_size, _hash_file(staged)
        )
        place.put(staged, path)
        on_step("put")
    finally:
        staged.unlink(missing_ok=True)
    with warehouse.transaction() as cursor:
        if _compute_checksum(cursor, table, f"FROM {read_files([path])}") != print_:
            raise TemporaryError(
                f"the archived file {path} does not read back as written",
                hint="nothing was lost: the rows are still in the lake; try again",
            )
        on_step("verified")
        if _compute_checksum(cursor, table, rows, where) != print_:
            raise TemporaryError(
                f"rows of {table} on {day:%Y-%m-%d} changed while they were archived",
                hint="nothing was lost: the next move takes them along",
            )
        cursor.execute(
            "INSERT INTO cold_file VALUES ($table, $day, $path, $rows, $bytes, $sha256)",
            msgspec.structs.asdict(archived),
        )
        on_step("registered")
        cursor.execute(f'DELETE FROM "{table}" WHERE {_write_span(table)}', where)
        on_step("deleted")
    on_step("committed")
    return archived


def _write_span(table: str) -> str:
    time_column = get_storage(table).time_column
    return f'"{time_column}" >= $start AND "{time_column}" < $end'


def _compute_checksum(
    cursor: "duckdb.DuckDBPyConnection",
    table: str,
    rows: str,
    parameters: dict[str, Any] | None = None,
) -> tuple[int, int]:
    """Return the number of rows and a checksum over all of them that ignores their order."""
    columns = ", ".join(f'"{c.name}"' for c in tables.list_columns(table))
    row = fetch_row(
        cursor, f"SELECT count(*), coalesce(bit_xor(hash({columns})), 0) {rows}", parameters or {}
    )
    return (int(row[0]), int(row[1])) if row else (0, 0)


@cache
def _hash_schema(table: str) -> str:
    """Return a tag of the table's schema: files of one tag can be read as one."""
    return hashlib.sha256(str(tables.get_schema(table)).encode()).hexdigest()[:4]


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
