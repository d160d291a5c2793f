"""Serve the store over HTTP: one thread for each connection, loopback only.

with KubeServer(store) as server:
    kubectl --server server.url get pods -A
"""

import gzip
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast
from urllib.parse import parse_qs, parse_qsl, urlsplit

import msgspec

from fallow.errors import UsageError
from simulator.kube import discovery, exec, representations  # noqa: A004  (the subresource's name)
from simulator.kube.access import Access, AccessReview
from simulator.kube.controllers import Controllers
from simulator.kube.faults import Faults
from simulator.kube.handlers import REVIEW_PATH, ApiHandler
from simulator.kube.paths import RequestTarget, parse_path
from simulator.kube.request import ApiRequest, ApiResponse
from simulator.kube.status import StatusError, build_bad_request
from simulator.kube.store import ObjectStore
from simulator.kube.watches import BOOKMARK_S, CUT, ApiWatch

HOST = "127.0.0.1"
GZIP_FROM = 128 * 1024
"""Bytes from which a response is compressed for clients that accept it, as on the real server."""
REMEMBERED = 10_000
GOODBYE_S = 2.0
"""How long a closing server waits for the end of its watches."""
SILENCE_S = 0.02
"""How often a server that sends no response checks whether its client has left."""
_HEALTH = {"/healthz", "/livez", "/readyz"}
_JSON = "application/json"


