"""How an error becomes a row."""

from collectors.doctor import CheckRow, Status
from fallow.errors import FallowError, TemporaryError


def fault_row(check: str, error: FallowError, step: str, *, missing: bool = False) -> CheckRow:
    """Return an error as a row: `away` where it may pass, `warn` where it is only not there yet.

    `step` is what to do where the error itself does not say.
    """
    status: Status = "away" if isinstance(error, TemporaryError) else "bad"
    return CheckRow(check, "warn" if missing else status, error.message, error.hint or step)
