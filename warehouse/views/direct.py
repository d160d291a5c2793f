"""Read tables without asking the catalog for their files at each query.

DuckLake looks up the snapshot and the files of each table for every query: 5 ms, whatever the
query. Two other ways lead to the same rows of the newest snapshot:

    files   where a table's rows are exactly those of a few plain Parquet files (`data_files.sql`:
            no deleted rows, no inlined rows, all files with today's columns), a view lists them
    copy    a table of few rows that is read again and again is copied (`copies.py`)

A query whose tables all are read so needs one look-up: whether the snapshot is still the newest.
Where some are, the others are the lake's own tables at the same snapshot. Any other query reads
the lake's own tables.
"""

import threading
from contextlib import suppress

import duckdb
import msgspec

from fallow import tables
from fallow.resources import read_text
from warehouse.statements import fetch_row
from warehouse.storage import TYPES
from warehouse.views.copies import LAKE_SNAPSHOT, TableCopies
from warehouse.views.tiers import TierState, define_view, read_files

MOST_VALUES = 500_000
"""Rows by columns of a table that may be copied: some megabytes in memory."""

_METADATA = "__ducklake_metadata_lake"
_SNAPSHOT = f"FROM sqlite_query('{_METADATA}', 'SELECT max(snapshot_id) FROM ducklake_snapshot')"
_DATA_FILES = read_text("warehouse.views", "data_files.sql")


class SnapshotTables(msgspec.Struct):
    """How tables are read at one snapshot, by their names."""

    snapshot: int
    schema: str = ""
    """The schema of the views in the engine's memory; empty = no query is direct."""
    state: TierState = TierState()
    files: dict[str, list[str]] = {}
    """Paths of the files from which a table may be read."""
    versions: dict[str, str] = {}
    """Versions of the tables that may be copied."""
    views: dict[str, str] = {}
    """What the views read that queries have needed so far: files, copy or lake."""


class DirectViews:
    """The views of the newest snapshot that one engine has at present. Threads may share it.

    `data`: the folder of the lake's data; empty where the catalog is not SQLite or the files are
    not local, and then no query is direct.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, data: str) -> None:
        self._connection = connection
        self._data = data
        self._lock = threading.Lock()
        self._current = SnapshotTables(-1)
        self._copies = TableCopies()

    def begin(self, cursor: duckdb.DuckDBPyConnection, names: frozenset[str]) -> bool:
        """Begin a read-only transaction in which these names are the tables' views.

        Returns False, and begins nothing, where none of them has a view of files or a copy at the
        newest snapshot, or where one has archived files.
        """
        current = self._current
        if not names or not current.schema or not self._prepare(current, names):
            return False
        kinds = {current.views[name] for name in names}
        if kinds == {"lake"}:
            return False
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        with suppress(duckdb.Error):  # a busy catalog, or views of another snapshot by now
            row = fetch_row(cursor, LAKE_SNAPSHOT if "lake" in kinds else _SNAPSHOT)
            if row and int(row[0]) == current.snapshot:
                cursor.execute(f"USE memory.{current.schema}")
                return True
        cursor.rollback()
        return False

    def refresh(self, snapshot: int, state: TierState) -> None:
        """Find out how tables are read at the newest snapshot, unless that is known.

        A snapshot that is read once only is not worth it: call this for one that was read before.
        """
        if not self._data or self._current.snapshot >= snapshot:
            return
        with self._lock:
            if self._current.snapshot >= snapshot:
                return
            earlier, self._current = self._current, SnapshotTables(snapshot)
            cursor = self._connection.cursor()
            try:
                with suppress(duckdb.Error):
                    listed = self._list_tables(cursor, state)
                    # Rows may have been archived since: `state` is that of the asked snapshot.
                    if listed.snapshot == snapshot:
                        cursor.execute(f"CREATE SCHEMA memory.{listed.schema}")
                        self._current = listed
                        self._copies.keep(cursor, listed.versions)
                if earlier.schema:
                    with suppress(duckdb.Error):
                        cursor.execute(f"DROP SCHEMA memory.{earlier.schema} CASCADE")
            finally:
                cursor.close()

    def _list_tables(self, cursor: duckdb.DuckDBPyConnection, state: TierState) -> SnapshotTables:
        text = _DATA_FILES.replace("'", "''")
        rows = cursor.execute(f"FROM sqlite_query('{_METADATA}', '{text}')").fetchall()
        snapshot = int(rows[0][0])
        listed = SnapshotTables(snapshot, f"direct_{snapshot}", state, {}, {}, {})
        table_names = frozenset(tables.list_table_names())
        for _, name, plain, path, row_count, version in rows:
            if name not in table_names or state.files(name):
                continue
            if int(plain):
                listed.files.setdefault(name, []).extend([self._data + path] if path else [])
            if version and int(row_count) * len(tables.list_columns(name)) <= MOST_VALUES:
                listed.versions[name] = version
        return listed

    def _prepare(self, current: SnapshotTables, names: frozenset[str]) -> bool:
        """Create the views and the copies that one more query of these tables needs.

        Returns False where it cannot be direct.
        """
        if all(
            current.views.get(name, "") == "copy"
            or (name in current.views and name not in current.versions)
            for name in names
        ):
            return True
        if any(map(current.state.files, names)) or not self._lock.acquire(blocking=False):
            return False
        cursor = self._connection.cursor()
        try:
            if current is not self._current:
                return False
            for name in sorted(names):
                self._prepare_view(cursor, current, name)
        except duckdb.Error:  # a busy catalog, or another snapshot by now
            return False
        finally:
            cursor.close()
            self._lock.release()
        return True

    def _prepare_view(
        self, cursor: duckdb.DuckDBPyConnection, current: SnapshotTables, name: str
    ) -> None:
        before = current.views.get(name)
        if before == "copy":
            return
        version, copy = current.versions.get(name), ""
        if version is not None:
            copy = self._copies.read(cursor, name, version, current.snapshot)
        if before is not None and not copy:
            return
        if copy:
            kind, select = "copy", f"SELECT * FROM {copy}"
        elif name in current.files:
            kind, select = "files", _select_files(name, current.files[name])
        else:
            select = define_view(name, current.state)
            kind = "lake"
        cursor.execute(f'CREATE OR REPLACE VIEW memory.{current.schema}."{name}" AS {select}')
        current.views[name] = kind


def _select_files(name: str, paths: list[str]) -> str:
    """Return a SELECT of a table's columns from files, which may have the lake's row ids too."""
    if paths:
        columns = ", ".join(f'"{c.name}"' for c in tables.list_columns(name))
        return f"SELECT {columns} FROM {read_files(paths)}"
    columns = ", ".join(f'NULL::{TYPES[c.type]} AS "{c.name}"' for c in tables.list_columns(name))
    return f"SELECT {columns} WHERE false"
