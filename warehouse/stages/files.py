"""Write the Parquet files of a slice, and register those of a stage in one transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.catalog import CatalogLocation, quote_literal
from warehouse.data_files import sync_file
from warehouse.failures import explain_errors
from warehouse.opened import OpenWarehouse
from warehouse.runners.slices import StageError
from warehouse.statements import fetch_row, run_change
from warehouse.steps import load_step
from warehouse.storage import get_storage

FILE_ROWS = 20_000
"""From so many rows on a file is written here. A query of a small site reads only files that the
engine wrote without asking the catalog for each."""
ROW_GROUP = 122_880
"""Rows of a row group, as the engine writes them."""
_VALUES = "__ducklake_metadata_lake.ducklake_file_partition_value"


class StageFile(msgspec.Struct, frozen=True):
    """A data file that a worker wrote and that the catalog does not name yet."""

    table: str
    path: str
    rows: int
    bytes: int


def write_rows(
    cursor: duckdb.DuckDBPyConnection,
    place: CatalogLocation,
    table: str,
    sql: str,
    parameters: Mapping[str, Any],
) -> list[StageFile]:
    """Write a query's rows as files of a table, one per partition, in the table's order.

    The cursor's unqualified names must be those that the query reads; the query's columns are the
    table's, by name. When this returns, local files are safe on disk.
    """
    cursor.execute(f'CREATE OR REPLACE TEMP TABLE stage_row AS FROM lake.main."{table}" LIMIT 0')
    run_change(cursor, f"INSERT INTO temp.stage_row BY NAME {sql}", parameters)
    try:
        return [
            _write_partition(cursor, place, table, keys) for keys in _list_partitions(cursor, table)
        ]
    finally:
        cursor.execute("DROP TABLE temp.stage_row")


class WrittenRows(msgspec.Struct, frozen=True):
    """Rows of a table, and their new files; without any the lake's INSERT writes them."""

    table: str
    rows: pa.Table
    files: tuple[StageFile, ...]


