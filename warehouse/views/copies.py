"""Copy small tables into the engine's memory, where many queries read the same rows.

The lake opens each of a table's files again for every query, 1 ms a file: a table that each commit
changes a little has many. A copy is made from the lake's own table at a known snapshot, and serves
as long as the table has the same version (`data_files.sql`), over any number of snapshots.
"""

from contextlib import suppress

import duckdb
import msgspec

from warehouse.statements import fetch_row

READS = 3
"""A copy is made at this reading of the same rows: it costs as much as a few queries."""
LAKE_SNAPSHOT = "SELECT id FROM ducklake_current_snapshot('lake')"
"""The snapshot that the lake's tables have in a transaction from now on."""

_SCHEMA = "memory.copies"


class SmallTable(msgspec.Struct):
    """A table that may be copied, how often these rows were read, and the copy if there is one."""

    version: str
    reads: int = 0
    copy: str = ""


class TableCopies:
    """The copies that one engine has at present. One thread at a time may use it."""

    def __init__(self) -> None:
        self._small: dict[str, SmallTable] = {}
        self._count = 0

    def read(
        self, cursor: duckdb.DuckDBPyConnection, name: str, version: str, snapshot: int
    ) -> str:
        """Return the copy of a table for one more query; "" = the query reads the lake's table.

        Raises:
            duckdb.Error: it cannot be copied now.
        """
        small = self._small.get(name)
        if small is None or small.version != version:
            self._drop(cursor, name)
            small = self._small[name] = SmallTable(version)
        small.reads += 1
        if not small.copy and small.reads >= READS:
            small.copy = self._make(cursor, name, snapshot)
        return small.copy

    def keep(self, cursor: duckdb.DuckDBPyConnection, versions: dict[str, str]) -> None:
        """Drop the copies of the tables that have other versions by now."""
        for name in [n for n, small in self._small.items() if versions.get(n) != small.version]:
            self._drop(cursor, name)

    def _make(self, cursor: duckdb.DuckDBPyConnection, name: str, snapshot: int) -> str:
        """Copy the rows of the newest snapshot; "" where that is another one by now."""
        self._count += 1
        copy = f'{_SCHEMA}."{name} {self._count}"'
        cursor.execute("BEGIN TRANSACTION")
        try:
            row = fetch_row(cursor, LAKE_SNAPSHOT)
            if row is None or int(row[0]) != snapshot:
                cursor.rollback()
                return ""
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
            cursor.execute(f'CREATE TABLE {copy} AS SELECT * FROM lake.main."{name}"')
            cursor.commit()
        except BaseException:
            with suppress(duckdb.Error):
                cursor.rollback()
            raise
        return copy

    def _drop(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        small = self._small.pop(name, None)
        if small is not None and small.copy:
            # A reader that began before still has the rows; a copy that stays is only memory.
            with suppress(duckdb.Error):
                cursor.execute(f"DROP TABLE IF EXISTS {small.copy}")
