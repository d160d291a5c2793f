"""An engine in memory with every table of the contract, for tests that need no lake."""

from functools import cache

import duckdb

from fallow import tables

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


@cache
def _creation() -> str:
    made = ["BEGIN"]
    for name in tables.table_names():
        columns = ", ".join(f'"{c.name}" {TYPES[c.type]}' for c in tables.columns(name))
        made.append(f'CREATE TABLE "{name}" ({columns})')
    return ";".join([*made, "COMMIT"])
