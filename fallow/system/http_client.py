"""Send one HTTP request: within a total deadline and a body limit, with failures in plain words."""

import socket
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from fallow.redaction import redact
from fallow.system.deadlines import Deadline, DeadlineExceededError, read_body, watch_connections
from fallow.texts import make_printable

CONNECT_S = 4.0
"""Longest time to open a connection: a dead address is reported within 5 seconds."""
MAX_BODY = 16 << 20
"""Bytes (after decompression) of an answer that is not bulk data."""
MOST_TEXT = 300
"""Characters of an error: servers choose parts of it."""


class NotConnectedError(ConnectionError):
    """No connection was opened, so nothing was sent."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A response, whatever its status; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def send_request(
    method: str,
    url: str,
    *,
    within_s: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    limit: int = MAX_BODY,
) -> HttpAnswer:
    """Send one request and return the answer; nothing is sent twice, nor where a server says.

    Raises:
        NotConnectedError: no connection was opened: nothing was sent.
        ConnectionError: no complete answer; the message says why in plain words.
        DeadlineExceededError: no complete answer within `within_s` seconds.
        BodyTooLargeError: the body has more than `limit` bytes after decompression.
    """
    timeout = urllib3.Timeout(connect=min(CONNECT_S, within_s), read=within_s)
    try:
        with Deadline(within_s):
            response = _build_pools().request(
                method,
                url,
                headers=dict(headers or {}),
                body=body,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                answer_body = read_body(response, limit=limit)
            finally:
                response.close()
    except DeadlineExceededError:
        raise
    except (HTTPError, OSError) as error:
        kind = NotConnectedError if is_unreachable(error) else ConnectionError
        raise kind(explain_failure(error, url)) from error
    lower = {name.lower(): value for name, value in response.headers.items()}
    return HttpAnswer(response.status, lower, answer_body)


@cache
def _build_pools() -> urllib3.PoolManager:
    return watch_connections(urllib3.PoolManager())


def explain_failure(error: BaseException, url: str) -> str:
    """Return why a server could not be reached, in plain words, without an address's secrets."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    cause = _find_innermost(error)
    if isinstance(cause, socket.gaierror):
        return f"the name {host} is not known"
    if isinstance(cause, ConnectionRefusedError):
        return f"{host}:{port} refuses connections: nothing listens there"
    if isinstance(cause, ConnectionResetError | BrokenPipeError):
        return f"{host}:{port} closed the connection before it answered"
    if isinstance(cause, ssl.SSLError):
        why = getattr(cause, "verify_message", "") or cause.reason or cause
        return f"TLS with {host}:{port} failed: {why}"
    if isinstance(cause, TimeoutError) or "timed out" in str(cause):
        return f"{host}:{port} does not answer"
    text = " ".join((getattr(cause, "strerror", None) or str(cause)).split())
    return f"{host}:{port}: {redact(text)[:200] or type(cause).__name__}"


def shorten(text: str) -> str:
    """Return a server's text as one printable line, without secrets."""
    line = " ".join(redact(text).split())[:MOST_TEXT]
    return make_printable(line, "?")


def is_unreachable(error: BaseException) -> bool:
    """Return whether no connection was opened: the name, the address or the port is wrong."""
    cause: BaseException | None = error
    while cause is not None:
        inner = getattr(cause, "reason", None) or next(iter(cause.args), None)
        if isinstance(cause, NewConnectionError | ConnectTimeoutError):
            return True
        cause = inner if isinstance(inner, BaseException) else None
    return False


def _find_innermost(error: BaseException) -> BaseException:
    """Return the first cause: requests wraps urllib3, which wraps the socket's error."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner: Any = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((a for a in error.args if isinstance(a, BaseException)), None)
        if inner is None:
            inner = error.__cause__ or error.__context__
        if isinstance(inner, BaseException):
            error = inner
    return error
