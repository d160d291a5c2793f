"""An engine in memory with every table of the contract, for tests that need no lake.

The totals of the ledger are views, so that they follow its rows as they do in the lake.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb

from fallow import tables
from warehouse import totals
from warehouse.steps import load_step

TYPES = {
    "string": "VARCHAR", "timestamp": "TIMESTAMP", "bool": "BOOLEAN", "i16": "SMALLINT",
    "i32": "INTEGER", "i64": "BIGINT", "f32": "FLOAT", "f64": "DOUBLE",
    "decimal": "DECIMAL(18, 8)", "hist": "INTEGER[]",
    "floats": "DOUBLE[]",
}  # fmt: skip


def empty() -> duckdb.DuckDBPyConnection:
    """Return a new engine of one thread whose tables are empty."""
    engine = duckdb.connect(config={"threads": "1"})
    engine.execute(_creation())
    return engine


_unused: list[duckdb.DuckDBPyConnection] = []


@contextmanager
def lent() -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend an engine as `empty` for a test, which may commit nothing: it is empty again after."""
    engine = _unused.pop() if _unused else empty()
    engine.execute("BEGIN")
    yield engine
    engine.execute("ROLLBACK")
    _unused.append(engine)


@cache
def _creation() -> str:
    made = ["BEGIN"]
    for name in tables.list_table_names():
        if name in totals.PERIODS:
            continue
        columns = ", ".join(f'"{c.name}" {TYPES[c.type]}' for c in tables.list_columns(name))
        made.append(f'CREATE TABLE "{name}" ({columns})')
    for name in totals.PERIODS:
        sums, bounds, groups = load_step(f"totals/{name}").partition("WHERE bucket >= $since")
        assert bounds
        made.append(f"CREATE VIEW {name} AS {sums} {groups[groups.index('GROUP BY') :]}")
    return ";".join([*made, "COMMIT"])
