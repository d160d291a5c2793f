"""The journal: one append-only SQLite file whose rows are hash-chained.

Every row carries the hash of the row before it, so a changed, lost or inserted row breaks the chain
at a place that `verify` names. Several processes may append: the service acts while people approve,
keep, undo and freeze from the command line. A row is on disk before `append` returns (WAL,
synchronous=FULL): a row written before a change is there after a power cut.
"""

import fcntl
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from fallow.errors import TemporaryError, UsageError, WarehouseError
from fallow.renamed import read_renames
from fallow.resources import read_text

BUSY_S = 30.0
"""Seconds that an append waits for another process's append (each takes milliseconds)."""
POLL_S = 0.05
"""Seconds between two attempts of a process that waits for its turn to act."""
GENESIS = "0" * 64
"""The previous hash that the first row names."""
COLUMNS = "seq, at, kind, key, actor, document, previous, hash"


class Entry(msgspec.Struct, frozen=True):
    """One row: what happened, its subject (an action, a finding, a policy), and the actor.

    Type and fields have the names of today (`fallow/renamed.csv`); the file keeps those of before.
    """

    seq: int
    at: datetime
    kind: str
    key: str
    actor: str
    document: dict[str, Any]
    previous: str
    hash: str


class BrokenLink(msgspec.Struct, frozen=True):
    """The first row at which the chain is broken, and why."""

    seq: int
    why: str