class ReceivedRequest(msgspec.Struct, frozen=True):
    """One request that the server has received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class KubeServer:
    """Serves a store on loopback; `requests` are the latest requests.

    `faults`, `access` and `controllers` are switches.
    """

    def __init__(
        self, store: ObjectStore, port: int = 0, *, bookmark_s: float = BOOKMARK_S
    ) -> None:
        self.store, self.bookmark_s = store, bookmark_s
        self.access, self.faults = Access(), Faults()
        self.containers = exec.ExecContainers()
        self.answers = ApiHandler(store, self.access, self.faults)
        self.controllers = Controllers(store)
        self.record_request: Callable[[ApiRequest, int], None] | None = None
        """Receives each request that may have changed the store, and the version after it, before
        its answer is sent."""
        self.requests: deque[ReceivedRequest] = deque(maxlen=REMEMBERED)
        self._watches = 0
        try:
            self._http = _Http(self, port)
        except OSError as error:
            raise UsageError(
                f"the Kubernetes API cannot listen on {HOST}:{port}: {error.strerror or error}",
                hint="choose another port, or 0 for any that is free",
            ) from error
        self._thread = threading.Thread(
            target=self._http.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="kube-api",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """Port it listens on."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop: open watches end, connections are closed. A second call does nothing."""
        self.faults.closing = True
        with self.store.changed:
            self.store.changed.notify_all()
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        with self.store.changed:
            self.store.changed.wait_for(lambda: not self._watches, GOODBYE_S)
        self._http.server_close()
        self._http.hang_up()

    @contextmanager
    def hold_watch(self) -> Iterator[None]:
        """Count an open watch inside the block: closing waits for its end."""
        with self.store.changed:
            self._watches += 1
        try:
            yield
        finally:
            with self.store.changed:
                self._watches -= 1
                self.store.changed.notify_all()

    def handle(self, request: ApiRequest, about: RequestTarget) -> ApiResponse:
        """Return the response; controllers write before or after it, as configured.

        Raises:
            ApiError: whatever the server refuses.
        """
        record = self.record_request
        with self.store.changed if record else nullcontext():
            before = self.store.version
            self.controllers.before(request, about)
            try:
                return self.answers.answer(request, about)
            finally:
                self.controllers.after()
                if record and (request.method != "GET" or self.store.version != before):
                    record(request, self.store.version)

    def bookmark(self) -> int:
        """Advance every open watch to a new version without a change; return the version."""
        with self.store.changed:
            version = self.store.advance()
            self.faults.marks += 1
            self.store.changed.notify_all()
        return version


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, owner: KubeServer, port: int) -> None:
        super().__init__((HOST, port), ApiRequestHandler)
        self.owner = owner
        self._open: set[socket.socket] = set()

    def server_bind(self) -> None:
        """Bind without a DNS query for our own name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Close the connections that are still open."""
        for connection in tuple(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have left; the handler reports our own errors."""
        del request, client_address


class ApiRequestHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes
    wbufsize = 64 * 1024

    @property
    def _owner(self) -> KubeServer:
        return cast("_Http", self.server).owner

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: `KubeServer.requests` has the requests."""
        del format, args

    def do_GET(self) -> None:
        """Answer a request of any method."""
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        headers = {k.lower(): v for k, v in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        body = self.rfile.read(int(headers.get("content-length") or 0))
        request = ApiRequest(self.command, parts.path.rstrip("/"), query, headers, body)
        watches = query.get("watch") in {"true", "1"}
        try:
            with self._owner.hold_watch() if watches else nullcontext():
                self._owner.requests.append(
                    ReceivedRequest(self.command, request.path, query, headers)
                )
                self._dispatch(request)
        except StatusError as error:
            self._refuse(error)
        except OSError:  # the client closed the connection
            self.close_connection = True
        except Exception as error:  # noqa: BLE001  (a server answers; it does not die)
            message = f"Internal error occurred: {type(error).__name__}: {error}"
            self._refuse(StatusError(500, "InternalError", message, {}))

    def _dispatch(self, request: ApiRequest) -> None:
        owner = self._owner
        if owner.faults.away:
            raise ConnectionResetError
        if refused := owner.faults.take_throttle():
            code, after = refused
            error = StatusError(code, "TooManyRequests" if code == _THROTTLED else "", "slow down")
            self._refuse(error, {"Retry-After": after} if after else {})
            return
        if request.path in _HEALTH:
            self._send(b"ok", 200, {"Content-Type": "text/plain"})
            return
        user = owner.access.user(request.headers.get("authorization", ""))
        if request.method == "POST" and request.path == REVIEW_PATH:
            self._say(owner.answers.review(request, user))
            return
        parts = [p for p in request.path.split("/") if p]
        if request.method == "GET":
            discovery_body = discovery.answer(owner.store.catalog, parts, f"{HOST}:{owner.port}")
            if discovery_body is not None:
                self._say(ApiResponse(discovery_body))
                return
        about = parse_path(owner.store.catalog, request.path)
        if about.resource == "pods/exec":
            self._exec(about, user)
            return
        owner.access.check(user, owner.answers.build_review(request, about))
        if request.method == "GET" and request.query.get("watch") in {"true", "1"}:
            self._watch(request, about)
        else:
            self._answered(request, about)

    def _answered(self, request: ApiRequest, about: RequestTarget) -> None:
        """Send the response, or fail as `faults` requires."""
        faults = self._owner.faults
        writes = request.method != "GET" and "dryRun" not in request.query
        broken = faults.take_write(request.path) if writes else None
        if broken is None:
            self._say(self._owner.handle(request, about))
            return
        if broken.how == "refused":
            more = {"Retry-After": broken.retry_after} if broken.retry_after else {}
            self._refuse(StatusError(broken.code, broken.reason, broken.message), more)
            return
        if broken.how != "cut before":
            self._owner.handle(request, about)
        while broken.how == "silent" and not faults.closing and not self._left():
            time.sleep(SILENCE_S)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _exec(self, about: RequestTarget, user: str) -> None:
        """Upgrade to a WebSocket and run a command; permission to create `pods/exec` is needed."""
        access_review = AccessReview("create", "", about.resource, about.namespace, about.name)
        self._owner.access.check(user, access_review)
        key = self.headers.get("Sec-WebSocket-Key")
        if self.headers.get("Upgrade", "").lower() != "websocket" or not key:
            raise build_bad_request("you must upgrade the connection")
        query = parse_qs(urlsplit(self.path).query)
        machine, command = self._owner.containers.find(
            self._owner.store, about.namespace, about.name, query
        )
        protocol = exec.choose_protocol(self.headers.get("Sec-WebSocket-Protocol", ""))
        if protocol is None:
            raise build_bad_request(f"unable to upgrade: none of {exec.V5}, {exec.V4} was offered")
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", exec.accept_key(key))
        self.send_header("Sec-WebSocket-Protocol", protocol)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        exec.ExecSession(self.rfile, self.connection, protocol).run(machine, command)

    def _watch(self, request: ApiRequest, about: RequestTarget) -> None:
        owner = self._owner
        query = request.query
        if about.name:
            query = {**query, "fieldSelector": f"metadata.name={about.name}"}
        watch = ApiWatch(owner.store, about, query, owner.faults, bookmark_s=owner.bookmark_s)
        self.send_response(200)
        self.send_header("Content-Type", _JSON)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        form = request.form
        for event in watch.lines():
            if event is CUT:
                self._chunk(b'{"type":"ADDED","obj')  # half a line, then nothing more
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if event is None:
                if self._left():
                    self.close_connection = True
                    return
                continue
            body = event["object"]
            if event["type"] not in {"ERROR", "BOOKMARK"}:
                body = representations.convert_to_form(about, body, form)
            self._chunk(msgspec.json.encode({"type": event["type"], "object": body}) + b"\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _left(self) -> bool:
        """Return whether the client has closed its end."""
        ready, _, _ = select.select([self.connection], [], [], 0)
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _refuse(self, error: StatusError, headers: dict[str, str] | None = None) -> None:
        more = dict(headers or {})
        if error.retry_after is not None:
            more["Retry-After"] = str(error.retry_after)
        self._send(msgspec.json.encode(error.body()), error.code, more)

    def _say(self, answer: ApiResponse) -> None:
        self._send(msgspec.json.encode(answer.body), answer.code, {})

    def _send(self, data: bytes, code: int, headers: dict[str, str]) -> None:
        packed = len(data) >= GZIP_FROM and "gzip" in (self.headers.get("Accept-Encoding") or "")
        data = gzip.compress(data, 1) if packed else data
        self.send_response(code)
        headers_sent = {"Content-Type": _JSON, "Content-Length": str(len(data)), **headers}
        if packed:
            headers_sent["Content-Encoding"] = "gzip"
        for name, value in headers_sent.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


_THROTTLED = 429
