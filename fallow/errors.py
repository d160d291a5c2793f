"""Define the errors of Fallow, each with its exit code.

    FallowError                1  the job failed
    ├── UsageError             2  the command line or an input file is wrong
    │   └── SettingsError      2  fallow.yaml, FALLOW_* or a flag is wrong
    ├── RefusedError           3  a policy or a budget refuses
    ├── SourceError            1  a source answered, but Fallow cannot use the answer
    │   └── AuthError          1  a source refused our credentials
    ├── WarehouseError         1  the warehouse cannot be used as it is
    └── TemporaryError        75  try again: source not reachable, disk full, lock held

An error is one line: what, to what, the legal answers; and a hint: what to do next.
"""

from typing import ClassVar

from fallow.redaction import redact

FINDINGS_EXIST = 4
"""Exit code of `--fail-on-findings` when there are findings."""


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


class AuthError(SourceError):
    """Report a source that refused our credentials."""


class WarehouseError(FallowError):
    """Report a warehouse that cannot be used as it is."""


class TemporaryError(FallowError):
    """Report a failure that may pass; a scheduler should try again (EX_TEMPFAIL)."""

    exit_code = 75
