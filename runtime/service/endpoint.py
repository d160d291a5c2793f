"""Serve `fallow up` over HTTP: /metrics, /healthz, /readyz, and /v1 for people and schedulers.

A connection either waits for its client or is at work. Those that wait have one time limit, and the
oldest of them gives way where a new one comes: slow clients hide nothing and delay no end.
"""

import ipaddress
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from fallow.errors import UsageError
from fallow.texts import make_printable
from runtime.service.api import MOST_BYTES, PREFIX, WriteApi, encode_answer
from runtime.service.idleness_api import PATH as IDLENESS
from runtime.service.idleness_api import UNDECIDED, IdlenessApi
from runtime.service.metrics import SelfMetrics

log = logging.getLogger("fallow.service")

TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"
REQUEST_TIMEOUT_S = 10.0
"""How long a client may take to send its request, and as long again to read the answer."""
MOST_CONNECTIONS, MOST_AT_WORK = 32, 16
"""Connections at a time, and requests that are answered at a time, beside those for health."""
END_S = 0.5
"""How long clients may read their answers when the service ends, and a new one waits for room."""
POLL_S = 0.1
HEALTH = frozenset({"/healthz", "/readyz"})
MOST_DIGITS, MOST_TEXT = 19, 200
HEADERS = ("Content-Type", "Authorization", "Origin", "Host")
"""The headers of a request that decide about it."""
ELSEWHERE = b"not here: ask the process whose role is actor\n"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class EndpointAnswer(NamedTuple):
    """An answer: code, content type, body, headers in addition."""

    code: int
    kind: str
    body: bytes
    headers: Mapping[str, str] = NO_HEADERS


