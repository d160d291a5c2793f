"""How an error becomes a row."""

from collectors.doctor import Row, Status
from fallow.errors import FallowError, TemporaryError


def fault(check: str, error: FallowError, step: str, *, missing: bool = False) -> Row:
    """Return an error as a row: `away` where it may pass, `warn` where it is only not there yet.

    `step` is what to do where the error itself does not say.
    """
    status: Status = "away" if isinstance(error, TemporaryError) else "bad"
    return Row(check, "warn" if missing else status, error.message, error.hint or step)
