"""Bring a catalog up to date after its files moved: another path, volume or bucket.

The catalog has one absolute path of the lake, and one of each archived file; every other file is
named from the first. A home that was copied or is mounted elsewhere is corrected by the first
process that opens it, under the writer's lock, once every data file of the newest snapshot has been
seen in its new place with its size. An archived file is known by its place below the archive's
root: TABLE/month=.../day=.../NAME.
"""

from collections.abc import Collection
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import duckdb
import msgspec

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings
from warehouse import catalog
from warehouse.cold_storage import locate_cold, open_store
from warehouse.data_objects import open_lake_files
from warehouse.failures import explain_errors
from warehouse.lock import WriterLock, queue_writers
from warehouse.place_marks import PlaceKind, PlaceMarks, refuse_filled
from warehouse.statements import fetch_row, fetch_rows
from warehouse.steps import load_step

_METADATA = "__ducklake_metadata_lake.ducklake_metadata"
_MISMATCH = "does not match existing data path"
_LEVELS = 4
"""Parts of an archived file's path below the root: table, month, day and name."""


class RelocatedPart(msgspec.Struct, frozen=True):
    """A part of a warehouse that has another place now: the lake's data, or archived files."""

    part: str
    source: str
    target: str
    files: int
    missing: int
    """Archived files that are in neither place; the catalog keeps their old paths."""


def connect_moved(
    settings: Settings,
    place: catalog.CatalogLocation,
    *,
    write: bool,
    adopted: Collection[PlaceKind] = (),
    claimed: str = "",
) -> duckdb.DuckDBPyConnection:
    """Connect the engine; an embedded warehouse that moved is relocated first.

    A writer has the lock already. A catalog in PostgreSQL is relocated only by the command: its
    other processes may have other settings. A new catalog may find files only in `adopted` places.

    Raises:
        ForeignWarehouseError: a place has files, and there is no catalog.
        WarehouseError: data files are missing in the new place.
        TemporaryError: a process writes under the old path.
    """
    refuse = partial(refuse_filled, settings, place, adopted, claimed)
    try:
        connection = catalog.connect_engine(settings, place, write=write, before_creation=refuse)
    except duckdb.Error as error:
        if _MISMATCH not in str(error) or not place.embedded:
            raise
        _relocate_locked(settings, place, lock=not write)
        return catalog.connect_engine(settings, place, write=write)
    if not place.embedded or not _is_archive_gone(connection, settings, place):
        return connection
    connection.close()
    with suppress(TemporaryError):  # without it only the archived days cannot be read
        _relocate_locked(settings, place, lock=not write)
    return catalog.connect_engine(settings, place, write=write)


def relocate_warehouse(settings: Settings, *, renew: bool = False) -> list[RelocatedPart]:
    """Store the places that the settings name in the catalog, and mark them; return what moved.

    Archived files that are not in the new place keep their old paths. `renew`: the catalog is a
    copy, which becomes a warehouse with an id of its own.

    Raises:
        ForeignWarehouseError: a new place is another warehouse's.
        WarehouseError: there is no warehouse, or data files are missing in the new place.
        TemporaryError: a process is writing to an embedded warehouse.
    """
    place = catalog.locate_catalog(settings)
    if place.embedded and not (place.home / catalog.CATALOG_FILE).exists():
        raise WarehouseError(
            f"there is no catalog at {place.name}",
            hint="copy the whole home folder, or set home to where it lies",
        )
    with explain_errors(place.name):
        return _relocate_locked(settings, place, lock=place.embedded, renew=renew, mark=True)


def _relocate_locked(
    settings: Settings,
    place: catalog.CatalogLocation,
    *,
    lock: bool,
    renew: bool = False,
    mark: bool = False,
) -> list[RelocatedPart]:
    writer = WriterLock(place.home / "writer.lock")
    if lock:
        writer.acquire()
    try:
        connection = catalog.connect_engine(settings, place, write=False, moved=True)
        try:
            with nullcontext() if place.embedded else queue_writers(connection):
                if renew:
                    connection.execute(load_step("marks/renew"))
                parts = _relocate(connection, settings, place)
                marks = PlaceMarks(settings, place, connection.cursor)
                for kind in ("data", "cold") if mark else ():
                    marks.check(kind)
                return parts
        finally:
            connection.close()
    finally:
        writer.release()


