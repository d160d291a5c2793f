"""Send people's requests to the service: approve, snooze, keep, undo, resume, with their name.

Pages write nothing else. The service trusts the name in any request that has its token, so the
roles are checked here.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from dashboards.signin import Person, Role
from fallow.demo_marker import is_demo_home
from fallow.errors import FallowError, RefusedError, TemporaryError, UsageError
from fallow.settings import Settings
from fallow.system import http_client
from fallow.system.deadlines import BodyTooLargeError, DeadlineExceededError
from fallow.system.http_client import NotConnectedError

RequestKind = Literal["approve", "snooze", "keep", "undo", "resume"]
NEEDS: Mapping[RequestKind, Role] = {
    "snooze": "operator", "keep": "operator", "approve": "approver", "undo": "approver",
    "resume": "approver",
}  # fmt: skip
"""The role that each request needs. The owner team's members may also keep, undo and resume."""
OWNERS: frozenset[RequestKind] = frozenset({"keep", "undo", "resume"})
PATIENCE_S = 30.0
"""Deadline of an undo: it is answered only after the cluster has answered each of its writes."""
MOST_BYTES = 65_536
OK, BAD, NOT_HERE, CONFLICT, LATER = 200, 400, 404, 409, 503
STRANGER = frozenset({401, 403})


def may(person: Person, kind_requested: RequestKind, owner: str | None = None) -> bool:
    """Return whether a person may make a request about something that belongs to `owner`."""
    is_own = kind_requested in OWNERS and owner is not None and owner in person.groups
    return is_own or person.may(NEEDS[kind_requested])


def send_request(
    settings: Settings,
    person: Person,
    kind_requested: RequestKind,
    *,
    owner: str | None = None,
    **body: str,
) -> dict[str, Any]:
    """Send a request to the service and return its answer, such as `until` or `result`.

    Raises:
        RefusedError: the person's role does not allow it, or the service refuses.
        UsageError: the object does not exist (any more), or `service.url` is not an address.
        TemporaryError: the service does not respond, or not now.
    """
    if not may(person, kind_requested, owner):
        raise RefusedError(
            f"{person.name} is {person.role}: to {kind_requested} takes the role "
            f"{NEEDS[kind_requested]}",
            hint=f"fallow {kind_requested}, or set dashboard.approve_without_sign_in"
            if person.local
            else "whoever runs Fallow names roles in dashboard.oidc",
        )
    body = {**body, "by": person.name}
    if kind_requested == "approve" and person.subject:
        body["oidc_subject"] = person.subject
    code, text = _post(settings, kind_requested, body)
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = {}
    if code == OK and isinstance(answer, dict):
        return answer
    raise _read_error(code, answer if isinstance(answer, dict) else {}, text, address(settings))


def address(settings: Settings) -> str:
    """Return the URL of the service."""
    if settings.service.url:
        return settings.service.url
    host, _, port = settings.service.listen.rpartition(":")
    name = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104  (compared only)
    return f"http://{name}:{port}"


def _post(
    settings: Settings, kind_requested: RequestKind, body: Mapping[str, str]
) -> tuple[int, str]:
    url = address(settings)
    where = urlsplit(url)
    try:
        host, _port = where.hostname, where.port
    except ValueError:
        host = None
    if where.scheme not in ("http", "https") or not host:
        raise UsageError(f"service.url {url!r} is no address", hint="http://HOST:PORT")
    token = settings.service.token.get_secret_value()
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer = http_client.send_request(
            "POST",
            f"{url.rstrip('/')}/v1/{kind_requested}",
            within_s=PATIENCE_S,
            headers=headers,
            body=json.dumps(body).encode(),
            limit=MOST_BYTES,
        )
    except NotConnectedError as error:
        raise TemporaryError(
            f"the service at {url} does not answer: {error}",
            hint=f"`fallow up` runs it{_suggest_command(settings, kind_requested, body)}",
        ) from error
    except (ConnectionError, DeadlineExceededError, BodyTooLargeError) as error:
        raise TemporaryError(
            f"the service at {url} broke off: {error}",
            hint="it may have been done: see Actions before you ask again",
        ) from error
    return answer.status, answer.body.decode(errors="replace")


def _suggest_command(
    settings: Settings, kind_requested: RequestKind, body: Mapping[str, str]
) -> str:
    """Return the command that does the same without the service; a finding is snoozed there."""
    if kind_requested == "snooze":
        return ""
    words = [body[name] for name in ("request", "action", "workload", "for") if name in body]
    home = ["--home", str(settings.home)] if is_demo_home(settings.home) else []
    return f"; `{shlex.join(['fallow', kind_requested, *words, *home])}` does the same"


def _read_error(code: int, answer: Mapping[str, Any], text: str, url: str) -> FallowError:
    message = str(answer.get("error") or text.strip().partition("\n")[0] or f"HTTP {code}")[:400]
    hint = str(answer.get("hint") or "") or None
    if code in STRANGER:
        return RefusedError(
            f"the service at {url} does not take this dashboard's word: {message}",
            hint="give both the same service.token",
        )
    if code == NOT_HERE:
        return UsageError(
            f"no actor answers at {url}",
            hint="service.url has to name the process whose role is actor",
        )
    if code == CONFLICT:
        return RefusedError(message, hint=hint)
    if code == LATER:
        return TemporaryError(message, hint=hint)
    return UsageError(message, hint=hint) if code == BAD else FallowError(message, hint=hint)