class Endpoint:
    """Serves on `host:port`; port 0 takes a free one. Without an API, /v1 does not exist."""

    def __init__(
        self,
        listen: str,
        metrics: SelfMetrics,
        *,
        why_not: Callable[[], Sequence[str]] = tuple,
        api: WriteApi | None = None,
        idleness: IdlenessApi | None = None,
    ) -> None:
        host, port = split_address(listen)
        answers = _Answers(metrics, why_not, api, idleness)
        try:
            self._server = _Server((host, port), answers)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {listen}: {error.strerror or error}",
                hint="another port with --listen or service.listen; :0 takes a free one",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), daemon=True
        )

    @property
    def address(self) -> str:
        """Return host:port as bound."""
        return "{}:{}".format(*self._server.server_address[:2])

    @property
    def url(self) -> str:
        """Return the URL on this machine, whatever address it is bound to."""
        host, port = self._server.server_address[:2]
        name = "127.0.0.1" if host == "0.0.0.0" else str(host)  # noqa: S104  (compared only)
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop serving, after the requests in progress."""
        self.close()

    def close(self) -> None:
        """Stop serving; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # a write that has begun is answered before the process ends
    block_on_close = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], answers: "_Answers") -> None:
        self.answers = answers
        self.at_work = threading.BoundedSemaphore(MOST_AT_WORK)
        self._change = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._waiting: dict[socket.socket, float] = {}
        """Connections that wait for their clients, the oldest first, and since when."""
        self._unanswered: set[socket.socket] = set()
        """Those of them whose requests are not whole."""
        self._ends = False
        super().__init__(address, _RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._change:
            if len(self._connections) >= MOST_CONNECTIONS:
                self._give_up(list(self._waiting)[:1])
            if not self._change.wait_for(lambda: len(self._connections) < MOST_CONNECTIONS, END_S):
                raise ConnectionRefusedError
            self._connections.add(request)
            self._unanswered.add(request)
            self._waiting[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._change:
            self._connections.discard(request)
            self._unanswered.discard(request)
            self._waiting.pop(request, None)
            self._change.notify()

    def service_actions(self) -> None:
        limit = time.monotonic() - REQUEST_TIMEOUT_S
        with self._change:
            self._give_up([c for c, since in self._waiting.items() if since < limit])

    def begin_work(self, connection: socket.socket) -> None:
        """Take a connection from those that wait: its request is whole."""
        with self._change:
            if self._waiting.pop(connection, None) is None:
                raise ConnectionAbortedError
            self._unanswered.discard(connection)

    def begin_answer(self, connection: socket.socket) -> None:
        """Let a connection wait until its client has read the answer."""
        with self._change:
            connection.settimeout(END_S if self._ends else REQUEST_TIMEOUT_S)
            self._waiting[connection] = time.monotonic()

    def server_close(self) -> None:
        with self._change:
            self._ends = True
            self._give_up(list(self._unanswered & self._waiting.keys()))
            self._change.wait_for(lambda: not self._waiting, END_S)
            self._give_up(list(self._waiting))
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (socketserver's)
        if not isinstance(sys.exception(), OSError):  # a client that has left is no event
            log.exception("a connection failed")  # noqa: LOG004  (called while it is handled)

    def _give_up(self, connections: Sequence[socket.socket]) -> None:
        for connection in connections:
            del self._waiting[connection]
            with suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)


def split_address(listen: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        UsageError: it is not host:port.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004
        raise UsageError(
            f"service.listen {listen!r} is not host:port", hint="such as 127.0.0.1:9410"
        )
    return host.strip("[]"), int(port)


def is_loopback(listen: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    host = split_address(listen)[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Answers:
    def __init__(
        self,
        metrics: SelfMetrics,
        why_not: Callable[[], Sequence[str]],
        api: WriteApi | None,
        idleness: IdlenessApi | None,
    ) -> None:
        self.metrics, self.why_not, self.api, self.idleness = metrics, why_not, api, idleness

    def get(self, path: str, query: str, headers: Mapping[str, str]) -> EndpointAnswer:
        if path == "/healthz":
            return EndpointAnswer(200, TEXT, b"ok\n")
        if path.startswith(PREFIX):
            return self._get_v1(path, query, headers)
        why = list(self.why_not())
        if path == "/metrics":
            self.metrics.record_readiness(ready=not why)
            return EndpointAnswer(200, TEXT, self.metrics.text())
        if path == "/readyz":
            text = "ready\n" if not why else "not ready\n" + "".join(f"{w}\n" for w in why)
            return EndpointAnswer(503 if why else 200, TEXT, text.encode())
        return EndpointAnswer(404, TEXT, b"not here; /metrics, /healthz and /readyz are\n")

    def _get_v1(self, path: str, query: str, headers: Mapping[str, str]) -> EndpointAnswer:
        if path != IDLENESS:
            return EndpointAnswer(405, TEXT, b"POST it\n")
        if self.idleness is None:
            return EndpointAnswer(404, TEXT, ELSEWHERE)
        answer = self.idleness.answer(query, headers)
        return EndpointAnswer(answer.code, JSON, answer.body, answer.headers)

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> EndpointAnswer:
        if path.partition("?")[0] == IDLENESS:
            return EndpointAnswer(405, TEXT, b"GET it\n")
        if self.api is None:
            return EndpointAnswer(404, TEXT, ELSEWHERE)
        code, document = self.api.answer(path, headers, body)
        return EndpointAnswer(code, JSON, encode_answer(document))


def _build_failure(code: int, message: str, hint: str) -> EndpointAnswer:
    """Return a failure that no reader of /v1/idleness takes for a permission."""
    document = {"schema": "fallow.error/v1", "error": message, "hint": hint, **UNDECIDED}
    return EndpointAnswer(code, JSON, encode_answer(document), {"Retry-After": "1"})


class _RequestHandler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        headers = self._headers()
        self._answer(
            lambda: self.server.answers.get(path, query, headers), is_health=path in HEALTH
        )

    def do_POST(self) -> None:
        lengths = self.headers.get_all("Content-Length", [])
        if not lengths:
            return self.send_error(411, "say Content-Length")
        length = lengths[0]
        if (
            len(lengths) > 1
            or "Transfer-Encoding" in self.headers
            or not (length.isascii() and length.isdecimal() and len(length) <= MOST_DIGITS)
        ):
            return self.send_error(400, "say one Content-Length, as a number")
        if int(length) > MOST_BYTES:
            return self.send_error(413, f"more than {MOST_BYTES} bytes")
        body = self.rfile.read(int(length))
        headers = self._headers()
        return self._answer(lambda: self.server.answers.post(self.path, headers, body))

    def _answer(self, find: Callable[[], EndpointAnswer], *, is_health: bool = False) -> None:
        server = self.server
        server.begin_work(self.connection)
        if not is_health and not server.at_work.acquire(blocking=False):
            answer = _build_failure(503, "too many requests at a time", "try again in 1 s")
        else:
            try:
                answer = find()
            except Exception:
                log.exception("a request failed")
                answer = _build_failure(500, "a defect of Fallow", "its log has the cause")
            finally:
                if not is_health:
                    server.at_work.release()
        server.begin_answer(self.connection)
        self._say(answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is none, in one line."""
        text = (message or explain or HTTPStatus(code).phrase)[:MOST_TEXT]
        self._say(EndpointAnswer(code, TEXT, f"{make_printable(text, '?')}\n".encode()))

    def _headers(self) -> dict[str, str]:
        # Header names in our own spelling: they are case-insensitive.
        return {name: self.headers.get(name, "") for name in HEADERS}

    def _say(self, answer: EndpointAnswer) -> None:
        self.close_connection = True
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_args: object) -> None:
        """Log nothing: scrapes are too frequent."""
