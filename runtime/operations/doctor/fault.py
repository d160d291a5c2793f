"""Turn an error into a row."""

from collectors.doctor import CheckRow, Status
from fallow.errors import FallowError, TemporaryError


def build_fault_row(
    check: str, error: FallowError, step: str, *, missing: bool = False
) -> CheckRow:
    """Return an error as a row: `away` if it is temporary, `warn` if something does not exist yet.

    `step` is what to do if the error itself has no hint.
    """
    status: Status = "away" if isinstance(error, TemporaryError) else "bad"
    return CheckRow(check, "warn" if missing else status, error.message, error.hint or step)
