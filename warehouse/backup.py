"""List what a copy of the catalog needs: the lake's data files and the archived ones.

The copy is one moment of the lake. Files never change, and a file that a later commit replaces
stays until maintenance removes it; `hold_files` keeps maintenance from that meanwhile.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings
from fallow.sqlite_file import hold_lock
from warehouse import catalog
from warehouse.cold_storage import locate_cold
from warehouse.data_objects import open_lake_files
from warehouse.lake import Warehouse, utc_now
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


@contextmanager
def hold_files(settings: Settings) -> Iterator[None]:
    """Let no maintenance remove a file of this home meanwhile; commits go on.

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


def locate_catalog_file(settings: Settings) -> Path:
    """Return the path of the catalog's file.

    Raises:
        WarehouseError: the catalog is in PostgreSQL, or there is none.
    """
    place = catalog.locate_catalog(settings)
    if not place.embedded:
        raise WarehouseError(
            "the catalog is in PostgreSQL: this command does not copy it",
            hint="back up the database with pg_dump first and then "
            f"{place.data} and {locate_cold(settings)}; `fallow backup --without-warehouse` "
            "covers the rest",
        )
    path = place.home / catalog.CATALOG_FILE
    if not path.exists():
        raise WarehouseError(f"there is no warehouse at {place.name}", hint="check --home")
    return path


def list_files(settings: Settings, copy: Path) -> list[WarehouseFile]:
    """Return the files that a copy of the catalog names; `copy` is a home with that copy alone."""
    place = catalog.locate_catalog(settings)
    with closing(sqlite3.connect(copy / catalog.CATALOG_FILE)) as connection, connection:
        # Files that wait for their removal are not in a backup, so a copy must not remove them.
        connection.execute("DELETE FROM ducklake_files_scheduled_for_deletion")
    original = _at(settings, copy, place.data, locate_cold(settings))
    with Warehouse.open(original) as warehouse, warehouse.snapshot() as cursor:
        lake = cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
        archived = cursor.execute("SELECT path, sha256 FROM cold_file ORDER BY path").fetchall()
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
    moved = _at(settings, copy, data, locate_cold(settings))
    place = catalog.locate_catalog(moved)
    connection = catalog.connect_engine(moved, place, write=False, moved=True)
    files = open_lake_files(moved, place)
    with Warehouse(connection, moved, place, None, utc_now, files=files, write=False) as warehouse:
        return list(verify_lake(warehouse))


def _at(settings: Settings, home: Path, data: str, archive: str) -> Settings:
    places = settings.warehouse.model_copy(update={"data": data, "cold": archive, "catalog": ""})
    return settings.model_copy(update={"home": home, "warehouse": places})
