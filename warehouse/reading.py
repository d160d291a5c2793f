"""Let people's SQL read and nothing else."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
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
    duckdb.NotImplementedException,
)

_LOOKS = {
    "ducklake_current_snapshot",
    "ducklake_list_files",
    "ducklake_options",
    "ducklake_snapshots",
    "ducklake_table_info",
}
"""The catalog's functions that only look. All others are refused by name: a SELECT may call
`ducklake_cleanup_old_files`, and not even a read-only transaction stops it."""

_ACTS = {
    "add_data_files",
    "cleanup_old_files",
    "delete_orphaned_files",
    "expire_snapshots",
    "flush_inlined_data",
    "merge_adjacent_files",
    "query",
    "rewrite_data_files",
    "set_commit_message",
    "set_option",
}
_ENGINES = ("ducklake_", "postgres_", "sqlite_", "pg_")


def run(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]) -> pa.Table:
    """Run one SELECT on a cursor whose names are the nouns.

    Raises:
        UsageError: it is not one SELECT, it calls what would act, or the engine refuses it.
    """
    try:
        statements = cursor.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            said = ", ".join(kind.name for kind in kinds) or "nothing"
            raise UsageError(
                f"the warehouse answers one SELECT at a time, not {said}",
                hint="write SELECT, WITH, FROM, VALUES, DESCRIBE or SUMMARIZE",
            )
        acting = sorted(name for name in _calls(cursor, sql) if _acts(name))
        if acting:
            raise UsageError(f"a query only reads, and {acting[0]} does more")
        if parameters and all(map(_writable, parameters.values())):
            return _executed(cursor, sql, parameters).to_arrow_table()
        return cursor.execute(statements[0], bound(parameters) or None).to_arrow_table()
    except _REFUSED as error:
        if ".parquet" in str(error):
            raise
        first = str(error).splitlines()[0]
        raise UsageError(
            f"the warehouse refuses that query: {first}",
            hint=f"there are {', '.join(tables.table_names())}",
        ) from error


def act(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]) -> int:
    """Run one of this room's own statements that change rows; return how many it changed."""
    named = {n: v for n, v in parameters.items() if f"${n}" in sql}
    row = (_executed(cursor, sql, named) if named else cursor.execute(sql)).fetchone()
    return int(row[0]) if row else 0


def bound(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return parameters with aware moments as the tables' naive UTC."""
    return {name: _naive(value) for name, value in (parameters or {}).items()}


def literal(value: Any) -> str:  # noqa: PLR0911  (one case per type)
    """Return a plain value as an SQL literal."""
    match _naive(value):
        case None:
            return "NULL"
        case bool() as truth:
            return str(truth).lower()
        case float() as number:
            return f"'{number!r}'::DOUBLE"
        case int() | Decimal() as number:
            return str(number)
        case datetime() as moment:
            return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"
        case date() as day:
            return f"DATE '{day.isoformat()}'"
        case list() | tuple() as several:
            return f"[{', '.join(map(literal, several))}]"
        case text:
            return "'" + str(text).replace("'", "''") + "'"


def _executed(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]
) -> duckdb.DuckDBPyConnection:
    # The Python binding of a parameter imports pandas (0.5 s of a command's life); EXECUTE with
    # literals plans the same query, prunes the same files, and does not.
    values = ", ".join(f'"{name}" := {literal(value)}' for name, value in parameters.items())
    cursor.execute(f"PREPARE asked AS {sql.strip().rstrip(';')}")
    return cursor.execute(f"EXECUTE asked({values})")


def _writable(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_writable, value))
    return value is None or isinstance(value, (bool, int, float, Decimal, datetime, date, str))


def _acts(name: str) -> bool:
    return name in _ACTS or (name.startswith(_ENGINES) and name not in _LOOKS)


def _calls(cursor: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    row = cursor.execute(f"SELECT json_serialize_sql({literal(sql)})").fetchone()
    return set(_names(json.loads(row[0]))) if row else set()


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "function_name" in node:
            yield str(node["function_name"]).lower()
        for value in node.values():
            yield from _names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _names(value)


def _naive(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
