"""The write endpoints, POST /v1/ and approve, snooze, keep, undo, resume or freeze. Small JSON.

    {"request": "5f0c", "by": "ann"}  ->  {"schema": "fallow.approve/v1", "by": "ann", ...}

Whoever has the token decides the name in `by`: a page that people sign in to. Without a token the
endpoints respond only if the service listens on loopback. Requests that no program of ours sends
are refused before they are read: a page of another origin in a browser can send neither this
content type nor this host.
"""

import hmac
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from fallow.errors import UNREADABLE_JSON, FallowError, RefusedError, TemporaryError, UsageError
from fallow.window import parse_duration
from runtime.operations.acting.requests import ActionRequests

log = logging.getLogger("fallow.api")

PREFIX = "/v1/"
MOST_BYTES = 16_384
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
JsonAnswer = tuple[int, dict[str, Any]]


class ApproveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Approve an action that waits for approval."""

    request: Text
    by: Text
    oidc_subject: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Issuer and `sub` of the person's sign-in: the name may change, this does not."""


class SnoozeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Suspend all actions on a finding for a while."""

    finding: Text
    by: Text
    length: Text = msgspec.field(name="for", default="7d")


class KeepRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep a workload (Kind/namespace/name) from being stopped for a while."""

    workload: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    by: Text
    length: Text = msgspec.field(name="for", default="24h")


class UndoRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Undo an action."""

    action: Text
    by: Text


class ResumeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resume the job that an action suspended, once it has room."""

    action: Text
    by: Text


class FreezeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop everything that acts. Only a command thaws it."""

    by: Text
    why: Text = "by request"


WriteRequest = (
    ApproveRequest | SnoozeRequest | KeepRequest | UndoRequest | ResumeRequest | FreezeRequest
)
REQUEST_TYPES: dict[str, type[WriteRequest]] = {
    "approve": ApproveRequest, "snooze": SnoozeRequest, "keep": KeepRequest, "undo": UndoRequest,
    "resume": ResumeRequest, "freeze": FreezeRequest,
}  # fmt: skip


class ApiAccess:
    """Who may use /v1: whoever has the token; without a token, programs of this machine."""

    def __init__(self, token: str, *, loopback: bool) -> None:
        self._token, self._loopback = token, loopback

    def refuse(self, headers: Mapping[str, str]) -> JsonAnswer | None:
        """Return the refusal of a request with these headers; None = it is allowed."""
        if self._token:
            header = headers.get("Authorization", "")
            if not hmac.compare_digest(header.encode(), f"Bearer {self._token}".encode()):
                return _build_refusal(
                    401, "the token is missing or wrong", "Authorization: Bearer TOKEN"
                )
        elif not self._loopback:
            hint = "set service.token, or listen on 127.0.0.1"
            return _build_refusal(403, "without service.token only loopback is answered", hint)
        elif headers.get("Origin") or _get_host_name(headers.get("Host", "")) not in LOOPBACK:
            return _build_refusal(
                403, "a web page of elsewhere is not answered", "set service.token"
            )
        return None


class WriteApi:
    """Handles people's requests; `people` is set when the warehouse is open."""

    def __init__(
        self, token: str, *, loopback: bool, on_request: Callable[[str, int], None] | None = None
    ) -> None:
        self._access = ApiAccess(token, loopback=loopback)
        self._on_request = on_request or (lambda _verb, _code: None)
        self.people: ActionRequests | None = None

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> JsonAnswer:
        """Return the HTTP code and the document for one POST."""
        verb = path.removeprefix(PREFIX)
        if verb not in REQUEST_TYPES:
            legal = ", ".join(PREFIX + name for name in REQUEST_TYPES)
            return _build_refusal(404, f"there is no {path[:100]!r}", f"POST to one of: {legal}")
        code, document = self._refuse(headers) or self._perform(verb, body)
        self._on_request(verb, code)
        return code, document

    def _refuse(self, headers: Mapping[str, str]) -> JsonAnswer | None:
        if headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
            return _build_refusal(
                415, "the body is not called JSON", "send Content-Type: application/json"
            )
        refusal = self._access.refuse(headers)
        if refusal is not None:
            return refusal
        if self.people is None:
            return _build_refusal(503, "the service is starting", "try again when /readyz says so")
        return None

    def _perform(self, verb: str, body: bytes) -> JsonAnswer:
        assert self.people is not None  # noqa: S101  (`_refuse` checked)
        try:
            request = msgspec.json.decode(body, type=REQUEST_TYPES[verb])
            _check_name(request.by)
            result = _dispatch(self.people, request)
        except UNREADABLE_JSON as error:
            return _build_refusal(
                400, f"the body is not what /v1/{verb} takes: {error}", _describe_keys(verb)
            )
        except UsageError as error:
            return _build_refusal(400, error.message, error.hint)
        except RefusedError as error:
            return _build_refusal(409, error.message, error.hint)
        except TemporaryError as error:
            return _build_refusal(503, error.message, error.hint)
        except FallowError as error:
            return _build_refusal(500, error.message, error.hint)
        log.info("request", extra={"verb": verb, "by": request.by, **_format_times(result)})
        return 200, {"schema": f"fallow.{verb}/v1", "by": request.by, **_format_times(result)}


def _dispatch(people: ActionRequests, request: WriteRequest) -> dict[str, Any]:
    match request:
        case ApproveRequest():
            return people.approve(request.request, request.by, request.oidc_subject)
        case SnoozeRequest():
            return people.snooze(request.finding, _parse_length(request.length), request.by)
        case KeepRequest():
            return people.keep(request.workload, _parse_length(request.length), request.by)
        case UndoRequest():
            return people.undo(request.action, request.by)
        case ResumeRequest():
            return people.resume(request.action, request.by)
        case FreezeRequest():
            return people.freeze(request.why, request.by)


def _parse_length(text: str) -> timedelta:
    return parse_duration(text)


def _check_name(by: str) -> None:
    if by != by.strip() or not by.isprintable():
        raise UsageError(f"{by!r} is no name", hint="printable, without spaces around it")


def _get_host_name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host


def _describe_keys(verb: str) -> str:
    fields = msgspec.structs.fields(REQUEST_TYPES[verb])
    return "its keys: " + ", ".join(f.encode_name for f in fields)


def _format_times(result: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in result.items()}


def _build_refusal(code: int, message: str, hint: str | None) -> JsonAnswer:
    return code, {"schema": "fallow.error/v1", "error": message, "hint": hint or ""}


def encode_answer(document: Mapping[str, Any]) -> bytes:
    """Write an answer as a line of JSON."""
    return (json.dumps(document, ensure_ascii=False) + "\n").encode()
