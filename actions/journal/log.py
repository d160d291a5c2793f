"""The journal: one append-only SQLite file whose rows are hash-chained.

Every row carries the hash of the row before it, so a changed, lost or inserted row breaks the chain
at a place that `verify` names. Several processes may append: the service acts while people approve,
keep, undo and freeze from the command line. A row is on disk before `append` returns (WAL,
synchronous=FULL): a row written before a change is there after a power cut.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from fallow.errors import TemporaryError, UsageError, WarehouseError
from fallow.renamed import read_renames
from fallow.resources import read_text
from fallow.system.sqlite_file import BUSY_S, SqliteFile, hold_lock
from fallow.texts import escape_text
from fallow.window import YEARS

GENESIS = "0" * 64
"""The previous hash that the first row names."""
SHORTEST_ANCHOR = 16
"""Hexadecimal digits of a hash that an anchor has at least."""
ODD_VALUES = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
    msgspec.MsgspecError,
)  # fmt: skip
"""What is raised over a row whose values are others than Fallow writes."""
LONGEST_REASON = 200
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

    def __init__(self, file: SqliteFile, clock: Callable[[], datetime], actor: str) -> None:
        self.path, self.actor = file.path, actor
        self.writable = False
        self._file, self._clock = file, clock

    @classmethod
    def open(
        cls, path: Path, clock: Callable[[], datetime], *, write: bool = True, actor: str = "fallow"
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
        file = SqliteFile(path, "journal", write=write)
        try:
            with file.explain_errors():
                if write:
                    file.connection.executescript(_load_schema())
                else:
                    file.connection.execute("PRAGMA query_only = ON")
            file.query(f"SELECT {COLUMNS} FROM entry LIMIT 1")
        except BaseException:
            file.close()
            raise
        journal = cls(file, clock, actor)
        journal.writable = write
        return journal

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
        self._file.close()

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
        with self._file.transaction() as connection:
            last = connection.execute(
                "SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1"
            ).fetchone() or (0, GENESIS)
            seq, previous = int(last[0]), str(last[1])
            for kind, key, document in rows:
                seq, text = seq + 1, encode_canonical(document)
                row_hash = _hash(previous, seq, at.isoformat(), kind, key, author, text)
                row = (seq, at.isoformat(), kind, key, author, text, previous, row_hash)
                connection.execute(
                    f"INSERT INTO entry ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
                )
                previous = row_hash
                entries.append(_build_entry(row))
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
        rows = self._file.query(f"SELECT {COLUMNS} FROM entry WHERE {where} ORDER BY seq", values)
        return [_build_entry(row) for row in rows]

    def follow(self, after: int, previous: str) -> list[Entry]:
        """Return the rows after one whose hash is given, each checked against the chain.

        Raises:
            WarehouseError: a link is broken. No process may act on a journal that was changed.
        """
        rows = self._file.query(f"SELECT {COLUMNS} FROM entry WHERE seq > ? ORDER BY seq", [after])
        for row in rows:
            self._require_link(row, after + 1, previous)
            after, previous = row[0], str(row[7])
        return [_build_entry(row) for row in rows]

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

    def has_row(self, seq: int, row_hash: str) -> bool:
        """Return whether a row has this hash."""
        return bool(self._file.query("SELECT 1 FROM entry WHERE seq=? AND hash=?", [seq, row_hash]))

    def check_links(self, until: int) -> None:
        """Check the chain up to a row without reading what the rows say.

        Raises:
            WarehouseError: a link is broken. No process may act on a journal that was changed.
        """
        seq, previous = 0, GENESIS
        for row in self._raw(until):
            self._require_link(row, seq + 1, previous)
            seq, previous = row[0], str(row[7])

    def anchor(self, digits: int = 64) -> str:
        """Return the last row as ROW:HASH, `digits` of the hash; empty without rows."""
        rows = self._file.query("SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1")
        return f"{rows[0][0]}:{rows[0][1][:digits]}" if rows else ""

    def explain_anchor(self, anchor: str) -> str | None:
        """Return why this journal does not have the row that an anchor names; None = it has.

        Raises:
            UsageError: it is no ROW:HASH.
        """
        number, _, row_hash = anchor.partition(":")
        if not number.isdecimal() or len(row_hash) < SHORTEST_ANCHOR:
            raise UsageError(
                f"{anchor!r} is no anchor of a journal",
                hint="legal: ROW:HASH, as reports, notices and backups have it",
            )
        rows = self._file.query("SELECT hash FROM entry WHERE seq = ?", [int(number)])
        if not rows:
            last = self.anchor().partition(":")[0] or "0"
            return f"the journal ends at row {last}, before row {number}"
        if not str(rows[0][0]).startswith(row_hash):
            return f"row {number} is not the row that was written: its hash differs"
        return None

    @contextmanager
    def alone(self, wait_s: float = BUSY_S) -> Iterator[None]:
        """Let no other process act on this journal meanwhile; appending stays allowed.

        Raises:
            TemporaryError: another process acts on it for too long.
        """
        path = self.path.with_name(self.path.name + ".acting")
        with hold_lock(path, wait_s=wait_s) as is_held:
            if not is_held:
                raise TemporaryError(
                    f"another process acts by the journal {self.path}", hint="try again in a moment"
                )
            yield

    def _require_link(self, row: tuple[Any, ...], expected: int, previous: str) -> None:
        why = _check_link(row, expected, previous)
        if why is not None:
            raise WarehouseError(
                f"the journal {self.path} is broken at row {row[0]}: {why}",
                hint="nothing acts by it; keep the file and find out who changed it",
            )

    def _raw(self, until: int | None = None) -> Iterator[tuple[Any, ...]]:
        limit = "" if until is None else f" WHERE seq <= {until:d}"
        with self._file.lock, self._file.explain_errors():
            yield from self._file.connection.execute(
                f"SELECT {COLUMNS} FROM entry{limit} ORDER BY seq"
            )


def _load_schema() -> str:
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


def encode_canonical(document: Any) -> str:
    """Return a document as rows store it: JSON in canonical form."""
    plain = msgspec.to_builtins(document, enc_hook=str)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@cache
def _read_field_renames(stored_kind: str) -> dict[str, str]:
    """Return today's names of the fields of a type of row by those that were stored."""
    return {
        old.partition(".")[2]: new.partition(".")[2]
        for old, new in read_renames("journal").items()
        if old.startswith(f"{stored_kind}.")
    }


