"""Open the engine on a catalog: SQLite and a folder, or PostgreSQL and a folder or S3.

An experiment's tables may be the engine's own instead, in memory: no catalog, no data files.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from fallow.errors import WarehouseError
from fallow.resources import read_text
from fallow.settings import Settings
from fallow.system.container_limits import read_cpu_limit, read_memory_limit
from warehouse import extensions
from warehouse.cold_storage import locate_cold
from warehouse.spill import choose_spill

CATALOG_FILE = "catalog.sqlite"
IN_MEMORY = ":memory:"
"""The catalog of a warehouse that has none."""
COLD_TIMEOUT_S, COLD_RETRIES = 8, 1
"""A store that hangs is given up after 16 s. A request reads a part of one file, some megabytes."""
_ARCHIVED = read_text("warehouse", "archived.sql")
_ABSENT = "creating a new DuckLake is explicitly disabled"
BACKUP_LOCK = "backup.lock"
"""Held by a backup while it copies files, and by maintenance while it removes some."""


class CatalogLocation(msgspec.Struct, frozen=True):
    """The place of one warehouse: its catalog and its data files."""

    catalog: str
    data: str
    home: Path
    embedded: bool
    snapshot: int | None = None
    """The snapshot that a reader sees for good; None: the newest one at each query."""

    @property
    def name(self) -> str:
        """The warehouse's name in messages; never a connection string, which may hold secrets."""
        if self.in_memory:
            return "in memory"
        return str(self.home) if self.embedded else f"in PostgreSQL with data in {self.data}"

    @property
    def in_memory(self) -> bool:
        """Whether the tables are the engine's own and end with it: nothing is in files."""
        return self.catalog == IN_MEMORY

    @property
    def remote(self) -> bool:
        """Whether the data files are in an object store, where a finished write is durable."""
        return "://" in self.data


def limit_to_reading(settings: Settings) -> Settings:
    """Return the settings of a reader: its catalog's role and its keys of S3, where it has some."""
    wanted = settings.warehouse
    changed: dict[str, Any] = {}
    if wanted.read_catalog:
        changed["catalog"] = wanted.read_catalog
    if wanted.read_s3.access_key_id:
        changed["s3"] = wanted.s3.model_copy(update=dict(wanted.read_s3))
    return settings.model_copy(update={"warehouse": wanted.model_copy(update=changed)})


def locate_catalog(settings: Settings) -> CatalogLocation:
    """Return the catalog's place as the settings give it.

    Raises:
        WarehouseError: the catalog is neither SQLite nor PostgreSQL.
    """
    home = _make_absolute(settings.home)
    wanted = settings.warehouse
    data = wanted.data or str(home / "data")
    data = data if "://" in data else str(_make_absolute(Path(data)))
    if not wanted.catalog:
        return CatalogLocation(
            f"sqlite:{home / CATALOG_FILE}", data.rstrip("/") + "/", home, embedded=True
        )
    if not wanted.catalog.startswith("postgres:"):
        raise WarehouseError(
            f"warehouse.catalog {wanted.catalog.partition(':')[0]!r} is no catalog we know",
            hint="leave it empty for SQLite under home, or write postgres:dbname=... host=...",
        )
    return CatalogLocation(wanted.catalog, data.rstrip("/") + "/", home, embedded=False)


def _make_absolute(path: Path) -> Path:
    """Return a path without `..`: another spelling of a place is another place to the catalog."""
    whole = path.expanduser().absolute()
    return whole.resolve() if ".." in whole.parts else whole


def locate_in_memory(settings: Settings) -> CatalogLocation:
    """Return the place of a warehouse in memory; what does not fit spills below the home."""
    home = _make_absolute(settings.home)
    return CatalogLocation(IN_MEMORY, f"{home / 'data'}/", home, embedded=True)


