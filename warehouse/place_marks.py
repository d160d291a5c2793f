"""Mark each place of files with the warehouse that they belong to; no other one may remove them.

A place is a folder or a bucket's prefix with data files, archived files or rows that wait. Its mark
is a small file: the id of the warehouse, which every writer of one catalog shares, and the newest
snapshot at some time. It appears completely or not at all, and only where there is none.

    no mark, no file         the first writer creates the mark
    no mark, files           as before where the catalog names one of them; else it is refused
    another's mark           refused
    a snapshot that the      the catalog is older than the files, or a copy of theirs: it is used,
    catalog does not have    and removes nothing

The mark follows the commits at most `STAMP_S` later, and at once when a warehouse is closed or
maintained. So a catalog that was restored from a copy made after the last stamp is not noticed: the
files that it lacks are then those of the commits of `STAMP_S` at most.
"""

import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Literal

import duckdb
import msgspec

from fallow.errors import FallowError, ForeignWarehouseError, WarehouseError
from fallow.settings import Settings
from warehouse.catalog import CatalogLocation
from warehouse.cold_storage import ColdFolder, ColdStore, open_place, open_store
from warehouse.failures import explain_errors
from warehouse.steps import load_step

log = logging.getLogger("fallow.warehouse")

MARK = "fallow-warehouse.json"
STAMP_S = 60.0
"""Seconds after a stamp until a commit brings the next one: a stamp takes as long as two commits'
synchronisation of files, or one PUT."""
QUEUE = "queue"
"""The folder of rows that wait, under the home folder."""

_SNAPSHOTS = "__ducklake_metadata_lake.ducklake_snapshot"
_SCHEDULED = "__ducklake_metadata_lake.ducklake_files_scheduled_for_deletion"

PlaceKind = Literal["data", "cold", "queue"]
KINDS: tuple[PlaceKind, ...] = ("data", "cold", "queue")


class PlaceMark(msgspec.Struct, frozen=True):
    """Whose files a place has; `at` is the snapshot's time, as its catalog has it."""

    warehouse: str
    snapshot: int
    at: str


def open_places(settings: Settings, place: CatalogLocation) -> dict[PlaceKind, ColdStore]:
    """Return the stores of a warehouse's places."""
    return {
        "data": open_place(place.data.rstrip("/"), settings.warehouse.s3, "warehouse.data"),
        "cold": open_store(settings),
        "queue": ColdFolder(str(place.home / QUEUE), "*.arrow"),
    }


def read_mark(store: ColdStore) -> PlaceMark | None:
    """Return the mark of a place; None: it has none.

    Raises:
        WarehouseError: the file is no mark.
    """
    path = f"{store.root}/{MARK}"
    try:
        return msgspec.json.decode(b"".join(store.blocks(path)), type=PlaceMark)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise WarehouseError(
            f"{path} is not the mark of a warehouse: {error}",
            hint="restore it, or remove it and run: fallow warehouse adopt",
        ) from error


def refuse_filled(
    settings: Settings,
    place: CatalogLocation,
    adopted: Collection[PlaceKind] = (),
    claimed: str = "",
) -> None:
    """Refuse to create a catalog where a place has the files of another one.

    Raises:
        ForeignWarehouseError: naming the place.
        TemporaryError: the store of the data files does not answer.
    """
    for kind, store in open_places(settings, place).items():
        try:
            mark, is_filled = read_mark(store), _is_filled(store)
        except FallowError as error:
            if kind == "data":
                raise
            log.warning("a place is not checked", extra={"place": store.root, "why": error.message})
            continue
        is_adopted = kind in adopted and (mark is None or mark.warehouse == claimed)
        if (mark or is_filled) and not is_adopted:
            name = mark.warehouse if mark else "of their own catalog"
            raise ForeignWarehouseError(
                f"the files in {store.root} belong to the warehouse {name}, and {place.name} has "
                "no catalog: a new one would not know them",
                hint="put its catalog back, restore a backup into empty places (fallow restore), "
                "or give this home other places; to begin a new warehouse beside these files: "
                f"fallow warehouse adopt {kind}{f' --from {mark.warehouse}' if mark else ''}",
            )


