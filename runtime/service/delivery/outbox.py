"""Store deliveries: one SQLite file, one row per schedule, due time and destination.

A row is `waiting` until the first attempt, `sending` on disk before the first byte is sent, and
then `sent`, `failed` (it did not arrive) or `unknown` (the process ended before the result was
known). A report is stored beside its rows while one of them waits, so that all destinations get the
same file.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from fallow.errors import UsageError
from fallow.resources import read_text
from fallow.settings import Settings
from fallow.settings.reports import Schedule
from fallow.system.sqlite_file import SqliteFile, hold_lock
from runtime.operations.answers.reports import Report

DeliveryState = Literal["waiting", "sending", "sent", "failed", "unknown"]
RESULTS = ("sent", "put off", "failed", "unknown")
"""Results of an attempt; a delivery that is put off waits again."""
RETENTION = timedelta(days=400)
"""Rows older than this are deleted; a report is due again long before."""
COLUMNS = "schedule, due, destination, state, at, since, tries, try_at, said"


class Delivery(msgspec.Struct, frozen=True):
    """One report to one destination, with its state.

    `since` is when it was first requested, `at` when its state was written.
    """

    schedule: str
    due: datetime
    destination: str
    state: DeliveryState
    at: datetime
    since: datetime
    tries: int
    try_at: datetime
    message: str

    @property
    def id(self) -> str:
        """Return an id that is equal in every process: receivers can detect duplicates by it."""
        text = f"{self.schedule} {_format_time(self.due)} {self.destination}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Outbox:
    """An open store of deliveries. Several threads may use one object."""

    def __init__(self, file: SqliteFile) -> None:
        self.path, self._file = file.path, file

    @classmethod
    def open(cls, path: Path, *, write: bool = True) -> Self:
        """Open the file; `write` creates it if it does not exist.

        Raises:
            UsageError: there is no file to read.
            WarehouseError: the file is no store of deliveries, or its folder cannot be written.
        """
        if not write and not path.is_file():
            raise UsageError(f"there is no journal of deliveries at {path}", hint="nothing was due")
        file = SqliteFile(path, "journal", write=write)
        try:
            if write:
                schema = read_text("runtime.service.delivery", "schema.sql")
                with file.explain_errors():
                    file.connection.executescript(schema)
        except BaseException:
            file.close()
            raise
        return cls(file)

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

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield whether no other process sends from this file; a dead process's lock is free."""
        with hold_lock(self.path.with_name(self.path.name + ".sending")) as is_held:
            yield is_held

    def next(self, schedule: Schedule) -> datetime | None:
        """Return when a schedule is due next, None = it is new, or was changed."""
        rows = self._rows(
            "SELECT next FROM schedule WHERE name = ? AND cron = ? AND time_zone = ?",
            (schedule.name, schedule.cron, schedule.time_zone),
        )
        return _parse_time(rows[0][0]) if rows else None

    def expect(self, schedule: Schedule, due_at: datetime) -> None:
        """Store when a schedule is due next."""
        row = (schedule.name, schedule.cron, schedule.time_zone, _format_time(due_at))
        self._write("INSERT OR REPLACE INTO schedule VALUES (?, ?, ?, ?)", row)

    def keep_only(self, names: Iterable[str]) -> None:
        """Delete the schedules that do not exist any more."""
        for (name,) in self._rows("SELECT name FROM schedule", ()):
            if name not in set(names):
                self._write("DELETE FROM schedule WHERE name = ?", (name,))

    def owe(self, schedule: str, due: datetime, to: Iterable[str], now: datetime) -> None:
        """Store who is to get a report; existing deliveries stay as they are."""
        rows = [
            (
                schedule,
                _format_time(due),
                name,
                "waiting",
                _format_time(now),
                _format_time(now),
                0,
                _format_time(now),
                "",
            )
            for name in to
        ]
        marks = "?, ?, ?, ?, ?, ?, ?, ?, ?"
        self._write_many(f"INSERT OR IGNORE INTO delivery ({COLUMNS}) VALUES ({marks})", rows)

    def again(self, schedule: str, due: datetime, now: datetime) -> int:
        """Make failed and unknown deliveries of a due time wait again; return how many."""
        return self._write(
            "UPDATE delivery SET state = 'waiting', at = ?1, since = ?1, tries = 0, try_at = ?1"
            " WHERE schedule = ?2 AND due = ?3 AND state IN ('failed', 'unknown')",
            (_format_time(now), schedule, _format_time(due)),
        )

    def unsettled(self, state: DeliveryState) -> list[Delivery]:
        """Return the deliveries in a state, the oldest report first."""
        return self._deliveries("WHERE state = ? ORDER BY due, schedule, rowid", (state,))

    def latest(self, most: int = 1000) -> list[Delivery]:
        """Return deliveries, the newest report first."""
        return self._deliveries("ORDER BY due DESC, schedule, rowid LIMIT ?", (most,))

    def of(self, schedule: str, due: datetime) -> list[Delivery]:
        """Return the deliveries of one report."""
        return self._deliveries(
            "WHERE schedule = ? AND due = ? ORDER BY rowid", (schedule, _format_time(due))
        )

    def settle(
        self, delivery: Delivery, state: DeliveryState, now: datetime, reason: str = ""
    ) -> None:
        """Store a delivery's state; it is on disk when this returns."""
        self._mark(delivery, "state = ?, at = ?, said = ?", (state, _format_time(now), reason))

    def abandon(self, reason: str, now: datetime) -> int:
        """Store that the result of every unsettled delivery is unknown; return how many."""
        return self._write(
            "UPDATE delivery SET state = 'unknown', at = ?, said = ?"
            " WHERE state IN ('waiting', 'sending')",
            (_format_time(now), reason),
        )

    def put_off(self, delivery: Delivery, until: datetime, now: datetime, reason: str) -> None:
        """Let a delivery wait for another attempt."""
        values = (_format_time(now), _format_time(until), reason)
        self._mark(delivery, "state = 'waiting', at = ?, try_at = ?, said = ?", values)

    def tried(self, delivery: Delivery, until: datetime) -> None:
        """Count an attempt before it is made, so that one that kills the process is counted."""
        self._mark(delivery, "tries = tries + 1, try_at = ?", (_format_time(until),))

    def report(self, schedule: str, due: datetime) -> Report | None:
        """Return the report of a due time as it was produced."""
        rows = self._rows(
            "SELECT name, media_type, body, title, summary FROM report"
            " WHERE schedule = ? AND due = ?",
            (schedule, _format_time(due)),
        )
        return Report(*rows[0]) if rows else None

    def keep(self, schedule: str, due: datetime, report: Report) -> None:
        """Store a report until every destination has it."""
        row = (
            schedule,
            _format_time(due),
            report.name,
            report.media_type,
            report.title,
            report.summary,
        )
        self._write(
            "INSERT OR IGNORE INTO report VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, report.body)
        )

    def tidy(self, now: datetime) -> None:
        """Delete reports that no delivery needs, and old rows."""
        for schedule, due in self._rows(
            "SELECT schedule, due FROM report EXCEPT"
            " SELECT schedule, due FROM delivery WHERE state IN ('waiting', 'sending')",
            (),
        ):
            self._write("DELETE FROM report WHERE schedule = ? AND due = ?", (schedule, due))
        if self._rows(
            "SELECT 1 FROM delivery WHERE due < ? LIMIT 1", (_format_time(now - RETENTION),)
        ):
            self._write("DELETE FROM delivery WHERE due < ?", (_format_time(now - RETENTION),))

    def _mark(self, delivery: Delivery, change: str, values: tuple[Any, ...]) -> None:
        self._write(
            f"UPDATE delivery SET {change} WHERE schedule = ? AND due = ? AND destination = ?",
            (*values, delivery.schedule, _format_time(delivery.due), delivery.destination),
        )

    def _deliveries(self, which: str, values: tuple[Any, ...]) -> list[Delivery]:
        return [
            _decode_delivery(row)
            for row in self._rows(f"SELECT {COLUMNS} AS message FROM delivery {which}", values)
        ]

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        return self._file.query(sql, values)

    def _write(self, sql: str, values: tuple[Any, ...]) -> int:
        return self._file.execute(sql, values)

    def _write_many(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        with self._file.transaction() as connection:
            connection.executemany(sql, rows)


def get_outbox_path(settings: Settings) -> Path:
    """Return the path of the store of deliveries."""
    return settings.reports.journal or settings.home / "deliveries.sqlite"


def _format_time(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).isoformat(timespec="seconds")


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _decode_delivery(row: tuple[Any, ...]) -> Delivery:
    schedule, due, destination, state, at, since, tries, try_at, reason = row
    return Delivery(
        schedule,
        _parse_time(due),
        destination,
        state,
        _parse_time(at),
        _parse_time(since),
        tries,
        _parse_time(try_at),
        reason,
    )
