"""Define the tables that the packages exchange, read from `tables.csv`.

One row of that file is one column: its table, type, place in the key, unit and meaning. The
warehouse creates its tables from it, collectors build their batches from it, the docs print it.
Timestamps are UTC without a zone (microseconds); null means missing, never zero; money is
decimal(18, 8) US dollars.
"""

from functools import cache

import msgspec
import pyarrow as pa

from fallow.errors import SourceError
from fallow.resources import read_table

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "timestamp": pa.timestamp("us"),
    "bool": pa.bool_(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "decimal": pa.decimal128(18, 8),
    "hist": pa.list_(pa.int32()),
    "floats": pa.list_(pa.float64()),
}
AND = " and "
"""In `sample.node`: between two nodes whose exporters report the device at the same time."""
VIA = " via "
"""In `sample.node`: between the node that an exporter names and its own address."""

CLEARABLE = {
    "node": (
        *("region", "zone", "instance_type", "capacity_type", "pool", "cpu_milli", "memory_bytes"),
        *("gpu_resource", "gpu_allocatable", "gpu_model", "gpu_replicas", "sharing"),
    ),
    "pod": (
        *("team", "owner_kind", "owner_name", "priority_class", "gpu_resource"),
        *("gpu_mem_request_bytes", "gpu_core_request_pct", "cpu_request_milli"),
        *("cpu_limit_milli", "memory_request_bytes"),
    ),
    "disruption_budget": ("healthy", "wanted_healthy", "expected_pods"),
}
"""Columns in which a batch says that an object has no value: `get_cleared`. It is stored as null,
while a null of a batch says that the source does not know it."""


def get_cleared(table: str, column: str) -> str | int:
    """Return what stands in a batch for "it has none": an empty text, or -1."""
    return "" if get_schema(table).field(column).type == pa.string() else -1


class Column(msgspec.Struct, frozen=True):
    """One column of one table."""

    table: str
    name: str
    type: str
    key: bool
    unit: str
    meaning: str


@cache
def list_columns(table: str) -> tuple[Column, ...]:
    """Return a table's columns in order.

    Raises:
        KeyError: no such table.
    """
    return _read()[table]


@cache
def list_table_names() -> tuple[str, ...]:
    """Return every table's name in the order of the file."""
    return tuple(_read())


@cache
def get_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema(
        [pa.field(c.name, TYPES[c.type], nullable=not c.key) for c in list_columns(table)]
    )


@cache
def get_key(table: str) -> tuple[str, ...]:
    """Return the names of the columns that identify a row."""
    return tuple(c.name for c in list_columns(table) if c.key)


@cache
def _read() -> dict[str, tuple[Column, ...]]:
    by_table: dict[str, list[Column]] = {}
    for row in read_table("fallow", "tables.csv"):
        column = Column(
            row["table"], row["column"], row["type"], row["key"] == "1", row["unit"], row["meaning"]
        )
        by_table.setdefault(column.table, []).append(column)
    return {name: tuple(cols) for name, cols in by_table.items()}


class Batch(msgspec.Struct, frozen=True):
    """Rows for one table, with exactly that table's columns.

    `times_checked`: rows in the future were left out when the rows were read. They may be stored
    much later, when the clock is another one. `texts_checked`: `fallow.clean_texts` has checked
    them.
    """

    table: str
    rows: pa.Table
    times_checked: bool = False
    texts_checked: bool = False

    def __post_init__(self) -> None:
        """Refuse rows whose columns or types differ from the table's, or whose key has nulls."""
        expected = get_schema(self.table)
        if not self.rows.schema.equals(expected):
            columns_found = set(
                zip(self.rows.schema.names, map(str, self.rows.schema.types), strict=True)
            )
            columns_expected = set(zip(expected.names, map(str, expected.types), strict=True))
            if columns_found != columns_expected:
                raise SourceError(
                    f"rows for table {self.table!r} do not fit it: "
                    f"missing {sorted(columns_expected - columns_found)}, "
                    f"unexpected {sorted(columns_found - columns_expected)}"
                )
        for name in get_key(self.table):
            if self.rows.column(name).null_count:
                raise SourceError(f"rows for table {self.table!r} have no {name!r}")

    @classmethod
    def of(cls, table: str, data: dict[str, object]) -> "Batch":
        """Build a batch from columns by name; absent columns become null.

        Values may be lists, NumPy arrays or Arrow arrays of one length; they are cast.

        Raises:
            SourceError: the table has no such column, or a value cannot be cast.
        """
        table_schema = get_schema(table)
        unknown = set(data) - set(table_schema.names)
        if unknown:
            raise SourceError(f"table {table!r} has no columns {sorted(unknown)}")
        values = [v for v in data.values() if v is not None]
        length = max((len(v) for v in values), default=0)  # type: ignore[arg-type]
        arrays = [_cast(data.get(f.name), f, length, table) for f in table_schema]
        return cls(table, pa.Table.from_arrays(arrays, schema=table_schema))


def _cast(values: object, field: pa.Field, length: int, table: str) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(length, field.type)
    try:
        array = (
            values
            if isinstance(values, (pa.Array, pa.ChunkedArray))
            else pa.array(values, from_pandas=True)
        )
        # A cast that changes nothing costs a small batch as much as building it.
        return array if array.type == field.type else array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        try:
            return pa.array(values, type=field.type, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SourceError(
                f"column {field.name!r} of table {table!r} wants {field.type}: {error}"
            ) from error
