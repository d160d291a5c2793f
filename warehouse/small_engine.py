"""Store few rows with an engine of one thread.

A commit runs a dozen statements of a few rows each. The engine wakes all of its threads for each of
them, which costs a scrape of 10,000 rows a quarter more than one thread does.
"""

import duckdb

from fallow.settings import Settings
from fallow.system.container_limits import read_cpu_limit
from warehouse.catalog import CatalogLocation, connect_engine

FIRST = 3
"""Small transactions before the engine is opened: it costs as much as several of them."""


class SmallEngine:
    """A second engine over the same catalog, for small transactions. One thread may use it.

    Only one process writes the catalog, and its transactions take turns. There is none for tables
    in memory, which are one engine's own, and for a catalog in PostgreSQL.
    """

    def __init__(self, settings: Settings, place: CatalogLocation) -> None:
        self._settings = settings
        self._place = place
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._count = 0
        wanted = settings.warehouse.threads or read_cpu_limit()
        self._is_useful = place.embedded and not place.in_memory and wanted > 1

    def open_cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a cursor for one more small transaction; None: the main engine is as good.

        Raises:
            duckdb.Error: the catalog cannot be opened.
        """
        self._count += 1
        if not self._is_useful or self._count <= FIRST:
            return None
        if self._connection is None:
            warehouse = self._settings.warehouse.model_copy(update={"threads": 1})
            settings = self._settings.model_copy(update={"warehouse": warehouse})
            self._connection = connect_engine(settings, self._place, write=True)
        return self._connection.cursor()

    def close(self) -> None:
        """Close its files; the next small transaction opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