def connect_engine(
    settings: Settings,
    where: CatalogLocation,
    *,
    write: bool,
    moved: bool = False,
    before_creation: Callable[[], None] = lambda: None,
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the lake attached as `lake`, confined to the lake's files.

    `before_creation` is called before a writer creates a catalog, and may refuse it by a
    WarehouseError.
    `moved`: the data files are where the settings say, whatever the catalog says. Such a connection
    is not confined: it is for relocation only, which reads no SQL of a person.

    Raises:
        WarehouseError: an extension is missing, or a data file is a FIFO, socket or device.
        duckdb.Error: the catalog cannot be opened.
    """
    if not (where.remote or where.in_memory):
        refuse_special_files(where.data)
    needed = _list_extensions(settings, where)
    connection = duckdb.connect(":memory:", config=extensions.build_config(needed))
    try:
        if write and not where.remote:
            # Once it is confined, the engine creates folders only below this one.
            Path(where.data).mkdir(parents=True, exist_ok=True)
        _configure(connection, settings, where)
        for name in needed:
            extensions.load_extension(connection, name)
        if "httpfs" in needed and not where.remote:
            # Reads of archived files only. The timeout is that of a whole request, so that a store
            # that drips is given up too. GLOBAL: each query has a cursor of its own.
            connection.execute(f"SET GLOBAL http_timeout = {COLD_TIMEOUT_S:d}")
            connection.execute(f"SET GLOBAL http_retries = {COLD_RETRIES:d}")
        _create_secret(connection, settings)
        if write and where.remote:
            connection.execute("CALL enable_logging('HTTP')")  # `data_objects` reads it
        create = before_creation if write else None
        _attach(connection, where, moved=moved, before_creation=create)
        if not moved:
            _confine(connection, settings, where)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_special_files(folder: str) -> None:
    """Refuse a folder of data with a FIFO, a socket or a device: who reads a FIFO waits for good.

    Raises:
        WarehouseError: naming it.
    """
    folders = [folder]
    while folders:
        with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                elif not entry.is_file():
                    refuse_special_file(entry.path)


def refuse_special_file(path: str) -> None:
    """Refuse a path where a FIFO, a socket or a device is, and not one where nothing is.

    Raises:
        WarehouseError: naming it.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113  (1,000 paths)
        raise WarehouseError(
            f"{path} is no regular file: reading it may never end",
            hint="move it away; then `fallow warehouse verify` names what is missing",
        )


def _configure(
    connection: duckdb.DuckDBPyConnection, settings: Settings, where: CatalogLocation
) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    if not where.in_memory:
        # A join would give texts that it finds to the lake's file list (`views.tiers.select_lake`).
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    connection.execute("SET autoload_known_extensions = false")
    connection.execute("SET allow_community_extensions = false")
    threads = settings.warehouse.threads or read_cpu_limit()
    connection.execute(f"SET threads = {threads:d}")
    # Arrow, Polars and Python need memory too, so that the engine's own default is too much.
    limit = settings.warehouse.memory_limit or f"{read_memory_limit() // 2}B"
    # Quoted: binding a parameter imports pandas, a quarter of a second at each command.
    connection.execute(f"SET memory_limit = {quote_literal(limit)}")
    if not where.remote:
        # The system caches local files already. The engine's own copy of each file that was ever
        # read made a service grow with every cycle.
        connection.execute("SET enable_external_file_cache = false")
    spill = choose_spill(where.home) if where.home.is_dir() else Path(tempfile.gettempdir())
    connection.execute(f"SET temp_directory = {quote_literal(str(spill))}")


def _list_extensions(settings: Settings, where: CatalogLocation) -> list[str]:
    if where.in_memory:
        return []
    names = ["ducklake", "sqlite_scanner" if where.embedded else "postgres_scanner"]
    remote = where.remote or "://" in settings.warehouse.cold
    return [*names, "httpfs"] if remote else names


def _create_secret(connection: duckdb.DuckDBPyConnection, settings: Settings) -> None:
    wanted = settings.warehouse
    if "://" not in wanted.data and "://" not in wanted.cold:
        return
    s3 = wanted.s3
    scheme, _, host = s3.endpoint.rpartition("://")
    options = {
        "REGION": quote_literal(s3.region) if s3.region else "",
        "ENDPOINT": quote_literal(host) if host else "",
        "USE_SSL": "false" if scheme == "http" else "",
        "URL_STYLE": quote_literal("path") if s3.path_style and host else "",
    }
    if s3.access_key_id:
        options["KEY_ID"] = quote_literal(s3.access_key_id)
        options["SECRET"] = quote_literal(s3.secret_access_key.get_secret_value())
    listed = "".join(f", {name} {value}" for name, value in options.items() if value)
    connection.execute(f"CREATE OR REPLACE SECRET objects (TYPE s3{listed})")


def _attach(
    connection: duckdb.DuckDBPyConnection,
    where: CatalogLocation,
    *,
    moved: bool,
    before_creation: Callable[[], None] | None,
) -> None:
    if where.in_memory:
        connection.execute(f"ATTACH '{IN_MEMORY}' AS lake")
        # After 16 MB of changes, the default, most commits are checkpoints: 6 % of a simulation.
        connection.execute("SET wal_autocheckpoint = '1GB'")
        return
    options = [f"DATA_PATH {quote_literal(where.data)}", "DATA_INLINING_ROW_LIMIT 0"]
    if where.embedded:
        options += ["META_JOURNAL_MODE 'WAL'", "META_BUSY_TIMEOUT 5000"]
    if where.snapshot is not None:
        options += [f"SNAPSHOT_VERSION {where.snapshot:d}"]
    if moved:
        options += ["OVERRIDE_DATA_PATH true"]
    create = f"ATTACH {quote_literal('ducklake:' + where.catalog)} AS lake ({', '.join(options)}"
    attach = f"{create}, CREATE_IF_NOT_EXISTS false)"
    if before_creation is None:
        access = "" if moved else ", READ_ONLY"
        connection.execute(f"{attach.removesuffix(')')}{access})")
    elif where.embedded and not (where.home / CATALOG_FILE).exists():
        before_creation()  # SQLite would make an empty file of a catalog that is only tested for
        connection.execute(f"{create})")
    else:
        _attach_or_create(connection, attach, f"{create})", before_creation)


def _attach_or_create(
    connection: duckdb.DuckDBPyConnection,
    attach: str,
    create: str,
    before_creation: Callable[[], None],
) -> None:
    try:
        connection.execute(attach)
    except duckdb.Error as error:
        if _ABSENT not in str(error):
            raise
    else:
        return
    try:
        before_creation()
        connection.execute(create)
    except (duckdb.Error, WarehouseError) as refusal:
        # When several processes open a new catalog at the same time, PostgreSQL lets one of them
        # create its tables and makes the others wait until the tables exist.
        try:
            connection.execute(attach)
        except duckdb.Error:
            raise refusal from None


def _confine(
    connection: duckdb.DuckDBPyConnection, settings: Settings, where: CatalogLocation
) -> None:
    """Let the engine open files of the lake and of the cold tier only, from now on for good.

    It comes after ATTACH and after the extensions, which lie elsewhere. The second line of
    defence: `sql_access` refuses a query that names a file before the engine sees it. The
    SQLite and PostgreSQL scanners open their files and connections without asking the engine, so
    that the list of functions is the only line that holds for them.
    """
    places = list_places(settings, where) | _list_archive_roots(connection)
    listed = ", ".join(map(quote_literal, sorted(places)))
    connection.execute(f"SET allowed_directories = [{listed}]")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def list_places(settings: Settings, where: CatalogLocation) -> set[str]:
    """Return the folders and prefixes of files that the settings name, each with a last slash."""
    return {where.data, f"{where.home / 'staging'}/", f"{locate_cold(settings)}/"}


def _list_archive_roots(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the places of archived files: not where settings say, if somebody moved the tier."""
    try:
        # To read a table loads the whole catalog; most homes have archived nothing.
        if connection.execute(_ARCHIVED).fetchall() == [(0,)]:
            return set()
        rows = connection.execute(
            "SELECT DISTINCT regexp_replace(path, '[^/]*/month=.*$', '') FROM lake.main.cold_file"
        ).fetchall()
    except duckdb.CatalogException:  # a new lake has no tables yet
        return set()
    return {root for (root,) in rows}


def quote_literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
