"""Decode a query's rows into typed records, once, where the query returns.

    class NodeBill(Row, frozen=True):       one class per query, one field per column
        node: str
        usd: Decimal | None                 a column that may be null says so

    decode_rows(views.query(sql, parameters), NodeBill)

A column that the record does not have, or one that the query does not return, fails here; a wrong
name in the code that reads the record fails at the type checker.
"""

from typing import TypeVar

import msgspec
import pyarrow as pa


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The superclass of typed rows: its fields are the columns of one query."""


R = TypeVar("R", bound=Row)


class RowShapeError(TypeError):
    """A query's columns are not the fields of its record, or a value is not of a field's type."""


def decode_rows(table: pa.Table, record: type[R]) -> list[R]:
    """Return the table's rows as records.

    The columns are compared also when there are no rows.

    Raises:
        RowShapeError: a column is missing or unknown, or a value has another type than its field
            (a null where the field does not allow one, for example).
    """
    fields, columns = set(record.__struct_encode_fields__), set(table.column_names)
    if fields != columns:
        differences = [
            *(f"no column {name!r}" for name in sorted(fields - columns)),
            *(f"unknown column {name!r}" for name in sorted(columns - fields)),
        ]
        raise RowShapeError(f"rows of {record.__name__}: {', '.join(differences)}")
    try:
        return msgspec.convert(table.to_pylist(), list[record])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise RowShapeError(f"rows of {record.__name__}: {error}") from error