class NewFiles:
    """The data files of one transaction that were written here, not by the lake.

    with NewFiles(cursor, place) as files:
        files.store("sample", rows)

    The lake removes its own files when a transaction is rolled back; these are removed where the
    block raises. Use it inside of the transaction: what a failed commit leaves is not known.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, place: CatalogLocation) -> None:
        self._cursor = cursor
        self._place = place
        self._files: list[StageFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            remove_files(self._files)

    def store(self, table: str, rows: pa.Table, least: int | None = None) -> int:
        """Insert rows into a table; the transaction syncs new files. Return how many.

        From `least` (`FILE_ROWS`) rows on a local lake's file is written here, in the order of the
        rows: the lake's INSERT takes two to three times as long.
        """
        return self.insert(self.write(self._cursor, table, rows, least))

    def write(
        self,
        cursor: duckdb.DuckDBPyConnection,
        table: str,
        rows: pa.Table,
        least: int | None = None,
    ) -> WrittenRows:
        """Write the files of many rows, for `insert`; another thread may, on a cursor of its own.

        Files take one thread, beside which the transaction goes on.
        """
        is_local = not (self._place.remote or self._place.in_memory)
        if not is_local or rows.num_rows < (FILE_ROWS if least is None else least):
            return WrittenRows(table, rows, ())
        files = write_arrow(cursor, self._place, table, rows)
        self._files += files
        return WrittenRows(table, rows, tuple(files))

    def insert(self, written: WrittenRows) -> int:
        """Insert rows into their table, by their files where there are some; return how many."""
        if written.files:
            return add_files(self._cursor, written.files)
        table, rows = written.table, written.rows
        # One thread reads a stream, which costs a quarter less for some thousand rows.
        self._cursor.register("stored", rows.to_reader() if rows.num_rows < ROW_GROUP else rows)
        self._cursor.execute(f'INSERT INTO "{table}" BY NAME FROM stored')
        self._cursor.unregister("stored")
        return int(rows.num_rows)


def write_arrow(
    cursor: duckdb.DuckDBPyConnection, place: CatalogLocation, table: str, rows: pa.Table
) -> list[StageFile]:
    """Write rows as local files of a table, one per partition, in the order in which they lie.

    Arrow takes a third of the engine's time: it makes dictionaries of texts only. Nothing is synced
    to the disk.
    """
    texts = [
        field.name
        for field in rows.schema
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    ]
    files: list[StageFile] = []
    try:
        for keys, part in _split_partitions(table, rows):
            path = _name_file(cursor, place, table, keys)
            files.append(StageFile(table, path, part.num_rows, 0))
            # Opened here: an error of the disk keeps its number.
            with Path(path).open("wb") as target:
                pq.write_table(
                    part,
                    target,
                    row_group_size=ROW_GROUP,
                    use_dictionary=texts,
                    compression="zstd",
                    compression_level=1,
                    store_schema=False,
                )
            size = Path(path).stat().st_size
            files[-1] = msgspec.structs.replace(files[-1], bytes=size)
    except BaseException:
        remove_files(files)
        raise
    return files


def write_sorted(
    cursor: duckdb.DuckDBPyConnection, place: CatalogLocation, table: str, rows: pa.Table
) -> list[StageFile]:
    """Write rows that lie in the table's order as files, one per partition.

    When this returns, local files are safe on disk.
    """
    if place.remote:
        cursor.register("sorted_row", rows)
        files = write_rows(cursor, place, table, "FROM sorted_row", {})
        cursor.unregister("sorted_row")
        return files
    files = write_arrow(cursor, place, table, rows)
    for file in files:
        _sync_written(file.path)
    return files


def _split_partitions(table: str, rows: pa.Table) -> Iterator[tuple[dict[str, int], pa.Table]]:
    """Yield the units of each partition and its rows; rows that lie together are not copied."""
    units = [unit.partition("(")[0] for unit in get_storage(table).partition]
    if not rows.num_rows:
        return
    if not units:
        yield {}, rows
        return
    times = rows.column(str(get_storage(table).time_column)).to_numpy()
    # The last unit is the smallest: its number since 1970 distinguishes partitions.
    numbers = times.astype(f"datetime64[{units[-1][0].upper()}]")
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    ends = np.append(starts[1:], len(numbers))
    partitions = dict.fromkeys(numbers[starts].tolist())
    for first in partitions:
        keys = {unit: int(getattr(first, unit)) for unit in units}
        here = numbers[starts] == np.datetime64(first)
        if here.sum() == 1:
            place = int(here.argmax())
            yield keys, rows.slice(starts[place], ends[place] - starts[place])
        else:
            yield keys, rows.filter(pa.array(numbers == np.datetime64(first)))


def register_files(cursor: duckdb.DuckDBPyConnection, files: Sequence[StageFile]) -> int:
    """Add files to the lake's tables, in the cursor's transaction; return how many rows they have.

    Raises:
        StageError: a file is gone, or has another size: nothing of the stage may be committed.
    """
    _check_files(cursor, files)
    return add_files(cursor, files)


def add_files(cursor: duckdb.DuckDBPyConnection, files: Sequence[StageFile]) -> int:
    """Add files that this process has just written; see `register_files`."""
    for table in dict.fromkeys(file.table for file in files):
        paths = ", ".join(quote_literal(file.path) for file in files if file.table == table)
        cursor.execute(
            f"CALL ducklake_add_data_files('lake', '{table}', [{paths}], hive_partitioning => true)"
        )
    return sum(file.rows for file in files)


def correct_partitions(warehouse: OpenWarehouse) -> None:
    """Correct the partition values of registered files in the catalog, after their commit.

    Without it every figure is the same, and files of one day may not be merged into one.
    """
    with warehouse.transaction() as cursor:
        values = cursor.execute(load_step("stages/partition_values")).to_arrow_table()
        if values.num_rows:
            cursor.register("corrected", values)
            cursor.execute(
                f"DELETE FROM {_VALUES} WHERE data_file_id IN (SELECT data_file_id FROM corrected)"
            )
            cursor.execute(f"INSERT INTO {_VALUES} BY NAME FROM corrected")
            cursor.unregister("corrected")


def remove_files(files: Iterable[StageFile]) -> None:
    """Remove local files of a stage that failed; what stays is removed by maintenance."""
    for file in files:
        if "://" not in file.path:
            with suppress(OSError):
                Path(file.path).unlink(missing_ok=True)


def _list_partitions(
    cursor: duckdb.DuckDBPyConnection, table: str
) -> list[dict[str, tuple[str, int]]]:
    """Return the partitions of the rows: for each unit its expression and its value."""
    units = get_storage(table).partition
    if not units:
        row = fetch_row(cursor, "SELECT count(*) FROM temp.stage_row")
        return [{}] if row and row[0] else []
    listed = ", ".join(units)
    rows = cursor.execute(f"SELECT DISTINCT {listed} FROM temp.stage_row ORDER BY ALL").fetchall()
    names = [unit.partition("(")[0] for unit in units]
    return [
        {name: (unit, int(value)) for name, unit, value in zip(names, units, row, strict=True)}
        for row in rows
    ]


def _write_partition(
    cursor: duckdb.DuckDBPyConnection,
    place: CatalogLocation,
    table: str,
    keys: Mapping[str, tuple[str, int]],
) -> StageFile:
    path = _name_file(cursor, place, table, {name: value for name, (_, value) in keys.items()})
    where = " AND ".join(f"{unit} = {value}" for unit, value in keys.values()) or "true"
    sort = ", ".join(f'"{column}"' for column in get_storage(table).sort) or "ALL"
    copy_sql = (
        f"COPY (FROM temp.stage_row WHERE {where} ORDER BY {sort}) TO {quote_literal(path)}"
        " (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2, RETURN_STATS)"
    )
    written = fetch_row(cursor, copy_sql)
    if not place.remote:
        _sync_written(path)
    if written is None:
        raise StageError(f"the engine wrote no file for {table}", hint="try again")
    return StageFile(table, path, int(written[1]), int(written[2]))


def _name_file(
    cursor: duckdb.DuckDBPyConnection, place: CatalogLocation, table: str, keys: Mapping[str, int]
) -> str:
    """Return the path of a new file in its partition's folder, which is made where it is local."""
    folders = "".join(f"{name}={value}/" for name, value in keys.items())
    folder = f"{place.data}main/{table}/{folders}"
    name = fetch_row(cursor, "SELECT 'ducklake-' || uuidv7() || '.parquet'")
    if not place.remote:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return f"{folder}{name[0] if name else ''}"


