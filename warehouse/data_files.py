"""Commit a transaction so that its data files survive whatever happens to the commit.

The lake syncs its catalog but never its Parquet files, so a power cut after a commit could leave
a committed, truncated file. Syncing them and their folders first costs about a millisecond.

When a commit fails the lake removes the transaction's new files. But the catalog may have the
commit: a sync of SQLite's log failed after the log was written, or PostgreSQL's answer was lost.
So each new file has a second name (a hard link) until its commit has succeeded. After a failure
the files are put back at once, or by the next writer that opens the warehouse. Those that the
catalog does not name once a later commit has succeeded are removed.
"""

import errno
import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import duckdb

from warehouse.catalog import CatalogLocation
from warehouse.steps import load_step

log = logging.getLogger("fallow.warehouse")

SECOND_NAMES = "unconfirmed"
"""The folder of second names, below the data: a hard link must be on the same file system."""

_SEPARATOR = "|"
"""Stands for the slash in a second name: NAME|FOLDER|FOLDER. The lake writes none in its paths."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
"""Errors of a file system that has no hard links, such as FAT and some network shares."""

_NAME = re.compile(r"ducklake-([0-9a-f]{8})-([0-9a-f]{4})-7")
"""A data file's name holds a version 7 UUID: its first 48 bits are milliseconds since 1970."""

_SLACK_MS = 2_000
"""Folder times come from a clock that may lag: a tick locally, seconds on network file systems."""


class LakeFiles(Protocol):
    """What commits transactions so that their data files survive a failure."""

    def now(self) -> int:
        """Return the timestamp to pass to `commit` later, in milliseconds since 1970."""

    def commit(self, cursor: duckdb.DuckDBPyConnection, since: int) -> None:
        """Commit the cursor's transaction; its files, younger than `since`, outlive a failure."""

    def put_back(self) -> None:
        """Put back the files that failed commits removed."""


class DataFiles:
    """The data files of a lake under a local folder.

    `durable` False: nothing is flushed, because the whole lake can be made again (a demo's).
    """

    def __init__(self, place: CatalogLocation, *, durable: bool = True) -> None:
        self._root = Path(place.data)
        self._durable = durable
        self._leaves: set[str] = set()
        self._reached: set[str] = set()
        self._unsettled = False

    def now(self) -> int:
        """Return the timestamp to pass to `commit` later, in milliseconds since 1970."""
        return compute_now()

    def commit(self, cursor: duckdb.DuckDBPyConnection, since: int) -> None:
        """Commit the cursor's transaction; its files, younger than `since`, outlive a failure.

        Raises:
            duckdb.Error: the commit failed; whether the catalog has it is unknown until a later
                one succeeds.
            OSError: a file cannot be flushed; nothing is committed.
        """
        new = self._sync_files(since)
        links = self._link(new)
        try:
            cursor.commit()
        except BaseException:
            with suppress(duckdb.Error):
                cursor.rollback()
            self.put_back()
            raise
        for link in links:
            self._remove(link)
        # A commit without new files may not have written to the catalog at all.
        if new and self._unsettled:
            self._settle(cursor)

    def put_back(self) -> None:
        """Put back the files that failed commits removed; what cannot be put back keeps its link.

        With several writing processes the caller has the writers' turn.
        """
        for link, path in self._list_links():
            self._unsettled = True
            # It is there: the commit failed before the lake removed it. Others: the disk refuses.
            with suppress(OSError):
                os.link(link, path)

    def _settle(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Remove the files of commits that the catalog does not have, and all second names."""
        try:
            rows = cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
        except duckdb.Error:
            return  # what was committed is committed: the next commit settles
        named = {str(self._root / path) for path, _, _ in rows}
        self._unsettled = False
        for link, path in self._list_links():
            if path not in named:
                log.warning(
                    "a commit that failed is not in the catalog: its file is removed",
                    extra={"file": path},
                )
                self._remove(path)
            self._remove(link)

    def _list_links(self) -> list[tuple[str, str]]:
        """Return each second name, and the path of its data file."""
        folder = self._root / SECOND_NAMES
        try:
            names = sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return []
        return [
            (str(folder / name), str(self._root.joinpath(*split_second_name(name))))
            for name in names
            if is_data_file(name)
        ]

    def _link(self, paths: list[str]) -> list[str]:
        """Give data files a second name each; none where the file system has no hard links."""
        links = []
        if paths:
            folder = self._root / SECOND_NAMES
            folder.mkdir(exist_ok=True)
            for path in paths:
                inner = Path(path).relative_to(self._root)
                if not is_data_file(inner.name):
                    continue
                link = str(folder / build_second_name(inner.as_posix()))
                try:
                    os.link(path, link)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    log.debug("no hard links here", extra={"folder": str(folder)})
                    break
                links.append(link)
        return links

    def _remove(self, path: str) -> None:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError:  # the next commit tries again
            self._unsettled = True

    def _sync_files(self, since: int) -> list[str]:
        """Flush files younger than `since` and the folders that lead to them; return the files."""
        if not self._durable or not self._root.is_dir():
            return []
        return self._sync_folder(self._root, since)

    def _sync_folder(self, folder: Path, since: int) -> list[str]:
        path = str(folder)
        untouched = folder.stat().st_mtime_ns // 1_000_000 < since - _SLACK_MS
        if untouched and path in self._leaves:
            return []
        new, folders = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != SECOND_NAMES:
                        folders.append(entry.path)
                elif not untouched and is_younger(entry.name, since):
                    sync_file(entry.path)
                    new.append(entry.path)
        if not folders:
            self._leaves.add(path)
        below = [file for inner in folders for file in self._sync_folder(Path(inner), since)]
        # A new folder on the way to a new file is an entry of its parent: flush every folder of the
        # path, each once.
        if new or (below and not self._reached.issuperset(folders)):
            sync_file(path)
        if below:
            self._reached.update(folders)
        return new + below


def is_data_file(name: str) -> bool:
    """Whether a file's name is one that the lake gives."""
    return _NAME.match(name) is not None


def compute_now() -> int:
    """Return a timestamp before that of every data file to come, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000 - 1


def build_second_name(path: str) -> str:
    """Return the second name of a data file by its path below the data, with slashes."""
    *folders, file = path.split("/")
    return _SEPARATOR.join([file, *folders])


def split_second_name(name: str) -> list[str]:
    """Return the folders and the file that a second name stands for."""
    file, *folders = name.split(_SEPARATOR)
    return [*folders, file]


def is_younger(path: str, since: int) -> bool:
    """Whether a data file was written since a timestamp; unknown counts as younger."""
    name = path.rpartition("/")[2]
    match = _NAME.match(name)
    return match is None or int(match[1] + match[2], 16) >= since


def sync_file(path: str) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
