"""Make new data files survive a power cut before the catalog lists them.

The lake syncs its catalog but never its Parquet files, so a power cut after a commit could leave
a committed, truncated file. Syncing them and their folders first costs about a millisecond.
"""

import os
import re
import time
from pathlib import Path

from warehouse.catalog import CatalogLocation

_NAME = re.compile(r"ducklake-([0-9a-f]{8})-([0-9a-f]{4})-7")
"""A data file's name holds a version 7 UUID: its first 48 bits are milliseconds since 1970."""

_SLACK_MS = 2_000
"""Folder times come from a clock that may lag: a tick locally, seconds on network file systems."""


class DataFiles:
    """The data files under a local folder; remote files are durable without a sync."""

    def __init__(self, place: CatalogLocation) -> None:
        self._root = None if place.remote else Path(place.data)
        self._leaves: set[str] = set()
        self._reached: set[str] = set()

    def now(self) -> int:
        """Return the timestamp to pass to `sync` later, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000 - 1

    def sync(self, since: int) -> int:
        """Flush files younger than `since` and the folders that lead to them; return how many."""
        if self._root is None or not self._root.is_dir():
            return 0
        return self._sync_folder(self._root, since)

    def _sync_folder(self, folder: Path, since: int) -> int:
        path = str(folder)
        untouched = folder.stat().st_mtime_ns // 1_000_000 < since - _SLACK_MS
        if untouched and path in self._leaves:
            return 0
        new, folders = 0, []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not untouched and _is_younger(entry.name, since):
                    _sync(entry.path)
                    new += 1
        if not folders:
            self._leaves.add(path)
        below = sum(self._sync_folder(Path(folder), since) for folder in folders)
        # A new folder on the way to a new file is an entry of its parent: flush every folder of the
        # path, each once.
        if new or (below and not self._reached.issuperset(folders)):
            _sync(path)
        if below:
            self._reached.update(folders)
        return new + below


def is_data_file(name: str) -> bool:
    """Whether a file's name is one that the lake gives."""
    return _NAME.match(name) is not None


def _is_younger(name: str, since: int) -> bool:
    match = _NAME.match(name)
    return match is None or int(match[1] + match[2], 16) >= since


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
