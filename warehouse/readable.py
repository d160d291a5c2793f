"""Query the days that can be read at present, and collect the others."""

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from fallow.errors import UnreadableDaysError
    from warehouse.lake import Warehouse


class ReadableViews:
    """Views without the archived days whose store is away. For rows by time, never for a sum."""

    def __init__(self, warehouse: "Warehouse") -> None:
        self._warehouse = warehouse
        self.days: set[date] = set()
        """The days (UTC) that queries needed and that cannot be read. Late rows of such a day may
        be among the rows: leave out all of its rows."""

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one read-only statement; see `Warehouse.query`."""
        return self._warehouse.query_prepared(
            sql, parameters or {}, on_unreadable=self._collect_days
        )

    def _collect_days(self, error: "UnreadableDaysError") -> None:
        self.days.update(error.days)
