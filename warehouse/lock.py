"""Decide who may write: one process with SQLite, one transaction at a time with PostgreSQL.

With a SQLite catalog two writers would make each other's commits fail ("database is locked",
measured: 43 of 47 compactions lost), so the second writer is refused when it opens. The kernel
frees the lock however its holder ends, `kill -9` included. The file's content (the holder's pid)
is only for messages.

PostgreSQL takes several writing processes. They queue for each transaction: two that store the same
new key at the same time would both succeed, because the lake has no unique keys.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

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
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
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
        self._descriptor = descriptor
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:  # a full disk: this process itself would be refused at its next attempt
            self.release()
            raise

    def release(self) -> None:
        """Release the lock; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_QUEUE = int.from_bytes(b"FALLOW", "big")
_PATIENCE = "120s"
"""Longer than any of our transactions: a longer wait means that another process hangs."""


@contextmanager
def queue_writers(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Hold the PostgreSQL catalog's advisory lock: other processes' writes wait.

    The lock is in a transaction of its own, which ends with this block or with this process.

    Raises:
        duckdb.Error: the lock was not free within two minutes, or PostgreSQL is not reachable.
    """
    cursor = connection.cursor()
    try:
        cursor.begin()
        for call in (
            f"set_config(''lock_timeout'', ''{_PATIENCE}'', true)",
            f"pg_advisory_xact_lock({_QUEUE})::text",
        ):
            select_sql = (
                f"SELECT * FROM postgres_query('__ducklake_metadata_lake', 'SELECT {call}')"
            )
            cursor.execute(select_sql).fetchall()
        yield
    finally:
        with suppress(duckdb.Error):
            cursor.rollback()
        cursor.close()
