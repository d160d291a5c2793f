"""Open a SQLite file that several processes and threads write, with every commit on disk.

The journal of actions and the outbox of reports are such files: write-ahead log, full
synchronisation, and the same errors where the file is busy, full or no database.
"""

import fcntl
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fallow.errors import TemporaryError, WarehouseError
from fallow.system.disk_space import is_disk_full

BUSY_S = 30.0
"""Seconds that a statement waits for another process's write (each takes milliseconds)."""
POLL_S = 0.05
"""Seconds between two attempts to get a lock."""


class SqliteFile:
    """An open file. Its methods raise TemporaryError where the file is busy or the disk full."""

    def __init__(self, path: Path, name: str, *, write: bool) -> None:
        """Open a file; `write` creates it with its folder. `name` stands in its errors.

        Raises:
            TemporaryError: another process holds it for too long.
            WarehouseError: it is no SQLite file, or its place cannot be written.
        """
        self.path, self._name = path, name
        self.lock = threading.RLock()
        try:
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
            # mode=rw, not ro: a reader of a write-ahead log writes its shared memory.
            self.connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={'rwc' if write else 'rw'}",
                uri=True,
                timeout=BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except (OSError, sqlite3.Error) as error:
            raise WarehouseError(f"the {name} {path} cannot be opened: {error}") from error
        try:
            with self.explain_errors():
                _write_ahead(self.connection)
                self.connection.execute("PRAGMA synchronous = FULL")
                self.connection.execute("PRAGMA fullfsync = ON")
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        with self.lock:
            self.connection.close()

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a query."""
        with self.lock, self.explain_errors():
            return self.connection.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement in a transaction of its own; return how many rows it changed."""
        with self.lock, self.explain_errors():
            return self.connection.execute(sql, values).rowcount

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all statements of the block or none; no other process writes meanwhile."""
        with self.lock, self.explain_errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, with the file's name and path."""
        try:
            yield
        except sqlite3.Error as error:
            text = f"the {self._name} {self.path}: {error}"
            is_full = "disk I/O error" in str(error) and is_disk_full(self.path.parent)
            if is_full or any(word in str(error) for word in ("locked", "busy", "full")):
                text += ", the disk is full" if is_full else ""
                raise TemporaryError(text, hint="try again in a moment") from error
            raise WarehouseError(text) from error


def copy_together(
    copies: Mapping[Path, Path], *, on_snapshot: Callable[[], None] = lambda: None
) -> None:
    """Copy SQLite files (source to target) as they all are at one moment, beside their writers.

    `on_snapshot` is called at this moment, while no file is written.

    Writers wait for the milliseconds in which a snapshot of each file is opened. This process must
    not have a source open in another library: closing it here would release that one's locks.

    Raises:
        TemporaryError: another process holds a file for too long, or the disk is full.
        WarehouseError: a file is no SQLite file.
    """
    with ExitStack() as stack:
        files = {
            source: stack.enter_context(SqliteFile(source, "file", write=False))
            for source in copies
        }
        with ExitStack() as writers:
            for source in copies:
                gate = writers.enter_context(SqliteFile(source, "file", write=False))
                writers.enter_context(gate.transaction())
            for file in files.values():
                with file.explain_errors():
                    file.connection.execute("BEGIN")
                    file.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            on_snapshot()
        for source, target in copies.items():
            with files[source].explain_errors(), closing(sqlite3.connect(target)) as copy:
                files[source].connection.backup(copy)


@contextmanager
def hold_lock(path: Path, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Yield whether no other process holds this lock; wait for it at most `wait_s` seconds.

    The kernel frees the lock of a process that died.
    """
    deadline = time.monotonic() + wait_s
    with path.open("a") as handle:
        while not _try_lock(handle.fileno()):
            if time.monotonic() >= deadline:
                yield False
                return
            time.sleep(POLL_S)
        yield True


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL; SQLite does not wait while another process opens the new file."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)
        else:
            return
