"""Rows of one query over small tables by hand, in one engine for all tests."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from fallow.tables import Batch
from tests import engine

T = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
HOUR = timedelta(hours=1)
WINDOW = {"since": T, "until": T + HOUR}


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    return engine.empty()


_filled: set[str] = set()


def read(sql: str, parameters: Mapping[str, Any] | None = None, **tables: Any) -> pa.Table:
    """Return the result of a query over these rows and no others."""
    made = _engine()
    for table in _filled:
        made.execute(f'DELETE FROM "{table}"')
    _filled.clear()
    for table, rows in tables.items():
        names = {name for row in rows for name in row}
        data: dict[str, object] = {n: [row.get(n) for row in rows] for n in names}
        if not data:
            continue
        _filled.add(table)
        made.register("incoming", Batch.of(table, data).rows)
        made.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')
        made.unregister("incoming")
    named = {n: v for n, v in (parameters or {}).items() if f"${n}" in sql}
    return made.execute(sql, named).to_arrow_table()


def query(sql: str, parameters: dict[str, Any], **tables: Any) -> Any:
    """Return the rows of a query over these rows and no others."""
    return read(sql, parameters, **tables).to_pylist()


class TableViews:
    """Views over rows by hand."""

    def __init__(self, **tables: Any) -> None:
        self._tables = tables

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the result of a query; timestamps are read as UTC."""
        bound = {
            name: value.astimezone(UTC).replace(tzinfo=None)
            if isinstance(value, datetime) and value.tzinfo
            else value
            for name, value in (parameters or {}).items()
        }
        return read(sql, bound, **self._tables)


def at(minutes: float) -> datetime:
    """Return a time so many minutes after the window's start."""
    return T + timedelta(minutes=minutes)


def us(minutes: float) -> int:
    """Return that time in microseconds since 1970."""
    return round((at(minutes) - datetime(1970, 1, 1)) / timedelta(microseconds=1))  # noqa: DTZ001