def _sync_written(path: str) -> None:
    """Flush a new local file and its folder to the disk."""
    sync_file(path)
    sync_file(str(Path(path).parent))


def _check_files(cursor: duckdb.DuckDBPyConnection, files: Sequence[StageFile]) -> None:
    if not files:
        return
    wanted = {file.path: file.bytes for file in files}
    listed = ", ".join(quote_literal(path) for path in wanted)
    try:
        with explain_errors("of this stage"):
            sizes = dict(
                cursor.execute(f"SELECT filename, size FROM read_blob([{listed}])").fetchall()
            )
    except Exception as error:
        raise StageError(
            f"a file of the stage cannot be read back, nothing is stored: {error}",
            hint="the next turn tries the whole stage again",
        ) from error
    for path, size in wanted.items():
        if sizes.get(path) != size:
            raise StageError(
                f"{path} has {sizes.get(path)} bytes and not the {size} that were written; "
                "nothing is stored",
                hint="the next turn tries the whole stage again",
            )


def cut_days(
    start: datetime, end: datetime, step: timedelta
) -> Iterator[tuple[datetime, datetime]]:
    """Yield pieces of [start, end), none longer than `step` or across a midnight.

    A file has the rows of one partition, which is a day or a month.
    """
    while start < end:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        piece = min(start + step, midnight, end)
        yield start, piece
        start = piece
