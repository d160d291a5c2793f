"""Migrate a lake to this Fallow's schema: numbered migrations, then columns of tables.csv.

`migrations/NNNN_what.sql` run in order, all in one transaction with their rows in `schema_version`.
New tables and columns of `fallow/tables.csv` are added after each of them, so that a migration may
be a comment alone; the totals of the ledger are filled when their tables are added. Every change of
the tables raises the version (`migrations/shapes.csv` and a test hold this): an older Fallow
refuses a home that a newer one extended.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import duckdb
import msgspec

from fallow import __version__, tables
from fallow.errors import ForeignWarehouseError, WarehouseError
from fallow.renamed import read_renames
from warehouse import statements, totals
from warehouse.data_files import LakeFiles
from warehouse.statements import fetch_row
from warehouse.storage import TYPES, get_storage

_LAKE_OPTIONS = {
    "parquet_compression": "zstd",
    # Sorted data are 0.6 % larger with level 1 than with level 3, and inserting a scrape is faster.
    "parquet_compression_level": "1",
    "parquet_version": "2",
}
_ACCOUNTED_ANEW = 13
"""The migration that marks the months of before, all of them."""
_MARKS = "INSERT INTO restatement BY NAME"
"""Before the query of a migration that marks months: it reads tables of before."""
_INLINED = ("dirty", "watermark", "audit")
"""Tables of a few rows, kept in the catalog: a Parquet file for each change would cost more."""


@cache
def load_migrations() -> dict[int, str]:
    """Return the SQL of each migration by its number, in order."""
    folder = files("warehouse").joinpath("migrations")
    return {
        number: folder.joinpath(f"{name}.sql").read_text(encoding="utf-8")
        for number, name in _list_migrations().items()
    }


def _list_migrations() -> dict[int, str]:
    folder = files("warehouse").joinpath("migrations")
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".sql"))
    return {int(name[:4]): name.removesuffix(".sql") for name in names}


def get_current() -> int:
    """Return the version this Fallow reads and writes."""
    return max(load_migrations())


def read_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """Return the lake's schema version; 0 when the lake is new."""
    return _read_version(cursor, _read_columns(cursor))


def _read_version(cursor: duckdb.DuckDBPyConnection, have: Mapping[str, set[str]]) -> int:
    if "schema_version" not in have:
        return 0
    row = fetch_row(cursor, "SELECT max(version) FROM lake.main.schema_version")
    return int(row[0] or 0) if row else 0


