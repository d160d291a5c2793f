"""Serve `fallow up` over HTTP: /metrics, /healthz, /readyz, and /v1 for people and schedulers."""

import ipaddress
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from fallow.errors import UsageError
from runtime.service.api import MOST_BYTES, PREFIX, WriteApi, encode_answer
from runtime.service.idleness_api import PATH as IDLENESS
from runtime.service.idleness_api import IdlenessApi
from runtime.service.metrics import SelfMetrics

TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"
REQUEST_TIMEOUT_S = 10.0
"""How long a client may take to send its request."""
POLL_S = 0.1
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
        handler = _build_handler(_Answers(metrics, why_not, api, idleness))
        try:
            self._server = _Server((host, port), handler)
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


def _build_handler(answers: _Answers) -> type[BaseHTTPRequestHandler]:
    class ServiceRequestHandler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            self._say(answers.get(path, query, self._headers()))

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                return self._say(EndpointAnswer(411, TEXT, b"say Content-Length\n"))
            if int(length) > MOST_BYTES:
                return self._say(
                    EndpointAnswer(413, TEXT, f"more than {MOST_BYTES} bytes\n".encode())
                )
            body = self.rfile.read(int(length))
            return self._say(answers.post(self.path, self._headers(), body))

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

    return ServiceRequestHandler
