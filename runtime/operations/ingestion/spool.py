"""Rows on disk that wait for the warehouse: one Arrow file per delivery, in the order of arrival.

A file is complete or does not exist: it is written beside its place, flushed and renamed, and its
folder is flushed too. It goes only after its rows are stored. A process that is killed in between
delivers them again, and ingest stores no row twice.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import pyarrow as pa

from fallow import tables
from fallow.errors import FallowError, TemporaryError
from fallow.system.sqlite_file import hold_lock
from fallow.tables import Batch

log = logging.getLogger("fallow.queue")

FOLDER = "queue"
"""Its name under the home folder."""
SUFFIX, PARTIAL, DAMAGED = ".arrow", ".partial", ".damaged"
_ENVELOPE = pa.schema([("table", pa.string()), ("rows", pa.binary())])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


class SpoolFullError(TemporaryError):
    """Report rows that were refused because the files that wait have reached their bound."""


class SpoolFile:
    """One file that waits: its place, number, rows, bytes, and when it was written (seconds).

    Its name has the number and the rows: `00000000000000000012-4096.arrow`.
    """

    def __init__(self, path: Path) -> None:
        status = path.stat()
        number, _, rows = path.stem.partition("-")
        self.path, self.number, self.rows = path, int(number), int(rows)
        self.size, self.written_at = status.st_size, status.st_mtime


class Spool:
    """The files of one folder. Threads may share it; no other process may."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most = folder, most_bytes
        self._lock = threading.Lock()
        self._ownership = ExitStack()
        self._files: list[SpoolFile] = []
        self._number = 0

    def __enter__(self) -> Self:
        """Take the folder, and find the files that an earlier process left.

        Raises:
            TemporaryError: another process has it.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._ownership.enter_context(hold_lock(self.folder / "lock")):
            self._ownership.close()
            raise TemporaryError(
                f"another process collects into {self.folder}",
                hint="stop it, or give this one a home of its own",
            )
        for path in self.folder.glob(f"*{PARTIAL}"):
            path.unlink()  # it was never acknowledged
        self._files = list_waiting(self.folder)
        self._number = self._files[-1].number if self._files else 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the folder back; its files stay."""
        self._ownership.close()

    @property
    def files(self) -> Sequence[SpoolFile]:
        """Return the files that wait, the oldest first."""
        with self._lock:
            return tuple(self._files)

    def write(self, batches: Sequence[Batch]) -> None:
        """Keep rows; they are on disk when this returns.

        Raises:
            SpoolFullError: the files have reached their bound: the oldest stay, these are refused.
            TemporaryError: the disk is full, or cannot be written.
        """
        content = encode_batches(batches)
        with self._lock:
            waiting = sum(file.size for file in self._files)
            if waiting + len(content) > self._most:
                raise SpoolFullError(
                    f"{waiting:,} bytes wait for the warehouse in {self.folder}; "
                    f"{len(content):,} more would exceed warehouse.queue_bytes ({self._most:,})",
                    hint="start the catalog; the refused time is unknown, never idle",
                )
            self._number += 1
            rows = sum(batch.rows.num_rows for batch in batches)
            path = self.folder / f"{self._number:020d}-{rows}{SUFFIX}"
            try:
                write_durably(path, content)
            except OSError as error:
                raise TemporaryError(
                    f"{path} cannot be written: {error.strerror or error}",
                    hint="free some space, or give this user the folder",
                ) from error
            self._files.append(SpoolFile(path))

    def read(self, file: SpoolFile) -> list[Batch]:
        """Return a file's rows; a damaged file is kept aside and has none."""
        try:
            return list(decode_batches(file.path.read_bytes()))
        except (pa.ArrowException, OSError, KeyError, FallowError) as error:
            self.set_aside(file, str(error))
            return []

    def set_aside(self, file: SpoolFile, why: str) -> None:
        """Keep a file that cannot be stored, for people to read; it does not wait any more."""
        aside = file.path.with_suffix(DAMAGED)
        log.error(
            "rows that waited cannot be stored: the file is kept aside",
            extra={"file": str(aside), "error": why},
        )
        file.path.rename(aside)
        self._forget(file)

    def remove(self, file: SpoolFile) -> None:
        """Delete a file whose rows are stored."""
        file.path.unlink(missing_ok=True)
        self._forget(file)

    def _forget(self, file: SpoolFile) -> None:
        with self._lock:
            self._files = [other for other in self._files if other is not file]


def list_waiting(folder: Path) -> list[SpoolFile]:
    """Return the files that wait in a folder, the oldest first."""
    return [SpoolFile(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def compute_oldest_age_s(files: Sequence[SpoolFile]) -> float:
    """Return for how many seconds the oldest file has waited; 0 = none waits."""
    return max(time.time() - files[0].written_at, 0.0) if files else 0.0


def encode_batches(batches: Sequence[Batch]) -> bytes:
    """Return batches as the content of a file."""
    parts = [_write_stream(_drop_empty_columns(batch.rows), _OPTIONS) for batch in batches]
    envelope = pa.table({"table": [b.table for b in batches], "rows": parts}, schema=_ENVELOPE)
    return _write_stream(envelope, pa.ipc.IpcWriteOptions())


def _drop_empty_columns(rows: pa.Table) -> pa.Table:
    """Return the columns with values: most of a sample's 70 have none."""
    return rows.select([n for n in rows.schema.names if rows.column(n).null_count < len(rows)])


def _write_stream(rows: pa.Table, options: pa.ipc.IpcWriteOptions) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_batches(content: bytes) -> Iterator[Batch]:
    """Yield the batches of a file's content.

    Raises:
        ArrowInvalid: it is no such content.
    """
    envelope = pa.ipc.open_stream(content).read_all()
    if envelope.schema != _ENVELOPE:
        raise pa.ArrowInvalid(f"it is no file of {FOLDER}")
    for row in envelope.to_pylist():
        rows = pa.ipc.open_stream(row["rows"]).read_all()
        # An earlier version may have written it: columns that are new since then are null.
        today = set(tables.get_schema(row["table"]).names)
        columns = {name: rows.column(name) for name in rows.schema.names if name in today}
        # Its times were checked when the rows were read.
        yield msgspec.structs.replace(Batch.of(row["table"], columns), times_checked=True)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is complete, flushed to disk, or does not exist."""
    partial = path.with_suffix(PARTIAL)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
