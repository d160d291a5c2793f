"""List what a copy of the catalog needs: the lake's data files and the archived ones.

The copy is a SQLite file, or the file that `catalog_copies` writes of a catalog in PostgreSQL.

The copy is one moment of the lake. Files never change, and a file that a later commit replaces
stays until maintenance removes it; `hold_files` keeps maintenance from that meanwhile.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import duckdb
import msgspec

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings
from fallow.system.sqlite_file import copy_together, hold_lock
from warehouse import catalog
from warehouse.catalog_copies import CATALOG_COPY, hold_snapshot
from warehouse.cold_storage import locate_cold
from warehouse.data_objects import open_lake_files
from warehouse.failures import explain_errors
from warehouse.lake import Warehouse, get_utc_now
from warehouse.relocation import split_archived
from warehouse.steps import load_step
from warehouse.verification import ReadCheck, verify_lake

DATA, ARCHIVE = "data", "cold"
"""The folders of a backup, as in a home."""
WAIT_S = 600.0
"""How long a backup waits for maintenance to end its removal of files."""


class WarehouseFile(msgspec.Struct, frozen=True):
    """A file of the warehouse: its name in a backup, and where it is."""

    name: str
    address: str
    sha256: str
    """Of an archived file, as it was written; the catalog has none of the lake's."""


def copy_catalog(settings: Settings, at: datetime) -> Path:
    """Copy the catalog as it is to a file of the home; return its path.

    Put back in its place within a day, it is the warehouse of this moment: data files never change,
    and maintenance keeps a replaced one for a day.

    Raises:
        TemporaryError: it is held for too long, the disk is full, or PostgreSQL does not answer.
        WarehouseError: there is no warehouse.
    """
    source = locate_catalog_file(settings)
    name = catalog.CATALOG_FILE if source else CATALOG_COPY
    stem, _, suffix = name.rpartition(".")
    target = settings.home.expanduser() / f"{stem}-before-{at:%Y%m%dT%H%M%SZ}.{suffix}"
    if source:
        copy_together({source: target})
    else:
        with hold_snapshot(settings) as (begin, copy):
            begin()
            copy(target)
    return target


def copy_before_upgrade(settings: Settings, at: datetime) -> Path | None:
    """Copy the catalog, as `copy_catalog`, where opening it for writing changes tables; else None.

    Raises:
        TemporaryError: as `copy_catalog`.
    """
    try:
        steps = Warehouse.list_upgrade_steps(settings)
    except WarehouseError:  # there is none yet, or opening it says why it cannot be opened
        return None
    return copy_catalog(settings, at) if steps else None


@contextmanager
def hold_files(settings: Settings) -> Iterator[None]:
    """Let no maintenance of this host remove a file meanwhile; commits go on.

    Maintenance of another host keeps a replaced file for a day, or for an hour where
    `maintenance.MOST_REPLACED_FILES` wait.

    Raises:
        TemporaryError: maintenance, or another backup, does not end.
    """
    place = catalog.locate_catalog(settings)
    with hold_lock(place.home / catalog.BACKUP_LOCK, wait_s=WAIT_S) as is_held:
        if not is_held:
            raise TemporaryError(
                f"maintenance or another backup of {place.name} does not end",
                hint="try again when it has ended",
            )
        yield


def locate_catalog_file(settings: Settings) -> Path | None:
    """Return the path of the catalog's file; None: it is in PostgreSQL.

    Raises:
        WarehouseError: there is none.
    """
    place = catalog.locate_catalog(settings)
    if not place.embedded:
        return None
    path = place.home / catalog.CATALOG_FILE
    if not path.exists():
        raise WarehouseError(f"there is no warehouse at {place.name}", hint="check --home")
    return path


def list_files(settings: Settings, copy: Path) -> list[WarehouseFile]:
    """Return the files that a copy of the catalog names; `copy` is a home with that copy alone."""
    place = catalog.locate_catalog(settings)
    # Files that wait for their removal are not in a backup, so a copy must not remove them.
    forget = "DELETE FROM ducklake_files_scheduled_for_deletion"
    if place.embedded:
        with closing(sqlite3.connect(copy / catalog.CATALOG_FILE)) as connection, connection:
            connection.execute(forget)
    else:
        with duckdb.connect(copy / CATALOG_COPY) as engine:
            engine.execute(forget)
    # Opening follows a home that moved.
    original = (
        Warehouse.open(_change_place(settings, copy, place.data))
        if place.embedded
        else _open_copy(settings, copy, place.data)
    )
    with original as warehouse, warehouse.snapshot() as cursor:
        lake = cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
        archived = cursor.execute("SELECT path, sha256 FROM cold_file ORDER BY path").fetchall()
    if place.embedded:
        with closing(sqlite3.connect(copy / catalog.CATALOG_FILE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the copy is one file
    return [
        *(WarehouseFile(f"{DATA}/{path}", place.data + path, "") for path, _, _ in lake),
        *(
            WarehouseFile(f"{ARCHIVE}/{split_archived(path)[1]}", path, sha256)
            for path, sha256 in archived
        ),
    ]


def verify_copy(settings: Settings, copy: Path, data: str) -> list[ReadCheck]:
    """Read a copy of the lake's data back and write nothing there.

    `copy` is a home with a copy of the catalog alone. Archived files have checksums of their own.
    """
    with _open_copy(settings, copy, data) as warehouse:
        return list(verify_lake(warehouse))


def _open_copy(settings: Settings, copy: Path, data: str) -> Warehouse:
    """Return the warehouse of a copy of the catalog, with its data in another place."""
    moved = _change_place(settings, copy, data)
    place = catalog.locate_catalog(moved)
    if (copy / CATALOG_COPY).exists():
        place = catalog.CatalogLocation(str(copy / CATALOG_COPY), place.data, copy, embedded=False)
    with explain_errors(place.name):
        connection = catalog.connect_engine(moved, place, write=False, moved=True)
    files = open_lake_files(moved, place)
    return Warehouse(connection, moved, place, None, get_utc_now, files=files, write=False)


def _change_place(settings: Settings, copy: Path, data: str) -> Settings:
    places = {"data": data, "cold": locate_cold(settings), "catalog": ""}
    warehouse = settings.warehouse.model_copy(update=places)
    return settings.model_copy(update={"home": copy, "warehouse": warehouse})