def parse_time(text: str) -> datetime:
    """Return a time that a row says.

    Raises:
        ValueError: it is none, has no time zone, or is far from every time that Fallow writes.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None or at.year not in YEARS:
        raise ValueError(f"no time of a row: {text}")
    return at


def explain_odd_row(seq: int, kind: str, error: Exception) -> WarehouseError:
    """Return the error of a row that the chain holds and that no Fallow wrote."""
    text = escape_text(f"{type(error).__name__}: {error}", LONGEST_REASON)
    return WarehouseError(
        f"row {seq} of the journal is no {escape_text(kind)!r} as Fallow writes it: {text}",
        hint="nothing acts by it; keep the file and find out who changed it, then `fallow restore` "
        "a backup, or name another file in actions.journal",
    )


def _build_entry(row: tuple[Any, ...]) -> Entry:
    try:
        at, document = parse_time(row[1]), json.loads(row[5])
        if not isinstance(document, dict):
            raise TypeError(f"a {type(document).__name__} in place of a mapping")
    except ODD_VALUES as error:
        raise explain_odd_row(row[0], row[2], error) from error
    stored_kind = row[2]
    if fields := _read_field_renames(stored_kind):
        document = {fields.get(name, name): value for name, value in document.items()}
    kind = read_renames("event").get(stored_kind, stored_kind)
    return Entry(row[0], at, kind, row[3], row[4], document, row[6], row[7])