class PlaceMarks:
    """The marks of one open warehouse."""

    def __init__(
        self,
        settings: Settings,
        place: CatalogLocation,
        open_cursor: Callable[[], duckdb.DuckDBPyConnection],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._open_cursor, self._ticks = place, open_cursor, ticks
        self.stores = open_places(settings, place)
        self._stamped_at = ticks()
        self._is_due = False

    def check(self, kind: PlaceKind) -> bool:
        """Return whether this warehouse may remove files of a place; mark it where it is new.

        Raises:
            ForeignWarehouseError: the place is another warehouse's, or nobody knows whose.
            TemporaryError: its store does not answer.
        """
        with explain_errors(self._place.name):
            return self._check(kind) is not None

    def stamp(self, kind: PlaceKind) -> bool:
        """Write the newest snapshot into a place's mark; return whether files may be removed.

        Raises: as `check`.
        """
        with explain_errors(self._place.name):
            newest = self._check(kind)
            if newest is not None and newest != read_mark(self.stores[kind]):
                self._write(kind, newest, is_new=False)
        return newest is not None

    def note_commit(self, *, is_last: bool = False) -> None:
        """Stamp the data files' place if the last stamp is old enough; a failure is logged.

        `is_last`: the warehouse is being closed.
        """
        self._is_due = self._is_due or not is_last
        if self._is_due and (is_last or self._ticks() - self._stamped_at >= STAMP_S):
            self._is_due, self._stamped_at = False, self._ticks()
            try:
                self.stamp("data")
            except FallowError as error:
                log.warning("the data files' mark is not stamped", extra={"why": error.message})

    def is_behind(self) -> bool:
        """Return whether the data files' mark has a snapshot that the catalog does not have."""
        with explain_errors(self._place.name):
            mark = read_mark(self.stores["data"])
            newest = self._read_newest()
            if mark is None or mark.warehouse != newest.warehouse:
                return False
            return self._lacks(mark, newest)

    def adopt(self, kind: PlaceKind, claimed: str = "") -> None:
        """Take a place for this warehouse.

        Raises:
            ForeignWarehouseError: it has the mark of a warehouse that is not `claimed`.
        """
        mark, newest = read_mark(self.stores[kind]), self._read_newest()
        if mark and mark.warehouse not in (newest.warehouse, claimed):
            raise self._explain_foreign(kind, mark)
        self._write(kind, newest, is_new=False)

    def refuse_foreign(self, kind: PlaceKind) -> None:
        """Refuse a place with the mark of another warehouse; nothing is written."""
        mark = read_mark(self.stores[kind])
        if mark and mark.warehouse != self._read_newest().warehouse:
            raise self._explain_foreign(kind, mark)

    def _check(self, kind: PlaceKind) -> PlaceMark | None:
        """Return the mark that the place should have; None: nothing may be removed from it."""
        store = self.stores[kind]
        # The catalog is read later than the mark: it has every snapshot that a mark names.
        mark = read_mark(store)
        newest = self._read_newest()
        if mark is None:
            return self._begin(kind, newest)
        if mark.warehouse != newest.warehouse:
            raise self._explain_foreign(kind, mark)
        if self._lacks(mark, newest, is_kept=kind == "data"):
            log.warning(
                "the catalog is older than its files, or a copy: nothing is removed",
                extra={"place": store.root, "snapshot": newest.snapshot, "mark": mark.snapshot},
            )
            return None
        return newest

    def _begin(self, kind: PlaceKind, newest: PlaceMark) -> PlaceMark | None:
        """Mark a place that has no mark, unless its files are of an unknown warehouse."""
        store, named = self.stores[kind], self.list_named(kind)
        if _is_filled(store) and kind != "queue":
            if not any(path in named for path, _ in store.listed()):
                raise ForeignWarehouseError(
                    f"{store.root} has files of which the catalog {self._place.name} names none: "
                    "nobody knows whose they are",
                    hint="put their catalog back, set another place (warehouse.data, "
                    f"warehouse.cold), or take them: fallow warehouse adopt {kind}",
                )
        elif named:
            return None  # its files are away: a folder that is not mounted
        if not self._write(kind, newest, is_new=True):
            return self._check(kind)  # another process was first
        return newest

    def _write(self, kind: PlaceKind, mark: PlaceMark, *, is_new: bool) -> bool:
        store = self.stores[kind]
        return store.write(f"{store.root}/{MARK}", msgspec.json.encode(mark), is_new=is_new)

    def _read_newest(self) -> PlaceMark:
        [row] = self._read(load_step("marks/newest_snapshot"))
        return PlaceMark(*row)

    def _lacks(self, mark: PlaceMark, newest: PlaceMark, *, is_kept: bool = True) -> bool:
        """Whether the catalog lacks a mark's snapshot. `is_kept`: it is not one that expired."""
        if newest.snapshot < mark.snapshot:
            return True
        times = self._read(
            f"SELECT snapshot_time::VARCHAR FROM {_SNAPSHOTS} WHERE snapshot_id = {mark.snapshot:d}"
        )
        return times != [(mark.at,)] if times or is_kept else False

    def list_named(self, kind: PlaceKind, *, retired: bool = True) -> set[str]:
        """Return the addresses of the files in a place that the catalog names.

        `retired`: also those that no snapshot has, and that wait for their removal.
        """
        root = f"{self.stores[kind].root}/"
        if kind == "data":
            paths = [path for path, *_ in self._read(load_step("maintenance/files_of_lake"))]
            if retired:
                paths += [path for (path,) in self._read(f"SELECT path FROM {_SCHEDULED}")]
            return {path if path.startswith(root) else root + path for path in paths}
        if kind == "cold":
            paths = self._read("SELECT path FROM lake.main.cold_file")
            return {path for (path,) in paths if path.startswith(root)}
        return set()

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._open_cursor()
        try:
            return cursor.execute(sql).fetchall()
        finally:
            cursor.close()

    def _explain_foreign(self, kind: PlaceKind, mark: PlaceMark) -> ForeignWarehouseError:
        return ForeignWarehouseError(
            f"the files in {self.stores[kind].root} belong to the warehouse {mark.warehouse}, and "
            f"{self._place.name} is another one",
            hint=f"give this home a place of its own (warehouse.{kind}); if that warehouse is no "
            f"more: fallow warehouse adopt {kind} --from {mark.warehouse}",
        )


def _is_filled(store: ColdStore) -> bool:
    mark = f"{store.root}/{MARK}"
    return any(path != mark for path, _ in store.listed())
