"""One request as it came, and the options that all writes share."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import yaml

from simulator.kube import shapes
from simulator.kube.status import ApiError, Wrong, bad_request, invalid
from simulator.kube.store import Validation


class Request(msgspec.Struct):
    """One request, read whole."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes = b""

    @property
    def manager(self) -> str:
        """Who the fields written belong to: what it calls itself, else its program's name."""
        agent = self.headers.get("user-agent", "").partition("/")[0]
        return self.query.get("fieldManager") or agent or "unknown"

    @property
    def form(self) -> str:
        """The form asked for."""
        return shapes.wanted(self.headers.get("accept", ""))

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
            if "yaml" in self.media:
                return yaml.safe_load(self.body)
            if "json" not in self.media and self.media not in {"*/*", ""}:
                said = f"the body of the request was in an unknown format: {self.media}"
                raise ApiError(415, "UnsupportedMediaType", said, {})
            return msgspec.json.decode(self.body) if self.body else None
        except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error


class Answer(msgspec.Struct):
    """A code and a body, and warnings about what was ignored."""

    body: Any
    code: int = 200
    warnings: list[str] = []


def dry_run(query: Mapping[str, str]) -> bool:
    """Tell whether a request is only to be tried.

    Raises:
        ApiError: 422 any other word than `All`.
    """
    given = query.get("dryRun")
    if given in {None, ""}:
        return False
    if given != "All":
        said = f'Unsupported value: "{given}": supported values: "All"'
        wrong = Wrong("dryRun", said, "FieldValueNotSupported")
        raise invalid("meta.k8s.io", "Options", "", [wrong])
    return True


def body_options(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a body as a query would carry them."""
    given = body.get("dryRun") or []
    return {"dryRun": given[0]} if given else {}


def validation(query: Mapping[str, str]) -> Validation:
    """Return what to do with unknown fields.

    Raises:
        ApiError: 422 an unknown word.
    """
    given = query.get("fieldValidation") or "Warn"
    if given not in {"Ignore", "Warn", "Strict"}:
        said = f'Unsupported value: "{given}": supported values: "Ignore", "Strict", "Warn"'
        wrong = Wrong("fieldValidation", said, "FieldValueNotSupported")
        raise invalid("meta.k8s.io", "Options", "", [wrong])
    return cast("Validation", given)
