"""Parse one request, and the options that all writes share."""

from collections.abc import Mapping
from typing import Any

import msgspec

from simulator.kube import representations
from simulator.kube.status import InvalidField, StatusError, build_bad_request, build_invalid


class ApiRequest(msgspec.Struct):
    """One request, read whole."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes = b""

    @property
    def manager(self) -> str:
        """The field manager of the write: its own name, else its program's name."""
        agent = self.headers.get("user-agent", "").partition("/")[0]
        return self.query.get("fieldManager") or agent or "unknown"

    @property
    def strict(self) -> bool:
        """Whether unknown fields are refused; else they are dropped."""
        return self.query.get("fieldValidation") == "Strict"

    @property
    def form(self) -> str:
        """The requested form."""
        return representations.find_requested_form(self.headers.get("accept", ""))

    @property
    def media(self) -> str:
        """The media type of the body."""
        return self.headers.get("content-type", "application/json").partition(";")[0].strip()

    def decoded(self) -> Any:
        """Return the body as JSON.

        Raises:
            ApiError: 400 it is not what it says to be, 415 it says to be something else.
        """
        try:
            if "json" not in self.media and self.media not in {"*/*", ""}:
                message = f"the body of the request was in an unknown format: {self.media}"
                raise StatusError(415, "UnsupportedMediaType", message, {})
            return msgspec.json.decode(self.body) if self.body else None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise build_bad_request(f"the object provided is unrecognized: {error}") from error


class ApiResponse(msgspec.Struct):
    """A code and a body."""

    body: Any
    code: int = 200


def is_dry_run(query: Mapping[str, str]) -> bool:
    """Return whether a request is a dry run.

    Raises:
        ApiError: 422 any other value than `All`.
    """
    value = query.get("dryRun")
    if value in {None, ""}:
        return False
    if value != "All":
        message = f'Unsupported value: "{value}": supported values: "All"'
        wrong = InvalidField("dryRun", message, "FieldValueNotSupported")
        raise build_invalid("meta.k8s.io", "Options", "", [wrong])
    return True


def read_body_options(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a body as a query would carry them."""
    dry_run_values = body.get("dryRun") or []
    return {"dryRun": dry_run_values[0]} if dry_run_values else {}
