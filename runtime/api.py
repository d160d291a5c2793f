"""The write endpoints: POST /v1/approve, /v1/snooze, /v1/keep, /v1/undo. Small JSON both ways.

    {"request": "5f0c", "by": "ann"}  ->  {"schema": "fallow.approve/v1", "by": "ann", ...}

Who has the token says who asks: a page that people sign in to. Without a token the endpoints
answer only where the service listens on loopback. What no program of ours sends is refused before
it is read: a browser's page of another origin can send neither this content type nor this host.
"""

import hmac
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from fallow.errors import FallowError, RefusedError, TemporaryError, UsageError
from fallow.window import parse_duration
from runtime.people import People

log = logging.getLogger("fallow.api")

PREFIX = "/v1/"
MOST_BYTES = 16_384
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Answer = tuple[int, dict[str, Any]]


class Approve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Agree to an action that waits."""

    request: Text
    by: Text


class Snooze(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leave a finding alone for a while."""

    finding: Text
    by: Text
    length: Text = msgspec.field(name="for", default="7d")


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep a workload (Kind/namespace/name) from being stopped for a while."""

    workload: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    by: Text
    length: Text = msgspec.field(name="for", default="24h")


class Undo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Give back what an action took."""

    action: Text
    by: Text


Asked = Approve | Snooze | Keep | Undo
SHAPES: dict[str, type[Asked]] = {
    "approve": Approve, "snooze": Snooze, "keep": Keep, "undo": Undo,
}  # fmt: skip


class Api:
    """Answers what people ask; `people` comes when the warehouse is open."""

    def __init__(
        self, token: str, *, loopback: bool, told: Callable[[str, int], None] | None = None
    ) -> None:
        self._token, self._loopback = token, loopback
        self._told = told or (lambda _what, _code: None)
        self.people: People | None = None

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Return the HTTP code and the document for one POST."""
        what = path.removeprefix(PREFIX)
        if what not in SHAPES:
            legal = ", ".join(PREFIX + name for name in SHAPES)
            return _no(404, f"there is no {path[:100]!r}", f"POST to one of: {legal}")
        code, document = self._refused(headers) or self._done(what, body)
        self._told(what, code)
        return code, document

    def _refused(self, headers: Mapping[str, str]) -> Answer | None:
        if headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
            return _no(415, "the body is not called JSON", "send Content-Type: application/json")
        if self._token:
            said = headers.get("Authorization", "")
            if not hmac.compare_digest(said.encode(), f"Bearer {self._token}".encode()):
                return _no(401, "the token is missing or wrong", "Authorization: Bearer TOKEN")
        elif not self._loopback:
            hint = "set service.token, or listen on 127.0.0.1"
            return _no(403, "without service.token only loopback may write", hint)
        elif headers.get("Origin") or _name(headers.get("Host", "")) not in LOOPBACK:
            return _no(403, "a web page of elsewhere may not write", "set service.token")
        if self.people is None:
            return _no(503, "the service is starting", "try again when /readyz says so")
        return None

    def _done(self, what: str, body: bytes) -> Answer:
        assert self.people is not None  # noqa: S101  (_refused looked)
        try:
            asked = msgspec.json.decode(body, type=SHAPES[what])
            _named(asked.by)
            said = _ask(self.people, asked)
        except msgspec.DecodeError as error:
            return _no(400, f"the body is not what /v1/{what} takes: {error}", _shape(what))
        except UsageError as error:
            return _no(400, error.message, error.hint)
        except RefusedError as error:
            return _no(409, error.message, error.hint)
        except TemporaryError as error:
            return _no(503, error.message, error.hint)
        except FallowError as error:
            return _no(500, error.message, error.hint)
        log.info("asked", extra={"what": what, "by": asked.by, **_plain(said)})
        return 200, {"schema": f"fallow.{what}/v1", "by": asked.by, **_plain(said)}


def _ask(people: People, asked: Asked) -> dict[str, Any]:
    match asked:
        case Approve():
            return people.approve(asked.request, asked.by)
        case Snooze():
            return people.snooze(asked.finding, _length(asked.length), asked.by)
        case Keep():
            return people.keep(asked.workload, _length(asked.length), asked.by)
        case Undo():
            return people.undo(asked.action, asked.by)


def _length(text: str) -> timedelta:
    return parse_duration(text)


def _named(by: str) -> None:
    if by != by.strip() or not by.isprintable():
        raise UsageError(f"{by!r} is no name", hint="printable, without spaces around it")


def _name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host


def _shape(what: str) -> str:
    fields = msgspec.structs.fields(SHAPES[what])
    return "its keys: " + ", ".join(f.encode_name for f in fields)


def _plain(said: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in said.items()}


def _no(code: int, message: str, hint: str | None) -> Answer:
    return code, {"schema": "fallow.error/v1", "error": message, "hint": hint or ""}


def encoded(document: Mapping[str, Any]) -> bytes:
    """Write an answer as a line of JSON."""
    return (json.dumps(document, ensure_ascii=False) + "\n").encode()
