"""Make new data files survive a power cut before the catalog says they exist.

The lake syncs its catalog but never its Parquet files, so a power cut after a commit could leave
a committed, truncated file. Syncing them and their folders first costs about a millisecond.
"""

import os
import time
from pathlib import Path

from warehouse.catalog import Place

_SLACK_NS = 2_000_000_000
"""File systems stamp folders with a clock that may lag by a tick or, on network ones, seconds."""


class NewFiles:
    """The files that appear under a local data folder from now on."""

    def __init__(self, place: Place) -> None:
        self._root = None if place.remote else Path(place.data)
        self._since = time.time_ns() - _SLACK_NS

    def sync(self) -> int:
        """Flush the new files and the folders that hold them; return how many files."""
        if self._root is None or not self._root.is_dir():
            return 0
        return self._sync_folder(str(self._root))

    def _sync_folder(self, folder: str) -> int:
        count, touched = 0, Path(folder).stat().st_mtime_ns >= self._since
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    count += self._sync_folder(entry.path)
                elif touched and entry.stat().st_mtime_ns >= self._since:
                    _sync(entry.path)
                    count += 1
        if touched:
            _sync(folder)
        return count


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
