"""Remember up to when each append table has rows, so that storing later rows asks for none.

One process writes an embedded warehouse, and rows of append tables come through `ingest` alone:
what it stored last is the upper bound. The first bound is that of the catalog's statistics.
"""

from datetime import datetime

import duckdb

from warehouse.catalog import CatalogLocation
from warehouse.statements import fetch_row
from warehouse.steps import load_step


class LatestTimes:
    """Upper bounds on the timestamps that are stored, by append table; naive UTC."""

    def __init__(self, place: CatalogLocation) -> None:
        self._place = place
        self._latest: dict[str, datetime] = {}

    def find(self, cursor: duckdb.DuckDBPyConnection, table: str, column: str) -> datetime | None:
        """Return a timestamp after which a table has no row, or None where that is not known.

        With several writing processes no process knows it.
        """
        if not self._place.embedded:
            return None
        if table not in self._latest:
            latest = self._read(cursor, table, column)
            if latest is None:
                return None
            self._latest[table] = latest
        return self._latest[table]

    def note(self, table: str, latest: datetime) -> None:
        """Note rows that are about to be stored. They may be there even if the commit fails."""
        if table in self._latest:
            self._latest[table] = max(latest, self._latest[table])

    def forget(self, table: str) -> None:
        """Forget a table: its rows are replaced by others."""
        self._latest.pop(table, None)

    def _read(self, cursor: duckdb.DuckDBPyConnection, table: str, column: str) -> datetime | None:
        if self._place.in_memory:
            row = fetch_row(cursor, f'SELECT max("{column}") FROM "{table}"', {})
            return (row and row[0]) or datetime.min  # noqa: DTZ901  (tables hold naive UTC)
        row = fetch_row(
            cursor, load_step("ingest/latest_time"), {"table": table, "time_column": column}
        )
        if row is None:
            return None
        has_rows, latest = row
        return latest if has_rows else datetime.min  # noqa: DTZ901
