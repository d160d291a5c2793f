"""Write a document as one tidy table: a row per number, with its section and unit."""

from datetime import datetime
from typing import Any

from dashboards.reports.document import Kind, ReportDocument, ReportTable
from fallow.csv_cells import write_rows

HEAD = ("section", "item", "whose", "measure", "value", "unit")
UNITS: dict[Kind, str] = {"usd": "USD", "percent": "%", "moment": "UTC", "number": "", "text": ""}
OWNER_COLUMNS = ("team", "cluster", "namespace")


def write(document: ReportDocument) -> bytes:
    """Return every cell of every table as a row: section, item, whose, measure, value, unit.

    `item` is the row's first column, `whose` its team where it has one; dollars are exact.
    """
    rows = (
        row
        for section in document.sections
        for block in section.blocks
        if isinstance(block, ReportTable)
        for row in _build_rows(section.title, block)
    )
    return write_rows([HEAD, *rows]).encode()


def _build_rows(section: str, table: ReportTable) -> list[list[Any]]:
    first, *value_columns = table.columns
    return [
        [
            section,
            _format_value(row.get(first.name)),
            _format_value(next((row[n] for n in OWNER_COLUMNS if row.get(n)), None)),
            column.label,
            _format_value(row[column.name]),
            UNITS[column.kind] or ("GPU-hours" if "gpu_hours" in column.name else ""),
        ]
        for row in table.rows
        for column in value_columns
        if row.get(column.name) is not None
    ]


def _format_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
