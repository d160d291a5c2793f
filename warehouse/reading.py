"""Let people's SQL read and nothing else."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from fallow import tables
from fallow.errors import UsageError

_REFUSED = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
)


def run(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]) -> pa.Table:
    """Run one SELECT on a cursor whose names are the nouns.

    Raises:
        UsageError: it is not one SELECT, or the engine refuses it.
    """
    try:
        statements = cursor.extract_statements(sql)
    except duckdb.ParserException as error:
        raise UsageError(f"that is not SQL: {_line(error)}") from error
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        said = ", ".join(kind.name for kind in kinds) or "nothing"
        raise UsageError(
            f"the warehouse answers one SELECT at a time, not {said}",
            hint="write SELECT, WITH, FROM, VALUES, DESCRIBE or SUMMARIZE",
        )
    try:
        return cursor.execute(statements[0], bound(parameters)).to_arrow_table()
    except _REFUSED as error:
        if ".parquet" in str(error):
            raise
        raise UsageError(
            f"the warehouse refuses that query: {_line(error)}",
            hint=f"there are {', '.join(tables.table_names())}",
        ) from error


def bound(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return parameters with aware moments as the tables' naive UTC."""
    return {name: _naive(value) for name, value in (parameters or {}).items()}


def _naive(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]
