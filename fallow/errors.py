"""Define the errors of Fallow, each with its exit code.

    FallowError                1  the job failed
    ├── UsageError             2  the command line or an input file is wrong
    │   └── SettingsError      2  fallow.yaml, FALLOW_* or a flag is wrong
    ├── RefusedError           3  a policy or a budget refuses
    ├── SourceError            1  a source answered, but Fallow cannot use the answer
    │   └── AuthError          1  a source refused our credentials
    ├── WarehouseError         1  the warehouse cannot be used as it is
    │   └── ForeignWarehouseError 2  the catalog is not Fallow's, or a newer Fallow wrote it
    ├── EmptyWarehouseError    0  the warehouse has no telemetry yet
    └── TemporaryError        75  try again: source not reachable, disk full, lock held
        └── UnreadableDaysError 75  archived days of the window cannot be read at present

An error is one line: what, to what, the legal answers; and a hint: what to do next.
"""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any, ClassVar

import msgspec

from fallow.redaction import redact

FINDINGS_EXIST = 4
"""Exit code of `--fail-on-findings` when there are findings."""
UNREADABLE_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises over bytes of others: another form, no UTF-8, nested too deep."""


class FallowError(Exception):
    """Say what failed, to what, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        # Errors become rows, logs and journal entries: none has a password from its first moment.
        message = redact(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else redact(hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} (hint: {self.hint})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker's error reaches its driver whatever the arguments of its class are.
        return _build_error, (type(self), self.message), self.__dict__


def _build_error(kind: type[FallowError], message: str) -> FallowError:
    error = kind.__new__(kind, message)
    error.message, error.hint = message, None
    return error


class UsageError(FallowError):
    """Refuse a command line or an input file, naming the legal answers."""

    exit_code = 2


class SettingsError(UsageError):
    """Refuse a setting, naming the key, where it came from and what is legal."""


class RefusedError(FallowError):
    """Report that a policy or a budget refused."""

    exit_code = 3


class SourceError(FallowError):
    """Report a source whose answer cannot be used."""


class NoSeriesError(SourceError):
    """Report a source that has nothing of what was asked."""


class AuthError(SourceError):
    """Report a source that refused our credentials."""


class WarehouseError(FallowError):
    """Report a warehouse that cannot be used as it is."""


class ForeignWarehouseError(WarehouseError):
    """Report a catalog that is not Fallow's, or that a newer Fallow wrote."""

    exit_code = 2


class EmptyWarehouseError(FallowError):
    """Report a warehouse without telemetry: a command has nothing to show, and nothing failed."""

    exit_code = 0


class TemporaryError(FallowError):
    """Report a failure that may pass; a scheduler should try again (EX_TEMPFAIL)."""

    exit_code = 75


class UnreadableDaysError(TemporaryError):
    """Report archived days that a figure needs and that cannot be read at present.

    `days`: the missing days (UTC), in order. No figure over them is right before they are read.
    """

    def __init__(self, days: Iterable[date], where: str) -> None:
        self.days = tuple(sorted(set(days)))
        count = f"{len(self.days)} day{'s' * (len(self.days) != 1)}"
        super().__init__(
            f"{count} not readable: {format_days(self.days)} (archived in {where})",
            hint="nothing is lost: a window after these days is answered without them; "
            "try again when the store answers (`fallow doctor` checks it)",
        )


def advise_extra(extra: str) -> str:
    """Return what installs an extra, in words: its name at a registry may be another project's."""
    return f"in Fallow's checkout: pip install '.[{extra}]'"


def format_days(days: Iterable[date]) -> str:
    """Return days as ranges: `2026-11-01 to 2026-11-07, 2026-11-09`."""
    ranges: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if ranges and ranges[-1][1] + timedelta(days=1) == day:
            ranges[-1] = (ranges[-1][0], day)
        else:
            ranges.append((day, day))
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ranges)
