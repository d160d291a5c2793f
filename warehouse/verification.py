"""Read everything back: the catalog, every data file of the lake, every archived file.

A damaged file affects only its own rows: queries over other times still work. Its content is in a
backup or, for device samples and what is rolled up from them, perhaps in the source.
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fallow.errors import WarehouseError
from warehouse.catalog import CATALOG_FILE, quote_literal
from warehouse.cold_storage import ColdStore, open_store
from warehouse.failures import explain_errors
from warehouse.statements import fetch_row
from warehouse.steps import load_step
from warehouse.storage import get_storage
from warehouse.tiers import ArchivedFile

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

_REPAIR_HINT = (
    "restore it from a backup; until then queries that need its rows fail, all others answer"
)
_INTEGRITY = """
import sqlite3, sys
catalog = sqlite3.connect(sys.argv[1] + "?mode=ro", uri=True)
for row in catalog.execute("PRAGMA integrity_check(5)"):
    print(row[0])
"""
_HASHED = "SELECT count(*), bit_xor(hash(*COLUMNS(*))) FROM"
"""Hashing makes the engine read and decode every value; a count alone reads no values."""


class ReadCheck(msgspec.Struct, frozen=True):
    """The result of one check; `detail` reports what was read and, on failure, what to do."""

    subject: str
    ok: bool
    detail: str


def verify_warehouse(warehouse: "Warehouse") -> Iterator[ReadCheck]:
    """Read everything in one snapshot; yield one check per table, and one per damaged file.

    Files must exist with the catalog's size, decode completely and have the catalog's number of
    rows. Archived files must have the checksum that they were written with.

    Raises:
        TemporaryError: PostgreSQL or the object store is not reachable.
    """
    yield from verify_lake(warehouse)
    yield from _check_places(warehouse)
    archived = _list_registered(warehouse)
    place = open_store(warehouse.settings)
    for table in sorted({file.table for file in archived}):
        yield from _check_archived(place, table, [file for file in archived if file.table == table])


def verify_lake(warehouse: "Warehouse") -> Iterator[ReadCheck]:
    """Read the catalog and the lake's data files, not the archived ones; see `verify_warehouse`."""
    if warehouse.place.embedded:
        yield _check_catalog(warehouse.place.home / CATALOG_FILE)
    rows: dict[str, dict[str, int]] = {}
    with warehouse.snapshot() as cursor:
        for table, name, count in cursor.execute(load_step("maintenance/files")).fetchall():
            rows.setdefault(table, {})[name] = count
    for table in sorted(rows):
        yield from _check_table(warehouse, table, rows[table])


def _check_places(warehouse: "Warehouse") -> Iterator[ReadCheck]:
    """Count the files that no snapshot has, and the snapshots' files that are not there."""
    marks = warehouse.marks
    is_behind = marks.is_behind()
    with explain_errors(warehouse.place.name):
        before = marks.list_named("data", retired=False)  # files come and go meanwhile
        on_disk = {path for path, _ in marks.stores["data"].listed() if "/main/" in path}
        named, after = marks.list_named("data"), marks.list_named("data", retired=False)
    behind = "; the catalog is older than the files" if is_behind else ""
    extra = f"{len(on_disk - named)} that were not committed, or whose catalog is another one"
    yield ReadCheck("files without a snapshot", ok=not is_behind, detail=extra + behind)
    missing = sorted((before & after) - on_disk)
    example = f", such as {missing[0]}: {_REPAIR_HINT}" if missing else ""
    yield ReadCheck(
        "snapshots without a file", ok=not missing, detail=f"{len(missing)} files{example}"
    )


def _check_catalog(path: Path) -> ReadCheck:
    # In a process of its own: if Python's SQLite opened the file beside the engine's, closing it
    # would release the engine's locks on the file (sqlite.org/howtocorrupt.html, 2.2.1).
    command = [sys.executable, "-I", "-S", "-c", _INTEGRITY, path.absolute().as_uri()]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (ours)
    lines = process.stdout.splitlines() + process.stderr.splitlines()[-1:]
    ok = lines == ["ok"]
    detail = f"{path.stat().st_size:,} bytes" if ok else f"{'; '.join(lines)}: restore {path}"
    return ReadCheck("catalog", ok, detail)