def _relocate(
    connection: duckdb.DuckDBPyConnection, settings: Settings, place: catalog.CatalogLocation
) -> list[RelocatedPart]:
    cursor = connection.cursor()
    stored = fetch_row(cursor, f"SELECT value FROM {_METADATA} WHERE key = 'data_path'")
    source = str(stored[0]) if stored else place.data
    parts = []
    # The lake's own path comes last: after an interruption the next open begins again.
    if source != place.data:
        PlaceMarks(settings, place, connection.cursor).refuse_foreign("data")
        parts = [RelocatedPart("data", source, place.data, _check_files(cursor, place, source), 0)]
    parts += _relocate_archive(connection, settings, place)
    if source != place.data:
        _store_data_path(cursor, place.data)
    return parts


def _store_data_path(cursor: duckdb.DuckDBPyConnection, data: str) -> None:
    cursor.execute(
        f"UPDATE {_METADATA} SET value = {catalog.quote_literal(data)} WHERE key = 'data_path'"
    )


def _check_files(
    cursor: duckdb.DuckDBPyConnection, place: catalog.CatalogLocation, source: str
) -> int:
    """Return how many files the newest snapshot reads; refuse where one is not in its new place."""
    named = [
        (path, size)
        for path, size, live in cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
        if live
    ]
    if place.remote:
        pattern = catalog.quote_literal(f"{place.data}**")
        listed = {row[0] for row in cursor.execute(f"SELECT file FROM glob({pattern})").fetchall()}
        missing = [path for path, _ in named if place.data + path not in listed]
    else:
        missing = [path for path, size in named if _read_size(Path(place.data, path)) != size]
    if missing:
        raise WarehouseError(
            f"the warehouse {place.name} was written with its data in {source}, and {len(missing)} "
            f"of its {len(named)} data files are not under {place.data} or not whole, such as "
            f"{missing[0]}",
            hint=f"copy {source} to {place.data} completely, or set warehouse.data (or home) back",
        )
    return len(named)


def _relocate_archive(
    connection: duckdb.DuckDBPyConnection, settings: Settings, place: catalog.CatalogLocation
) -> list[RelocatedPart]:
    target = locate_cold(settings)
    cursor = connection.cursor()
    try:
        rows = fetch_rows(cursor, "SELECT path, bytes FROM lake.main.cold_file ORDER BY path")
    except duckdb.CatalogException:  # a lake without tables
        return []
    outside = [row for row in rows if not row[0].startswith(f"{target}/")]
    if not outside:
        return []
    stored = {path for path, _ in open_store(settings).listed()} if "://" in target else None
    parts: dict[str, list[int]] = {}
    moved = []
    for path, size in outside:
        root, inner = split_archived(path)
        new = f"{target}/{inner}"
        is_there = new in stored if stored is not None else _read_size(Path(new)) == size
        counts = parts.setdefault(root, [0, 0])
        if is_there:
            moved.append(path)
            counts[0] += 1
        elif "://" not in path and not Path(path).exists():
            counts[1] += 1
    if moved:
        files = open_lake_files(settings, place)
        began = files.now()
        cursor.begin()
        try:
            cursor.execute(
                f"UPDATE lake.main.cold_file SET path = {catalog.quote_literal(target + '/')}"
                f" || array_to_string(str_split(path, '/')[-{_LEVELS}:], '/')"
                " WHERE list_contains($moved, path)",
                {"moved": moved},
            )
            files.commit(cursor, began)
        except BaseException:
            with suppress(duckdb.Error):  # a commit that failed has rolled back
                cursor.rollback()
            raise
    return [
        RelocatedPart("archive", root, target, files=moved_files, missing=missing)
        for root, (moved_files, missing) in parts.items()
        if moved_files or missing
    ]


def _is_archive_gone(
    connection: duckdb.DuckDBPyConnection, settings: Settings, place: catalog.CatalogLocation
) -> bool:
    """Return whether archived files are in a folder that does not exist, and settings name one."""
    # The engine also allows its folder of temporary files, which need not exist yet.
    row = fetch_row(
        connection,
        "SELECT list_filter(current_setting('allowed_directories'),"
        " lambda path: NOT starts_with(path, current_setting('temp_directory')))",
    )
    roots = set(row[0] if row else ()) - catalog.list_places(settings, place)
    return any("://" not in root and not Path(root).exists() for root in roots)


def split_archived(path: str) -> tuple[str, str]:
    """Return the root of an archived file, and its place below it."""
    parts = path.rsplit("/", _LEVELS)
    return parts[0], "/".join(parts[1:])


def _read_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
