"""Explain an engine's error: what failed, where, and what to do (`failures.csv`)."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path

import duckdb

from fallow.errors import FallowError, TemporaryError, UsageError, WarehouseError
from fallow.redaction import redact
from fallow.resources import read_table
from fallow.system.disk_space import is_disk_full

FAULTS = (WarehouseError, UsageError, ValueError, ArithmeticError)
"""What rows that cannot be accounted raise."""


class CatalogBusyError(TemporaryError):
    """Report a commit that conflicts with another; nothing was written and it may be repeated."""


class StoreAwayError(TemporaryError):
    """Report an object store that did not answer."""


_KINDS: dict[str, type[FallowError]] = {
    "busy": CatalogBusyError,
    "temporary": TemporaryError,
    "away": StoreAwayError,
    "broken": WarehouseError,
}


_SQLITE_IO = "disk I/O error"
_DEVICE_IO = "Input/output error"
"""The operating system's own words for a device that fails: no lack of space."""


@contextmanager
def explain_errors(where: str) -> Iterator[None]:
    """Turn errors of the engine and of the disk into one line about the warehouse at `where`.

    Raises:
        TemporaryError: a later attempt may succeed: disk full, catalog busy, PostgreSQL or S3
            not reachable.
        WarehouseError: no later attempt will succeed: damaged file, no permission, refused.
        KeyboardInterrupt: the engine ended a statement because of one.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except (duckdb.Error, OSError) as error:
        raise explain_error(error, where) from error


@contextmanager
def end_statements(interrupt: Callable[[], None], within: timedelta | None) -> Iterator[None]:
    """Interrupt what runs in the block after this time; None: never.

    Raises:
        TemporaryError: it took too long.
    """
    if within is None:
        yield
        return
    closed, late = threading.Event(), threading.Event()

    def watch() -> None:
        wait_s = within.total_seconds()
        # The engine forgets an interruption that comes between two statements.
        while not closed.wait(wait_s):
            late.set()
            with suppress(duckdb.Error):
                interrupt()
            wait_s = 0.1

    threading.Thread(target=watch, name="query-deadline", daemon=True).start()
    try:
        yield
    except duckdb.InterruptException as error:
        if not late.is_set():
            raise
        raise TemporaryError(
            f"a query took more than {within.total_seconds():g} s and was ended",
            hint="choose a shorter window or fewer clusters, or set warehouse.query_within",
        ) from error
    finally:
        closed.set()


def explain_error(error: Exception, where: str) -> FallowError:
    """Return the Fallow error that explains this engine error.

    SQLite says the same where a full disk lets it make no log and where a disk is broken. So the
    free space decides, of the folder `where` in which an embedded catalog lies.
    """
    text = redact(" ".join(str(error).split()))  # PostgreSQL's quote the connection string
    cause = text
    if _SQLITE_IO in text and _DEVICE_IO not in text and is_disk_full(Path(where)):
        cause = "No space left on device"
    for pattern, kind, message, hint in _read_failures():
        if re.search(pattern, cause):
            return _KINDS[kind](f"{message} (warehouse {where}): {text}", hint=hint)
    return WarehouseError(
        f"the warehouse {where} failed: {text}",
        hint="`fallow warehouse verify` reads everything back; --debug shows where it failed",
    )


def find_hint(text: str) -> str | None:
    """Return what helps against an error with this text, None where the table does not know it."""
    return next((hint for pattern, *_, hint in _read_failures() if re.search(pattern, text)), None)


def is_temporary(text: str) -> bool:
    """Whether the table knows an error with this text as one after which a retry may succeed."""
    kinds = (kind for pattern, kind, *_ in _read_failures() if re.search(pattern, text))
    return issubclass(_KINDS[next(kinds, "broken")], TemporaryError)


@cache
def _read_failures() -> tuple[tuple[str, str, str, str], ...]:
    return tuple(
        (row["pattern"], row["kind"], row["message"], row["hint"])
        for row in read_table("warehouse", "failures.csv")
    )