def _check_table(warehouse: "Warehouse", table: str, rows: dict[str, int]) -> Iterator[ReadCheck]:
    with warehouse.snapshot() as cursor:
        listed = cursor.execute(
            "SELECT data_file, data_file_size_bytes, delete_file, delete_file_size_bytes"
            " FROM ducklake_list_files('lake', $table)",
            {"table": table},
        ).fetchall()
    data = {path: size for path, size, _, _ in listed}
    sizes = data | {path: size for _, _, path, size in listed if path is not None}
    errors = {} if warehouse.place.remote else _find_size_errors(sizes)
    whole = errors or _find_read_error(warehouse, f'lake.main."{table}"')
    for path in sizes.keys() - errors.keys() if whole else ():
        # Something is damaged: check each file alone, so that each is named.
        wrong = _find_read_error(warehouse, f"read_parquet({quote_literal(path)})")
        if wrong:
            errors.setdefault(path, wrong)
    for path in data:
        count = rows.get(path.rpartition("/")[2])
        if (
            path not in errors
            and count is not None
            and (row_count := _count_rows(warehouse, path)) != count
        ):
            errors[path] = f"holds {row_count:,} rows, the catalog says {count:,}"
    hours = _list_hours(warehouse, table) if errors else {}
    for path, wrong in errors.items():
        lost = hours.get(path.rpartition("/")[2], "")
        yield ReadCheck(f"{table}: {path}", ok=False, detail=f"{wrong}{lost}: {_REPAIR_HINT}")
    if whole and not errors:
        yield ReadCheck(table, ok=False, detail=f"{whole}: {_REPAIR_HINT}")
    if not whole and not errors:
        description = _describe_files(len(sizes), sum(sizes.values()))
        yield ReadCheck(table, ok=True, detail=f"{sum(rows.values()):,} rows, {description}")


def _list_hours(warehouse: "Warehouse", table: str) -> dict[str, str]:
    """Return of which times the rows of each data file are, in words, by the file's name."""
    try:
        column = get_storage(table).time_column
    except KeyError:  # a table of the store's own, such as its version
        return {}
    with warehouse.snapshot() as cursor:
        rows = cursor.execute(
            load_step("maintenance/file_hours"), {"table": table, "time_column": column}
        ).fetchall()
    return {name: f", rows of {first[:16]} to {last[:16]} UTC" for name, first, last in rows}


def _find_size_errors(sizes: dict[str, int]) -> dict[str, str]:
    """Return the size errors of the local files."""
    errors = {}
    for path, size in sizes.items():
        try:
            size_on_disk = Path(path).stat().st_size
        except FileNotFoundError:
            errors[path] = "is not there"
        else:
            if size_on_disk != size:
                errors[path] = f"has {size_on_disk:,} bytes, the catalog says {size:,}"
    return errors


def _find_read_error(warehouse: "Warehouse", source: str) -> str:
    try:
        with warehouse.snapshot() as cursor:
            cursor.execute(f"{_HASHED} {source}").fetchall()
    except WarehouseError as error:
        return f"cannot be read ({error.message})"
    return ""


def _count_rows(warehouse: "Warehouse", path: str) -> int:
    with warehouse.snapshot() as cursor:
        row = fetch_row(
            cursor, f"SELECT num_rows FROM parquet_file_metadata({quote_literal(path)})"
        )
    return int(row[0]) if row else 0


def _list_registered(warehouse: "Warehouse") -> list[ArchivedFile]:
    try:
        with warehouse.snapshot() as cursor:
            files = cursor.execute("FROM cold_file ORDER BY noun, path").fetchall()
    except WarehouseError:
        return []  # damage of this table itself is reported like that of any other table
    return [ArchivedFile(*file) for file in files]


def _check_archived(place: ColdStore, table: str, files: list[ArchivedFile]) -> Iterator[ReadCheck]:
    sound = True
    for file in files:
        wrong = _find_change(place, file)
        if wrong:
            sound = False
            yield ReadCheck(
                f"cold {table}: {file.path}", ok=False, detail=f"{wrong}: {_REPAIR_HINT}"
            )
    if sound:
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        yield ReadCheck(
            f"cold {table}",
            ok=True,
            detail=f"{rows:,} rows, {_describe_files(len(files), size)}, checksums",
        )


def _find_change(place: ColdStore, file: ArchivedFile) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        for block in place.blocks(file.path):
            digest.update(block)
            size += len(block)
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if size != file.bytes:
        return f"has {size:,} bytes, {file.bytes:,} were written"
    if digest.hexdigest() != file.sha256:
        return f"has sha256 {digest.hexdigest()[:12]}..., written was {file.sha256[:12]}..."
    return ""


def _describe_files(files: int, size: int) -> str:
    return f"{files} file{'s' * (files != 1)}, {size:,} bytes"
