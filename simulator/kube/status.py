"""Build refusals: the API server's `Status` objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from fallow.errors import FallowError

Object = dict[str, Any]

GONE_LIST = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list."
)
FAILED_PATCH = "the server rejected our request due to an error in our request"


class StatusError(FallowError):
    """A refusal: HTTP code, reason, message and details; `retry_after` seconds, a fresh `token`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_after: int | None = None,
        token: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason
        self.details = None if details is None else dict(details)
        self.retry_after, self.token = retry_after, token

    def body(self) -> Object:
        """Return the `Status` object."""
        out: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.token} if self.token else {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            out["reason"] = self.reason
        if self.details is not None:
            out["details"] = self.details
        return out


def build_success(code: int = 200, details: Mapping[str, Any] | None = None) -> Object:
    """Return the `Status` object of a success."""
    out: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        return {**out, "details": dict(details)}
    return {**out, "code": code}


def _build_details(group: str, plural: str, name: str) -> Object:
    return {"name": name, **({"group": group} if group else {}), "kind": plural}


def _get_resource(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def build_not_found(group: str, plural: str, name: str) -> StatusError:
    """Return the error that there is no such object."""
    message = f'{_get_resource(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, _build_details(group, plural, name))


def build_no_such_path() -> StatusError:
    """Return the error that nothing is served at a path."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, {})


def build_already_exists(group: str, plural: str, name: str) -> StatusError:
    """Return the error that the name is taken."""
    message = f'{_get_resource(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _build_details(group, plural, name))


def build_conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """Return the error that the object is not the one the caller meant."""
    resource = _get_resource(group, plural)
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _build_details(group, plural, name))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def build_precondition(
    group: str, plural: str, name: str, *, field: str, expected: str, own: str
) -> StatusError:
    """Return the error that a precondition of a delete or a replace failed."""
    why = f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {own}"
    return build_conflict(group, plural, name, why)


def build_forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """Return the error that admission refuses."""
    message = f'{_get_resource(group, plural)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _build_details(group, plural, name))


def build_bad_request(message: str) -> StatusError:
    """Return the error that the request cannot be parsed."""
    return StatusError(400, "BadRequest", message)


def build_failed_patch() -> StatusError:
    """Return the error that a JSON patch does not apply, without details, as on the real server."""
    return StatusError(422, "Invalid", FAILED_PATCH, {})


class InvalidField(Exception):  # noqa: N818  (one cause of a refusal, not the refusal)
    """One field that validation refuses; `why` begins with the kind of error."""

    def __init__(self, field: str, why: str, reason: str = "FieldValueInvalid") -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why, self.reason = field, why, reason


def build_invalid(group: str, kind: str, name: str, wrongs: Sequence[InvalidField]) -> StatusError:
    """Return the error with the fields that validation refuses."""
    causes = [{"reason": w.reason, "message": w.why, "field": w.field} for w in wrongs]
    messages = [f"{w.field}: {w.why}" for w in wrongs]
    message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    kind_text = f"{kind}.{group}" if group else kind
    details = {"name": name, **({"group": group} if group else {}), "kind": kind, "causes": causes}
    return StatusError(422, "Invalid", f'{kind_text} "{name}" is invalid: {message}', details)
