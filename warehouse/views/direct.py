"""Read tables of a few files without asking the catalog at each query.

DuckLake looks up the snapshot and the files of each table for every query: 5 ms, whatever the
query. Where a table's rows at the newest snapshot are exactly those of a few plain Parquet files
(`data_files.sql`: no deleted rows, no inlined rows, all files with today's columns), a view lists
these files instead. A query whose tables all have such a view needs one look-up: whether the
snapshot is still the newest. Any other query reads the lake's own tables.
"""

import threading
from contextlib import suppress

import duckdb
import msgspec

from fallow import tables
from fallow.resources import read_text
from warehouse.storage import TYPES
from warehouse.views.tiers import read_files

_METADATA = "__ducklake_metadata_lake"
_SNAPSHOT = f"FROM sqlite_query('{_METADATA}', 'SELECT max(snapshot_id) FROM ducklake_snapshot')"
_DATA_FILES = read_text("warehouse.views", "data_files.sql")


class DirectTables(msgspec.Struct, frozen=True):
    """The views of files of one snapshot, in a schema of the engine's memory."""

    snapshot: int
    schema: str = ""
    names: frozenset[str] = frozenset()


class DirectViews:
    """The views of files that one engine has at present. Threads may share it.

    `data`: the folder of the lake's data; empty where the catalog is not SQLite or the files are
    not local, and then no query is direct.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, data: str) -> None:
        self._connection = connection
        self._data = data
        self._lock = threading.Lock()
        self._current = DirectTables(-1)

    def begin(self, cursor: duckdb.DuckDBPyConnection, names: frozenset[str]) -> bool:
        """Begin a read-only transaction in which these names are views of files.

        Returns False, and begins nothing, where one of them has no such view at the newest
        snapshot.
        """
        current = self._current
        if not names or not names <= current.names:
            return False
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        with suppress(duckdb.Error):  # a busy catalog, or views of another snapshot by now
            row = cursor.execute(_SNAPSHOT).fetchone()
            if row and int(row[0]) == current.snapshot:
                cursor.execute(f"USE memory.{current.schema}")
                return True
        cursor.rollback()
        return False

    def refresh(self, snapshot: int, archived: frozenset[str]) -> None:
        """Create the views of the newest snapshot, unless they exist.

        A snapshot that is read once only is not worth it: call this for one that was read before.
        Tables with archived files are left out.
        """
        if not self._data or self._current.snapshot >= snapshot:
            return
        with self._lock:
            if self._current.snapshot >= snapshot:
                return
            earlier, self._current = self._current, DirectTables(snapshot)
            cursor = self._connection.cursor()
            try:
                with suppress(duckdb.Error):
                    created = self._create(cursor, archived)
                    # Rows may have been archived since: `archived` holds for the asked snapshot.
                    if created.snapshot == snapshot:
                        self._current = created
                if earlier.schema:
                    with suppress(duckdb.Error):
                        cursor.execute(f"DROP SCHEMA memory.{earlier.schema} CASCADE")
            finally:
                cursor.close()

    def _create(self, cursor: duckdb.DuckDBPyConnection, archived: frozenset[str]) -> DirectTables:
        text = _DATA_FILES.replace("'", "''")
        rows = cursor.execute(f"FROM sqlite_query('{_METADATA}', '{text}')").fetchall()
        paths: dict[str, list[str]] = {}
        for _, name, path in rows:
            paths.setdefault(name, []).extend([self._data + path] if path else [])
        names = frozenset(paths) & frozenset(tables.list_table_names()) - archived
        snapshot = int(rows[0][0])
        schema = f"direct_{snapshot}"
        cursor.begin()
        try:
            cursor.execute(f"CREATE SCHEMA memory.{schema}")
            for name in sorted(names):
                select = _select_files(name, paths[name]) if paths[name] else _select_none(name)
                cursor.execute(f'CREATE VIEW memory.{schema}."{name}" AS {select}')
            cursor.commit()
        except BaseException:
            with suppress(duckdb.Error):
                cursor.rollback()
            raise
        return DirectTables(snapshot, schema, names)


def _select_files(name: str, paths: list[str]) -> str:
    """Return a SELECT of a table's columns from files, which may have the lake's row ids too."""
    columns = ", ".join(f'"{c.name}"' for c in tables.list_columns(name))
    return f"SELECT {columns} FROM {read_files(paths)}"


def _select_none(name: str) -> str:
    """Return a SELECT of a table's columns without any row."""
    columns = (f'NULL::{TYPES[c.type]} AS "{c.name}"' for c in tables.list_columns(name))
    return f"SELECT {', '.join(columns)} WHERE false"
