"""Know which places of archived files can be read at present, without waiting for each query.

A place is `s3://bucket/prefix` or a folder. An object store counts as away for `AGAIN_S` after a
read of it failed: the figures of one page then wait for its timeout once, not each. A folder is
away while it is missing or empty, as the mount point of a file system that is not mounted. A single
file that is missing in a folder that is there is damage, not absence.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable

AGAIN_S = 30.0
"""Seconds after a failed read until an object store is tried again."""


class ColdReach:
    """Which places of archived files are away. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._retry_at: dict[str, float] = {}

    def list_away(self, places: Iterable[str]) -> frozenset[str]:
        """Return which of these places cannot be read at present."""
        return frozenset(place for place in places if self._is_away(place))

    def report_failure(self, places: Iterable[str]) -> bool:
        """Note that a read of an object store failed; return whether that is new for one of them.

        The engine's message does not name the place, so that all object stores count as away.
        """
        now, fresh = self._clock(), False
        with self._lock:
            for place in places:
                if "://" in place and self._retry_at.get(place, now) <= now:
                    self._retry_at[place] = now + AGAIN_S
                    fresh = True
        return fresh

    def _is_away(self, place: str) -> bool:
        if "://" in place:
            with self._lock:
                return self._retry_at.get(place, 0.0) > self._clock()
        return not _has_entries(place)


def find_place(path: str) -> str:
    """Return the place of an archived file: `s3://cold/fallow` of `s3://cold/fallow/sample/...`."""
    return path.partition("/month=")[0].rpartition("/")[0]


def _has_entries(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        # A network file system whose server is gone; a refusal is not absence, it stays an error.
        return isinstance(error, PermissionError)
