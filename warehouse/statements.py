"""Run SQL from users that can read and do nothing else."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from pydantic import ByteSize, TypeAdapter

from fallow import tables
from fallow.errors import UsageError
from warehouse import sql_access

BATCH_ROWS = 262_144
"""Rows that the engine writes as one batch of columns: its threads write several at once."""
_NAME = re.compile(rb"\w+")
_REFUSED = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
    duckdb.NotImplementedException,
)


def run_select(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Mapping[str, Any],
    *,
    prefix: str = "",
) -> pa.Table:
    """Run one SELECT on a cursor whose unqualified names are the tables' views.

    `prefix`: what stands before the checked text, such as EXPLAIN.

    Raises:
        UsageError: it is not one SELECT, it uses what a query may not use (`sql_access`), or the
            engine refuses it.
    """
    try:
        sql_access.check_select(cursor, sql)
        sql = prefix + sql
        if all(map(_is_writable, parameters.values())):
            return _execute(cursor, sql, parameters).to_arrow_table()
        return cursor.execute(sql, bind_parameters(parameters)).to_arrow_table()
    except _REFUSED as error:
        if ".parquet" in str(error):
            raise
        first = str(error).splitlines()[0]
        raise UsageError(
            f"the warehouse refuses that query: {first}",
            hint=f"there are {', '.join(tables.list_table_names())}",
        ) from error


def read_many_rows(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]
) -> pa.Table:
    """Run one of this package's own queries; return its rows in batches of at most `BATCH_ROWS`.

    All threads of the engine write the Arrow columns of a relation, and one those of `execute`:
    1.25 million rows of 30 columns take 0.40 instead of 0.75 s on two cores. A relation is planned
    twice, which costs a small query of a lake a fifth more.
    """
    rows: pa.Table = cursor.sql(_write_literals(sql, parameters)).to_arrow_table(BATCH_ROWS)
    return rows


def read_rows(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]
) -> pa.Table:
    """Run one of this package's own queries; return its rows. For many rows: `read_many_rows`."""
    return _execute(cursor, sql, parameters).to_arrow_table()


def plan_select(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]) -> str:
    """Return the engine's plan of one SELECT, as JSON; nothing is read.

    Raises:
        UsageError: as `run_select`.
    """
    plan = run_select(cursor, sql, parameters, prefix="EXPLAIN (FORMAT JSON)\n")
    return str(plan.column(1)[0])


def run_change(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any] | None = None
) -> int:
    """Run one of this package's own statements that change rows; return how many it changed."""
    row = fetch_row(cursor, sql, parameters)
    return int(row[0]) if row else 0


def fetch_rows(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Run one of this package's own statements; return all of its rows.

    A result with rows left keeps its transaction open, and in memory all that later ones replace.
    """
    named = {n: v for n, v in (parameters or {}).items() if f"${n}" in sql}
    return (_execute(cursor, sql, named) if named else cursor.execute(sql)).fetchall()


def fetch_row(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any] | None = None
) -> tuple[Any, ...] | None:
    """Run one of this package's own statements; return its first row, and leave no result open."""
    return next(iter(fetch_rows(cursor, sql, parameters)), None)


def plan_change(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]) -> str:
    """Return the plan, as JSON, of one of this package's own queries, also of one to insert."""
    named = {n: v for n, v in parameters.items() if f"${n}" in sql}
    row = _execute(cursor, f"EXPLAIN (FORMAT JSON)\n{sql}", named).fetchone()
    return str(row[1]) if row else ""


def count_threads(cursor: duckdb.DuckDBPyConnection) -> int:
    """Return how many threads the engine has."""
    row = fetch_row(cursor, "SELECT current_setting('threads')")
    return int(row[0]) if row else 1


def read_memory_limit(cursor: duckdb.DuckDBPyConnection) -> int:
    """Return the bytes that the engine may use."""
    row = cursor.execute("SELECT current_setting('memory_limit')").fetchone()
    return TypeAdapter(ByteSize).validate_python(row[0]) if row else 0


def bind_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return parameters with aware timestamps converted to the tables' naive UTC.

    Raises:
        UsageError: a text has a NUL.
    """
    return {name: _make_naive(value) for name, value in (parameters or {}).items()}


def write_literal(value: Any) -> str:  # noqa: PLR0911  (one case per type)
    """Return a plain value as an SQL literal."""
    match _make_naive(value):
        case None:
            return "NULL"
        case bool() as truth:
            return str(truth).lower()
        case float() as number:
            return f"'{number!r}'::DOUBLE"
        case int() as number:
            return str(number)
        case Decimal() as number:
            return format(number, "f")  # with an exponent it would be a DOUBLE
        case datetime() as moment:
            return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"
        case date() as day:
            return f"DATE '{day.isoformat()}'"
        case timedelta() as span:
            return f"INTERVAL '{span // timedelta(microseconds=1)} microseconds'"
        case list() | tuple() as several:
            return f"[{', '.join(map(write_literal, several))}]"
        case text:
            return "'" + str(text).replace("'", "''") + "'::VARCHAR"


def _execute(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]
) -> duckdb.DuckDBPyConnection:
    # The Python binding of a parameter imports pandas (0.5 s per command). With literals instead,
    # the engine plans the same query and reads the same files. Unlike the result of an EXECUTE, the
    # result is streamed, so that a large one needs no copy (a third of its CPU time).
    return cursor.execute(_write_literals(sql, parameters))


def _write_literals(sql: str, parameters: Mapping[str, Any]) -> str:
    """Return a statement with literals instead of its `$name` parameters.

    Raises:
        duckdb.InvalidInputException: a name has no value, or a value is not used.
    """
    parts, copied_to = [], 0
    places = _find_parameters(sql)
    for start, name, end in places:
        if name not in parameters:
            raise duckdb.InvalidInputException(f"parameter ${name} has no value")
        parts += [sql[copied_to:start], f"({write_literal(parameters[name])})"]
        copied_to = end
    if unused := sorted(set(parameters) - {name for _, name, _ in places}):
        raise duckdb.InvalidInputException(f"there is no parameter ${unused[0]} in the statement")
    return "".join([*parts, sql[copied_to:]])


@lru_cache(maxsize=1000)  # a process runs the same texts again: 3 ms each time
def _find_parameters(sql: str) -> tuple[tuple[int, str, int], ...]:
    """Return where the `$name` parameters of a statement begin and end, and their names."""
    encoded = sql.encode()
    starts = [start for start, _ in duckdb.tokenize(sql)] if b"$" in encoded else []
    places = []
    # The engine's own tokens: `$name` inside a string or a comment is not a parameter.
    for start, word, end in zip(starts, starts[1:], [*starts[2:], len(encoded)], strict=False):
        match = _NAME.match(encoded, word, end) if encoded[start:word] == b"$" else None
        if match:
            begin = len(encoded[:start].decode())  # tokens are counted in bytes
            places.append((begin, match[0].decode(), begin + 1 + len(match[0].decode())))
    return tuple(places)


def _is_writable(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_writable, value))
    return value is None or isinstance(value, (bool, int, float, Decimal, datetime, date, str))


def _make_naive(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        # The lake would write it into the SQL of its file list (`views.tiers.select_lake`).
        raise UsageError("a text of the query has a NUL (U+0000), and no row has one")
    if isinstance(value, (list, tuple)):
        return [_make_naive(item) for item in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
