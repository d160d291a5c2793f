"""What the modules below `lake` need of an open warehouse: `warehouse.lake.Warehouse` has it."""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from fallow.settings import Settings
from warehouse.addresses import HostNames
from warehouse.catalog import CatalogLocation
from warehouse.late_devices import LateDevices, Marks, SampleMarks
from warehouse.place_marks import PlaceMarks


class OpenWarehouse(Protocol):
    """An open warehouse; each method is described there."""

    settings: Settings
    place: CatalogLocation
    clock: Callable[[], datetime]
    turn: threading.RLock
    hosts: HostNames
    late: LateDevices
    marks: PlaceMarks
    dirty: Marks

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one read-only statement."""

    def snapshot(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Yield a cursor on one snapshot of the lake's tables."""

    def transaction(
        self, *, is_small: bool = False
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Yield a cursor in one write transaction."""

    def replace(
        self,
        table: str,
        rows: pa.Table,
        where_sql: str = "true",
        parameters: Mapping[str, Any] | None = None,
        *,
        is_sorted: bool = False,
    ) -> int:
        """Replace rows of a table."""

    def list_away(self, places: Collection[str]) -> frozenset[str]:
        """Return the places that cannot be read at present."""

    def reading_files(self, files: Collection[str]) -> AbstractContextManager[None]:
        """Explain a failure to read archived files."""

    def keep_dirty(self, marks: SampleMarks) -> None:
        """Keep marks that are committed."""
