"""Copy a catalog in PostgreSQL to a file, as it is at one moment, and back to an empty database.

The file is a DuckDB database with the catalog's tables as they are in PostgreSQL. The lake opens it
as a catalog too, so that a backup is verified without a server. PostgreSQL's programs are not
needed: the engine reads and writes the tables.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from fallow.errors import UsageError, WarehouseError
from fallow.settings import Settings
from warehouse import extensions
from warehouse.catalog import CatalogLocation, locate_catalog, quote_literal
from warehouse.failures import explain_errors
from warehouse.steps import load_step

CATALOG_COPY = "catalog.duckdb"
"""The name of a copy in a backup."""

_KEYS = "fallow_primary_keys"
"""The table of a copy with the primary key of each table; the lake does not read it."""
_SCANNER = "postgres_scanner"


@contextmanager
def hold_snapshot(
    settings: Settings,
) -> Iterator[tuple[Callable[[], None], Callable[[Path], None]]]:
    """Yield a function that begins a snapshot of the catalog, and one that copies it to a file.

    Writers of the catalog never wait. The first reads nothing of the tables: it is short.

    Raises:
        TemporaryError: PostgreSQL is not reachable.
        WarehouseError: it refuses, or its database has no warehouse.
    """
    place = locate_catalog(settings)
    tables: dict[str, str | None] = {}
    with _connect(place, "READ_ONLY") as connection:

        def begin() -> None:
            with explain_errors(place.name):
                connection.begin()  # repeatable read: every table is of this moment
                tables.update(_list_tables(connection))
            if not tables:
                raise WarehouseError(
                    f"there is no warehouse {place.name}", hint="check warehouse.catalog"
                )

        def copy(path: Path) -> None:
            with explain_errors(place.name):
                _copy_tables(connection, tables, path)

        yield begin, copy


def is_catalog_empty(settings: Settings) -> bool:
    """Return whether the database that the settings name has no catalog yet.

    Raises:
        TemporaryError: PostgreSQL is not reachable.
        WarehouseError: it refuses, for example because there is no such database.
    """
    place = locate_catalog(settings)
    with _connect(place, "READ_ONLY") as connection, explain_errors(place.name):
        return not _list_tables(connection)


def restore_catalog(settings: Settings, path: Path) -> None:
    """Write a copy into the empty database that the settings name: all of it or nothing.

    Raises:
        UsageError: the database has a catalog already.
        TemporaryError: PostgreSQL is not reachable.
        WarehouseError: it refuses, or the copy is none.
    """
    place = locate_catalog(settings)
    with _connect(place, "") as connection, explain_errors(place.name):
        connection.execute(f"ATTACH {quote_literal(str(path))} AS copy (READ_ONLY)")
        connection.begin()
        if _list_tables(connection):
            raise UsageError(
                f"the database of {place.name} has a catalog already: a backup is restored only "
                "into an empty one",
                hint="create a database, and name it in warehouse.catalog",
            )
        keys = connection.execute(f"FROM copy.main.{_KEYS} ORDER BY table_name").fetchall()
        for table, key in keys:
            source = f'SELECT * FROM copy.main."{table}"'
            connection.execute(f'CREATE TABLE site.public."{table}" AS {source}')
            if key is not None:
                _run(connection, f'ALTER TABLE public."{table}" ADD {key}')
        connection.commit()


@contextmanager
def _connect(place: CatalogLocation, option: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield an engine with the catalog's database attached as `site`."""
    connection = duckdb.connect(":memory:", config=extensions.build_config([_SCANNER]))
    try:
        extensions.load_extension(connection, _SCANNER)
        with explain_errors(place.name):
            connection.execute("SET TimeZone = 'UTC'")
            source = quote_literal(place.catalog.removeprefix("postgres:"))
            options = f"TYPE postgres{option and ', '}{option}"
            connection.execute(f"ATTACH {source} AS site ({options})")
        yield connection
    finally:
        connection.close()


def _list_tables(connection: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    sql = quote_literal(load_step("catalog_copies/catalog_tables"))
    rows = connection.execute(f"SELECT * FROM postgres_query('site', {sql})").fetchall()
    return {str(table): key and str(key) for table, key in rows}


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    connection.execute(f"CALL postgres_execute('site', {quote_literal(sql)})").fetchall()


def _copy_tables(
    connection: duckdb.DuckDBPyConnection, tables: dict[str, str | None], path: Path
) -> None:
    # One statement per table in the same transaction: only the copy is written.
    connection.execute(f"ATTACH {quote_literal(str(path))} AS copy")
    connection.execute(f"CREATE TABLE copy.main.{_KEYS} (table_name VARCHAR, primary_key VARCHAR)")
    for table, key in tables.items():
        connection.execute(
            f'CREATE TABLE copy.main."{table}" AS SELECT * FROM site.public."{table}"'
        )
        row = {"table": table, "key": key}
        connection.execute(f"INSERT INTO copy.main.{_KEYS} VALUES ($table, $key)", row)
    connection.commit()
    connection.execute("DETACH copy")
