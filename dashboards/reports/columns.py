"""The columns of a report's tables: `columns.csv`, a row per column in their order."""

from functools import cache

import msgspec

from dashboards.reports.document import ReportColumn
from fallow.resources import read_table


def read_columns(table: str) -> tuple[ReportColumn, ...]:
    """Return the columns of a table."""
    return _read_tables()[table]


@cache
def _read_tables() -> dict[str, tuple[ReportColumn, ...]]:
    tables: dict[str, tuple[ReportColumn, ...]] = {}
    for row in read_table("dashboards.reports", "columns.csv"):
        column = msgspec.convert({k: v for k, v in row.items() if k != "table"}, ReportColumn)
        tables[row["table"]] = (*tables.get(row["table"], ()), column)
    return tables
