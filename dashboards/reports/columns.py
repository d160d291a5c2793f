"""The columns of a report's tables: `columns.csv`, a row per column in their order."""

from dashboards.reports.document import ReportColumn
from fallow.resources import read_groups


def read_columns(table: str) -> tuple[ReportColumn, ...]:
    """Return the columns of a table."""
    return read_groups("dashboards.reports", "columns.csv", ReportColumn)[table]
