"""Open the files that a person or the settings name: plain files of a bounded size, never waiting.

The open of a FIFO waits for its writer, and a device such as /dev/zero has no end.
"""

import codecs
import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fallow.errors import UsageError

GZIP, UTF_16 = b"\x1f\x8b", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""First bytes of files."""
MAX_TEXT = 1 << 20
"""Bytes of a file of settings or prices: thousands of lines."""
MAX_IMPORT = 64 << 30
"""Bytes of an import that is read a part at a time."""
_KINDS = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"))


class UnreadableFileError(UsageError):
    """Refuse a file that cannot be read: `reason`, without its name."""

    def __init__(self, path: Path, what: str, reason: str, hint: str | None) -> None:
        super().__init__(f"cannot read {what}{' ' * bool(what)}{path}: {reason}", hint=hint)
        self.reason = reason


def open_input(path: Path, what: str = "", most: int = MAX_IMPORT) -> BinaryIO:
    """Open a plain file of at most `most` bytes; `what` it is, for the error.

    Raises:
        UnreadableFileError: it is absent, larger, or a folder, a FIFO or a device.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except IsADirectoryError as error:
        raise UnreadableFileError(path, what, "is a directory", f"name a file in {path}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (getattr(error, "strerror", "") or str(error)).lower()
        raise UnreadableFileError(path, what, reason, None) from error
    status = os.fstat(file.fileno())
    reason, hint = "", ""
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in _KINDS if test(status.st_mode)), "a device")
        reason, hint = f"{kind} is no plain file", "write its content to a file, and name that"
    elif status.st_size > most:
        reason, hint = f"{status.st_size:,} bytes", f"legal: {most:,} at most"
    if reason:
        file.close()
        raise UnreadableFileError(path, what, reason, hint)
    return file


@contextmanager
def open_text_input(path: Path) -> Iterator[BinaryIO]:
    """Open a file of text as UTF-8 without a mark: UTF-16 with one and gzip are converted.

    Raises:
        UnreadableFileError: as `open_input`, or what is in it is broken.
    """
    with open_input(path) as file:
        start = file.read(3)
        file.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
        text: Any = file
        if start.startswith(GZIP):
            text = gzip.GzipFile(fileobj=file)
        elif start[:2] in UTF_16:
            text = codecs.EncodedFile(file, "utf-8", "utf-16")
        try:
            yield text
        except (UnicodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UnreadableFileError(path, "", str(error), "is the copy complete?") from error


def read_input(path: Path, what: str = "", most: int = MAX_TEXT) -> bytes:
    """Return the bytes of a file: see `open_input`."""
    with open_input(path, what, most) as file:
        return file.read(most)


def read_text_input(path: Path, what: str, most: int = MAX_TEXT) -> str:
    """Return a file of UTF-8, with or without a byte order mark: see `open_input`."""
    raw = read_input(path, what, most)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        reason, hint = f"line {line} is not UTF-8", "save the file as UTF-8"
        raise UnreadableFileError(path, what, reason, hint) from error
