"""Commit a transaction so that its objects in a store survive whatever happens to the commit.

A finished write of an object is durable. But when a commit fails the lake removes the transaction's
new objects, and the catalog may have the commit: PostgreSQL's answer was lost. So each new object
is copied by its store before the commit, and the copy is removed after it. After a failure the
objects are put back at once, by the next writer that opens the warehouse, or by the next commit.
Those that the catalog does not name once a later commit has succeeded are removed.

The engine's log of HTTP requests says which objects a transaction wrote: one request to list them
per table and day would cost more than the copies.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import duckdb

from fallow.demo_marker import is_demo_home
from fallow.errors import FallowError
from fallow.settings import Settings
from warehouse.catalog import CatalogLocation
from warehouse.cold_storage import ColdBucket, explain_lost_object
from warehouse.data_files import (
    SECOND_NAMES,
    DataFiles,
    LakeFiles,
    build_second_name,
    compute_now,
    is_data_file,
    is_younger,
    split_second_name,
)
from warehouse.steps import load_step

log = logging.getLogger("fallow.warehouse")

AT_ONCE = 8
"""Copies that are made at the same time: a store answers each after some tens of milliseconds."""


def open_lake_files(settings: Settings, place: CatalogLocation) -> LakeFiles:
    """Return what commits transactions to the data files of a warehouse."""
    if place.remote:
        return DataObjects(settings, place)
    return DataFiles(place, durable=not is_demo_home(settings.home))


class DataObjects:
    """The data files of a lake below a bucket's prefix."""

    def __init__(self, settings: Settings, place: CatalogLocation) -> None:
        self._root = place.data
        self._store = ColdBucket(f"{place.data}{SECOND_NAMES}", settings.warehouse.s3)
        self._unsettled = False

    def now(self) -> int:
        """Return the timestamp to pass to `commit` later, in milliseconds since 1970."""
        return compute_now()

    def commit(self, cursor: duckdb.DuckDBPyConnection, since: int) -> None:
        """Commit the cursor's transaction; its objects, younger than `since`, outlive a failure.

        Raises:
            duckdb.Error: the commit failed; whether the catalog has it is unknown until a later
                one succeeds.
            TemporaryError: the store does not copy an object, or lost it; nothing is committed.
        """
        paths = self._list_new(cursor, since)
        copies = [f"{self._store.root}/{build_second_name(path)}" for path in paths]
        try:
            _map(self._store.copy, [self._root + path for path in paths], copies)
        except FileNotFoundError as error:
            raise explain_lost_object(str(error)) from error
        try:
            cursor.commit()
        except BaseException:
            with suppress(duckdb.Error):
                cursor.rollback()
            self.put_back()
            raise
        self._remove(copies)
        # A commit without new objects may not have written to the catalog at all.
        if paths and self._unsettled:
            self._settle(cursor)

    def put_back(self) -> None:
        """Put back the objects that failed commits removed; what cannot be put back is kept.

        With several writing processes the caller has the writers' turn.
        """
        try:
            for copy, path in self._list_copies():
                self._unsettled = True
                if not self._store.exists(path):
                    self._store.copy(copy, path)
        except (FallowError, FileNotFoundError) as error:
            self._unsettled = True
            log.warning("objects of a failed commit are not put back yet", extra={"why": error})

    def _settle(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Put back what the catalog names, remove what it does not, and remove all copies."""
        try:
            rows = cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
            named = {self._root + path for path, _, _ in rows}
            for copy, path in self._list_copies():
                if path not in named:
                    log.warning(
                        "a commit that failed is not in the catalog: its file is removed",
                        extra={"file": path},
                    )
                    self._store.delete(path)
                elif not self._store.exists(path):
                    self._store.copy(copy, path)
                self._store.delete(copy)
        except (duckdb.Error, FallowError, FileNotFoundError) as error:
            log.warning("the next commit settles a failed one", extra={"why": error})
            return  # what was committed is committed
        self._unsettled = False

    def _list_new(self, cursor: duckdb.DuckDBPyConnection, since: int) -> list[str]:
        """Return the paths below the root of the objects that were written since; empty the log."""
        rows = cursor.execute(load_step("maintenance/uploads")).fetchall()
        cursor.execute("CALL truncate_duckdb_logs()")
        prefix = urlsplit(self._root).path.lstrip("/")
        paths = (_find_path(url, prefix) for (url,) in rows)
        return sorted({path for path in paths if path and is_younger(path, since)})

    def _list_copies(self) -> list[tuple[str, str]]:
        """Return the address of each copy, and the address of its object."""
        copies = [address for address, _ in self._store.listed()]
        names = [(copy, copy.rpartition("/")[2]) for copy in copies]
        return [
            (copy, f"{self._root}{'/'.join(split_second_name(name))}")
            for copy, name in names
            if is_data_file(name)
        ]

    def _remove(self, addresses: list[str]) -> None:
        try:
            _map(self._store.delete, addresses)
        except FallowError as error:  # the next commit tries again
            self._unsettled = True
            log.warning("copies of objects are not removed yet", extra={"why": error})


def _find_path(url: str, prefix: str) -> str:
    """Return the path below the root of an uploaded object; empty: it is not the lake's."""
    # The host or the first folder is the bucket; the lake's own folders begin at its schema, main.
    _, match, path = unquote(urlsplit(url).path).partition(f"/{prefix}main/")
    return f"main/{path}" if match and is_data_file(path.rpartition("/")[2]) else ""


def _map(function: Callable[..., object], *arguments: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(function, *arguments))