class Journal:
    """An open journal. One object may be used by several threads."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, clock: Callable[[], datetime], actor: str
    ) -> None:
        self.path, self.actor = path, actor
        self._connection, self._clock = connection, clock
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        path: Path,
        clock: Callable[[], datetime],
        *,
        write: bool = True,
        actor: str = "fallow",
    ) -> Self:
        """Open a journal; create it where it does not exist and `write` is set.

        Raises:
            UsageError: there is no journal to read.
            WarehouseError: the file is no journal, or its place cannot be written.
        """
        if not write and not path.is_file():
            raise UsageError(
                f"there is no journal at {path}", hint="nothing has acted or been asked for yet"
            )
        try:
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if write else "rw"
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except (OSError, sqlite3.Error) as error:
            raise WarehouseError(f"the journal {path} cannot be opened: {error}") from error
        try:
            _write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            if write:
                connection.executescript(_schema())
            else:
                connection.execute("PRAGMA query_only = ON")
            connection.execute(f"SELECT {COLUMNS} FROM entry LIMIT 1").fetchone()
        except sqlite3.Error as error:
            connection.close()
            raise _to_error(path, error) from error
        return cls(path, connection, clock, actor)

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
        with self._lock:
            self._connection.close()

    def append(self, kind: str, key: str, document: Any, *, actor: str | None = None) -> Entry:
        """Write one row; it is on disk when this returns.

        Raises:
            TemporaryError: another process holds the journal for too long, or the disk is full.
        """
        return self.extend([(kind, key, document)], actor=actor)[0]

    def extend(
        self, rows: Iterable[tuple[str, str, Any]], *, actor: str | None = None
    ) -> list[Entry]:
        """Write rows (kind, key, document), all of them or none; see `append`."""
        at, author = self._clock().astimezone(UTC), actor or self.actor
        entries: list[Entry] = []
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                last = self._connection.execute(
                    "SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1"
                ).fetchone() or (0, GENESIS)
                seq, previous = int(last[0]), str(last[1])
                for kind, key, document in rows:
                    seq, text = seq + 1, canonical(document)
                    row_hash = _hash(previous, seq, at.isoformat(), kind, key, author, text)
                    row = (seq, at.isoformat(), kind, key, author, text, previous, row_hash)
                    self._connection.execute(
                        f"INSERT INTO entry ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
                    )
                    previous = row_hash
                    entries.append(_entry(row))
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise _to_error(self.path, error) from error
        return entries

    def entries(self, *kinds: str, key: str | None = None, after: int = 0) -> list[Entry]:
        """Return rows in order: all, or those of some kinds, of a key, after a row."""
        conditions: list[str] = ["seq > ?"]
        values: list[Any] = [after]
        if kinds:
            stored = [*kinds, *(old for old, new in read_renames("event").items() if new in kinds)]
            conditions.append(f"kind IN ({', '.join('?' * len(stored))})")
            values += stored
        if key is not None:
            conditions.append("key = ?")
            values.append(key)
        where = " AND ".join(conditions)
        with self._lock:
            try:
                rows = self._connection.execute(
                    f"SELECT {COLUMNS} FROM entry WHERE {where} ORDER BY seq", values
                ).fetchall()
            except sqlite3.Error as error:
                raise _to_error(self.path, error) from error
        return [_entry(row) for row in rows]

    def follow(self, after: int, previous: str) -> list[Entry]:
        """Return the rows after one whose hash is given, each checked against the chain.

        Raises:
            WarehouseError: a link is broken. No process may act on a journal that was changed.
        """
        with self._lock:
            try:
                rows = self._connection.execute(
                    f"SELECT {COLUMNS} FROM entry WHERE seq > ? ORDER BY seq", (after,)
                ).fetchall()
            except sqlite3.Error as error:
                raise _to_error(self.path, error) from error
        for row in rows:
            why = _check_link(row, after + 1, previous)
            if why is not None:
                raise WarehouseError(
                    f"the journal {self.path} is broken at row {row[0]}: {why}",
                    hint="nothing acts by it; keep the file and find out who changed it",
                )
            after, previous = row[0], str(row[7])
        return [_entry(row) for row in rows]

    def verify(self, copied: Iterable[tuple[int, str]] = ()) -> BrokenLink | None:
        """Return the first broken link of the chain; None = every row is as it was written.

        `known` are rows' numbers and hashes as stored elsewhere (the warehouse's copy). Only they
        can show that rows were cut off at the end.
        """
        copied_hashes = dict(copied)
        previous, seq = GENESIS, 0
        for row in self._raw():
            broken = _check_link(row, seq + 1, previous)
            seq, previous = row[0], str(row[7])
            if broken is None and copied_hashes.pop(seq, previous) != previous:
                broken = "it is not the row that the warehouse's copy has"
            if broken is not None:
                return BrokenLink(seq, broken)
        if copied_hashes:
            return BrokenLink(min(copied_hashes), "it is missing here; the warehouse's copy has it")
        return None

    @contextmanager
    def alone(self, wait_s: float = BUSY_S) -> Iterator[None]:
        """Let no other process act on this journal meanwhile; appending stays allowed.

        Raises:
            TemporaryError: another process acts on it for too long.
        """
        path = self.path.with_name(self.path.name + ".acting")
        with path.open("a") as handle:
            deadline = time.monotonic() + wait_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() >= deadline:
                        raise TemporaryError(
                            f"another process acts by the journal {self.path}",
                            hint="try again in a moment",
                        ) from None
                    time.sleep(POLL_S)
            yield

    def _raw(self) -> Iterator[tuple[Any, ...]]:
        with self._lock:
            try:
                yield from self._connection.execute(f"SELECT {COLUMNS} FROM entry ORDER BY seq")
            except sqlite3.Error as error:
                raise _to_error(self.path, error) from error


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


def _schema() -> str:
    return read_text("actions.journal", "schema.sql")


def _check_link(row: tuple[Any, ...], expected: int, previous: str) -> str | None:
    seq, at, kind, key, actor, document, previous_hash, row_hash = row
    if seq != expected:
        return f"row {expected} is missing before it"
    if previous_hash != previous:
        return "it does not name the row before it"
    if _hash(previous_hash, seq, at, kind, key, actor, document) != row_hash:
        return "it is not what was written"
    return None


def _hash(previous: str, seq: int, *parts: str) -> str:
    # Lengths separate the fields, so that no two rows have the same text to hash.
    text = "".join(f"{len(part)}:{part}" for part in (previous, str(seq), *parts))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(document: Any) -> str:
    """Return a document as rows store it: JSON in canonical form."""
    plain = msgspec.to_builtins(document, enc_hook=str)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _entry(row: tuple[Any, ...]) -> Entry:
    at, stored_kind, document = datetime.fromisoformat(row[1]), row[2], json.loads(row[5])
    fields = {
        old.partition(".")[2]: new.partition(".")[2]
        for old, new in read_renames("journal").items()
        if old.startswith(f"{stored_kind}.")
    }
    if fields:
        document = {fields.get(name, name): value for name, value in document.items()}
    kind = read_renames("event").get(stored_kind, stored_kind)
    return Entry(row[0], at, kind, row[3], row[4], document, row[6], row[7])


def _to_error(path: Path, error: sqlite3.Error) -> TemporaryError | WarehouseError:
    text = str(error)
    if any(word in text for word in ("locked", "busy", "full")):
        return TemporaryError(f"the journal {path}: {text}", hint="try again in a moment")
    return WarehouseError(f"the journal {path}: {text}")
