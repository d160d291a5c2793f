"""Run several of this package's own queries on one snapshot of the tables' views."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa

from warehouse.statements import bind_parameters, read_many_rows, read_rows

CheckPlan = Callable[[str, Mapping[str, Any]], None]


class SnapshotReader:
    """Queries of one cursor, whose transaction has begun: all see the same rows. A `Views`.

    `check_plan`: what refuses a query that needs archived days of a store that is away.
    """

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, check_plan: CheckPlan | None = None
    ) -> None:
        self._cursor = cursor
        self._check_plan = check_plan

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one query; return its rows.

        Raises:
            UnreadableDaysError: it needs archived days, and their store is away.
        """
        named = self._bind(sql, parameters or {})
        return read_rows(self._cursor, sql, named)

    def query_many_rows(
        self, sql: str, parameters: Mapping[str, Any], rows: Mapping[str, pa.Table]
    ) -> pa.Table:
        """Run one query that reads `rows`, by name, beside the tables, and returns many rows.

        As lists of literals, rows of many thousand devices took longer to plan than to join.

        Raises: as `query`.
        """
        try:
            for name, table in rows.items():
                self._cursor.register(name, table)
            return read_many_rows(self._cursor, sql, self._bind(sql, parameters))
        finally:
            for name in rows:
                with suppress(duckdb.Error):
                    self._cursor.unregister(name)

    def _bind(self, sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        if self._check_plan is not None:
            self._check_plan(sql, parameters)
        return bind_parameters(parameters)
