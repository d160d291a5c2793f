"""Define how each table is stored (`storage.csv`): its mode, partitions, sort order and recency.

append   a key is written once; a row with a key that exists is a duplicate
upsert   a key is updated: the newest row wins, null never overwrites a value
derived  written only by this package's own modules (rollups, allocation, ledger)
"""

from functools import cache
from typing import Literal

import msgspec

from fallow.resources import read_table

TYPES = {
    "string": "VARCHAR",
    "timestamp": "TIMESTAMP",
    "bool": "BOOLEAN",
    "i16": "SMALLINT",
    "i32": "INTEGER",
    "i64": "BIGINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "decimal": "DECIMAL(18, 8)",
    "hist": "INTEGER[]",
    "floats": "DOUBLE[]",
}
"""The engine's type for each type of `fallow/tables.csv`."""

_PARTITIONS = {
    "": (),
    "month": ("year", "month"),
    "day": ("year", "month", "day"),
}


class TableStorage(msgspec.Struct, frozen=True):
    """How one table is stored; `time_column` is the column of time ranges and partitions."""

    table: str
    mode: Literal["append", "upsert", "derived"]
    time_column: str | None
    partition: tuple[str, ...]
    sort: tuple[str, ...]
    newest: str | None


@cache
def get_storage(table: str) -> TableStorage:
    """Return how a table is stored.

    Raises:
        KeyError: no such table.
    """
    return _load_storage()[table]


def list_tables(*modes: str) -> list[str]:
    """Return the tables of some modes, in the order of the file."""
    return [storage.table for storage in _load_storage().values() if storage.mode in modes]


@cache
def _load_storage() -> dict[str, TableStorage]:
    return {
        row["table"]: TableStorage(
            row["table"],
            row["mode"],  # type: ignore[arg-type]  # a test holds the file to the three modes
            row["time_column"] or None,
            tuple(f"{unit}({row['time_column']})" for unit in _PARTITIONS[row["partition"]]),
            tuple(row["sort"].split()),
            row["newest"] or None,
        )
        for row in read_table("warehouse", "storage.csv")
    }