@contextmanager
def _read_once(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Read the catalog once for all statements of the block: most of opening is reading it."""
    cursor.execute("BEGIN TRANSACTION READ ONLY")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # an error may have ended it
            cursor.rollback()


def check_schema(cursor: duckdb.DuckDBPyConnection, where: str) -> None:
    """Refuse a lake that this Fallow cannot read as it is.

    Raises:
        WarehouseError: there is no warehouse, or an older one.
        ForeignWarehouseError: a newer Fallow wrote it.
    """
    with _read_once(cursor):
        have = _read_columns(cursor)
        version = _read_version(cursor, have)
        _refuse_newer(cursor, version, where)
    if version == 0:
        raise WarehouseError(
            f"there is no warehouse at {where} yet",
            hint="bring telemetry in first: fallow collect --once",
        )
    missing = _find_missing(have)
    if version < get_current() or missing:
        lacks = f"schema {version}, this one reads {get_current()}"
        if missing:
            table, columns = next(iter(missing.items()))
            lacks = f"it lacks {table}.{columns[0].name}"
        raise WarehouseError(
            f"the warehouse at {where} was last written by an older Fallow ({lacks})",
            hint="`fallow warehouse upgrade` brings it up to date; with --check it only lists",
        )


class UpgradeStep(msgspec.Struct, frozen=True):
    """One change that an upgrade makes to a warehouse."""

    kind: str
    """migration, rename, table, column, or account: a month of the ledger."""
    name: str


def list_upgrade_steps(cursor: duckdb.DuckDBPyConnection, where: str) -> list[UpgradeStep]:
    """Return what `migrate_schema` would do, in order; nothing is changed.

    Raises:
        WarehouseError: a newer Fallow wrote this lake.
    """
    have = _read_columns(cursor)
    version = _read_version(cursor, have)
    _refuse_newer(cursor, version, where)
    renames = [
        UpgradeStep("rename", f"{old} to {new}")
        for old, new in read_renames("column").items()
        if old.split(".")[1] in have.get(old.split(".")[0], ())
    ]
    renamed = {tuple(step.name.split(" to ")[1].split(".")) for step in renames}
    added = [
        UpgradeStep("table", table)
        if table not in have
        else UpgradeStep("column", f"{table}.{column.name}")
        for table, columns in _find_missing(have).items()
        for column in (columns if table in have else columns[:1])
        if (table, column.name) not in renamed
    ]
    migrations = [
        UpgradeStep("migration", name)
        for number, name in _list_migrations().items()
        if number > version
    ]
    steps = [*migrations, *renames, *added]
    return [*steps, *(_list_months(cursor, have, version) if steps else ())]


def _list_months(
    cursor: duckdb.DuckDBPyConnection, have: Mapping[str, set[str]], version: int
) -> Iterator[UpgradeStep]:
    """Yield the months that are to be accounted anew once the migrations have run."""
    if "ledger" not in have:
        return
    sources = ["SELECT date_trunc('month', bucket) AS month FROM lake.main.ledger"]
    if version >= _ACCOUNTED_ANEW:
        later = [sql for number, sql in load_migrations().items() if number > version]
        sources = [
            "SELECT month FROM lake.main.restatement WHERE cause = 'due'",
            *(sql.partition(_MARKS)[2].strip(" \n;") for sql in later if _MARKS in sql),
        ]
    sql = " UNION ".join(f"SELECT month FROM ({source})" for source in sources)
    for (month,) in cursor.execute(f"{sql} ORDER BY month").fetchall():
        yield UpgradeStep("account", f"{month:%Y-%m}")


def migrate_schema(
    cursor: duckdb.DuckDBPyConnection, where: str, files: LakeFiles, *, is_lake: bool = True
) -> None:
    """Run the missing migrations, all or none of them; `files` are synced before each commit.

    `is_lake` False: the tables are the engine's own, which have no options, partitions and order.

    Raises:
        WarehouseError: a newer Fallow wrote this lake.
    """
    with _read_once(cursor):
        have = _read_columns(cursor)
        version = _read_version(cursor, have)
        _refuse_newer(cursor, version, where)
        unset = _list_unset_options(cursor) if is_lake else []
    missing = {number: sql for number, sql in load_migrations().items() if number > version}
    if missing:
        with _run_transaction(cursor, files):
            if version == 0:
                _create_tables(cursor, is_lake=is_lake)
            for number, sql in missing.items():
                cursor.execute(sql)
                if version > 0 or number in {min(missing), max(missing)}:  # a new one has no rows
                    _add_missing(cursor, is_lake=is_lake)
            _record_versions(cursor, missing)
        have = _read_columns(cursor)
    if changed := bool(_find_missing(have)):
        with _run_transaction(cursor, files):
            _add_missing(cursor, is_lake=is_lake)
    # A table's options cannot be set in the transaction that creates it: whoever opens next sets
    # what a crash between the two left out.
    if is_lake and (missing or changed):
        unset = _list_unset_options(cursor)
    if unset:
        with _run_transaction(cursor, files):  # one catalog query for all options
            for table, option, value in unset:
                cursor.execute(
                    f"CALL lake.set_option('{option}', '{value}', table_name => '{table}')"
                )


def _list_unset_options(cursor: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str]]:
    """Return the tables' options that are not set yet: table, option, value."""
    wanted = [(table, "data_inlining_row_limit", "100") for table in _INLINED]
    # Compaction sorts; sorting each scrape and each ledger write too would make them slower. Two
    # cores write rollups in parallel only when they are sorted.
    wanted += [
        (table, "sort_on_insert", "false")
        for table in tables.list_table_names()
        if get_storage(table).mode == "append" or table == "ledger"
    ]
    rows = cursor.execute(
        "SELECT scope_entry, option_name FROM ducklake_options('lake')"
        " WHERE scope = 'TABLE' AND scope_entry IS NOT NULL"  # null: the table is no more
    ).fetchall()
    have = {(entry.rpartition(".")[2], option) for entry, option in rows}
    return [row for row in wanted if row[:2] not in have]


@contextmanager
def _run_transaction(cursor: duckdb.DuckDBPyConnection, files: LakeFiles) -> Iterator[None]:
    """Commit all statements of the block, after their files are safe on disk, or none of them."""
    began = files.now()
    cursor.begin()
    try:
        yield
        files.commit(cursor, began)
    except BaseException:
        with suppress(duckdb.Error):  # a commit that failed has rolled back
            cursor.rollback()
        raise


def _refuse_newer(cursor: duckdb.DuckDBPyConnection, version: int, where: str) -> None:
    if version > get_current():
        row = fetch_row(cursor, "SELECT arg_max(fallow, version) FROM lake.main.schema_version")
        raise ForeignWarehouseError(
            f"the warehouse at {where} has schema {version}, written by Fallow "
            f"{row[0] if row else '?'}; this Fallow {__version__} knows schemas up to "
            f"{get_current()}",
            hint="upgrade this Fallow, or give it a home of its own",
        )


def _create_tables(cursor: duckdb.DuckDBPyConnection, *, is_lake: bool) -> None:
    for option, value in (_LAKE_OPTIONS if is_lake else {}).items():
        cursor.execute(f"CALL lake.set_option('{option}', '{value}')")
    cursor.execute(
        "CREATE TABLE schema_version (version INTEGER, applied_at TIMESTAMP, fallow VARCHAR)"
    )


def _record_versions(cursor: duckdb.DuckDBPyConnection, numbers: Iterable[int]) -> None:
    # Literals: binding a parameter imports pandas, which takes half a second at each command.
    timestamp, fallow = map(statements.write_literal, (datetime.now(UTC), __version__))
    values = ", ".join(f"({number:d}, {timestamp}, {fallow})" for number in numbers)
    cursor.execute(f"INSERT INTO schema_version VALUES {values}")


def _read_columns(cursor: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    rows = cursor.execute(
        "SELECT table_name, list(column_name) FROM duckdb_columns()"
        " WHERE database_name = 'lake' AND schema_name = 'main' GROUP BY ALL"
    ).fetchall()
    return {table: set(names) for table, names in rows}


def _find_missing(have: Mapping[str, set[str]]) -> dict[str, list[tables.Column]]:
    """Return the columns that tables lack whose columns are `have`."""
    wanted = {
        name: [c for c in tables.list_columns(name) if c.name not in have.get(name, set())]
        for name in tables.list_table_names()
    }
    return {name: columns for name, columns in wanted.items() if columns}


def _rename_columns(cursor: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """Rename columns that an older Fallow created (`fallow/renamed.csv`); return all columns."""
    have = _read_columns(cursor)
    for old, new in read_renames("column").items():
        table, old_name = old.split(".")
        new_name = new.split(".")[1]
        if old_name in have.get(table, ()) and new_name not in have[table]:
            cursor.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{old_name}" TO "{new_name}"')
            have[table] = (have[table] - {old_name}) | {new_name}
    return have


def create_again(cursor: duckdb.DuckDBPyConnection, *names: str) -> None:
    """Replace tables of the lake by empty ones: no file of theirs is read."""
    for name in names:
        cursor.execute(f'DROP TABLE "{name}"')
    _add_missing(cursor, is_lake=True)


def _add_missing(cursor: duckdb.DuckDBPyConnection, *, is_lake: bool) -> None:
    missing = _find_missing(_rename_columns(cursor))
    for table, columns in missing.items():
        listed = [f'"{c.name}" {TYPES[c.type]}' for c in columns]
        if len(columns) < len(tables.list_columns(table)):
            for column in listed:
                cursor.execute(f'ALTER TABLE "{table}" ADD COLUMN {column}')
            continue
        cursor.execute(f'CREATE TABLE "{table}" ({", ".join(listed)})')
        storage = get_storage(table)
        if storage.partition and is_lake:
            by = ", ".join(storage.partition)
            cursor.execute(f'ALTER TABLE "{table}" SET PARTITIONED BY ({by})')
        if storage.sort and is_lake:
            by = ", ".join(f'"{name}" ASC' for name in storage.sort)
            cursor.execute(f'ALTER TABLE "{table}" SET SORTED BY ({by})')
    if not missing.keys().isdisjoint(totals.PERIODS):
        totals.fill_totals(cursor)
