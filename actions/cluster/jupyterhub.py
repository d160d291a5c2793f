"""Stop and start users' servers through the REST API of a JupyterHub.

The hub itself starts and stops the pod of a server. If another client deletes that pod, the hub
goes on waiting for it. A change states whether a server is to run; only this module knows the hub's
own verbs. Nothing is removed: a named server that was stopped keeps its name, and its volume stays.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from actions.cluster.write_results import WriteResult, WriteVerdict, report_no_answer
from fallow.action_models import Change
from fallow.errors import (
    UNREADABLE_JSON,
    AuthError,
    RefusedError,
    SettingsError,
    SourceError,
    TemporaryError,
)
from fallow.redaction import redact
from fallow.settings.actions import JupyterHubSettings
from fallow.system.deadlines import BodyTooLargeError
from fallow.system.http_client import send_request

_MEANINGS: dict[int, tuple[WriteVerdict, str]] = {
    400: ("conflict", "pending"),
    401: ("refused", "credentials"),
    403: ("refused", "rights"),
    404: ("gone", ""),
    409: ("conflict", "pending"),
    429: ("throttled", "rate"),
}
ERRORS = 300
SERVER_ERRORS = 500
Server = Mapping[str, Any]


class _Server(msgspec.Struct):
    pending: str | None = None
    ready: bool | None = None


class _User(msgspec.Struct):
    servers: dict[str, _Server] | None = None


class JupyterHubClient:
    """One hub, called with the token of a service that may stop servers."""

    def __init__(self, settings: JupyterHubSettings) -> None:
        """Take the hub's URL and token from settings.

        Raises:
            SettingsError: no hub is configured.
        """
        if not settings.url:
            raise SettingsError(
                "actions.jupyterhub.url is not set: no server of a JupyterHub can be stopped",
                hint="set it to such as https://hub.example, and actions.jupyterhub.token",
            )
        self._url = settings.url.rstrip("/")
        self._headers = {"Authorization": f"token {settings.token.get_secret_value()}"}
        self._within_s = settings.timeout.total_seconds()

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return the hub's record of a user; None = there is no such user.

        Raises:
            AuthError: the token is not accepted.
            RefusedError: the token lacks a scope.
            TemporaryError: no answer.
        """
        code, body = self._request("GET", path)
        if code == 404:  # noqa: PLR2004
            return None
        if code < ERRORS:
            return _get_object(body)
        text = f"{self._url}{path}: HTTP {code}: {_read_message(body)}"
        if code == 401:  # noqa: PLR2004
            raise AuthError(text, hint="actions.jupyterhub.token is not taken, or has expired")
        if code == 403:  # noqa: PLR2004
            raise RefusedError(text, hint="actions.jupyterhub.token lacks the scope read:servers")
        if code >= SERVER_ERRORS or code == 429:  # noqa: PLR2004
            raise TemporaryError(text)
        raise SourceError(text)

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        """Stop or start the server that a change names, once, if it is not yet in that state.

        A dry run checks whether the server runs and can be stopped, or is stopped and can be
        started. 202 means that the hub has begun; the field `servers` shows when it is done.
        """
        try:
            answer = self._check_server(change)
            if dry_run or not answer.ok:
                return answer
            code, body = self._request("POST" if change.body["running"] else "DELETE", change.path)
        except AuthError as error:
            return WriteResult("refused", 401, reason=str(error), cause="credentials")
        except RefusedError as error:
            return WriteResult("refused", 403, reason=str(error), cause="rights")
        except (TemporaryError, SourceError) as error:
            return report_no_answer(str(error))
        if code < ERRORS:
            return WriteResult("done", code)
        other: tuple[WriteVerdict, str]
        other = ("away", "server") if code >= SERVER_ERRORS else ("invalid", "")
        verdict, cause = _MEANINGS.get(code, other)
        return WriteResult(verdict, code, reason=_read_message(body), cause=cause)

    def _check_server(self, change: Change) -> WriteResult:
        """Return whether a server is in the state that a write requires."""
        user = self.get(change.read)
        if user is None:
            return WriteResult("gone", 404, reason=f"{self._url} knows no user {change.read}")
        server = (user.get("servers") or {}).get(_name(change.path))
        if why := _explain_unfit(server, should_run=bool(change.body["running"])):
            return WriteResult("conflict", 409, reason=f"{change.path}: {why}", cause="test")
        return WriteResult("done", 200, user)

    def _request(self, method: str, path: str) -> tuple[int, bytes]:
        try:
            answer = send_request(
                method, self._url + path, within_s=self._within_s, headers=self._headers
            )
        except (OSError, BodyTooLargeError) as error:
            raise TemporaryError(f"{self._url}: no answer: {error}") from error
        return answer.status, answer.body


def _name(path: str) -> str:
    """Return the name of the server; the default server has an empty name."""
    _, named, name = path.rpartition("/servers/")
    return unquote(name) if named else ""


def _explain_unfit(server: Server | None, *, should_run: bool) -> str | None:
    if server is not None and server.get("pending"):
        return f"the hub is busy with it: {server['pending']}"
    is_running = server is not None and bool(server.get("ready"))
    if is_running is should_run:
        return "it runs already" if should_run else "it is stopped already"
    return None


def _get_object(body: bytes) -> Mapping[str, Any]:
    try:
        msgspec.json.decode(body, type=_User)  # the fields that are read have their types
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE_JSON as error:
        raise SourceError(f"not an answer of JupyterHub: {error}") from error


def _read_message(body: bytes) -> str:
    try:
        return str(
            msgspec.json.decode(body, type=dict[str, Any]).get("message") or "no reason given"
        )
    except UNREADABLE_JSON:
        text = redact(" ".join(body[:2000].decode("utf-8", "replace").split()))[:200]
        return text or "no reason given"
