"""A small HTTP server that answers as it is told, one answer after another; the last stays."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

VECTOR = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
NAMES = b'{"status":"success","data":["up"]}'


class Answer(NamedTuple):
    """What to answer; `cut` promises more bytes than it sends."""

    status: int = 200
    body: bytes = VECTOR
    headers: Mapping[str, str] = {}
    cut: bool = False


class Misbehaving:
    """Where it listens, how it answers, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ahead_s = 0.0
        """How far its clock is ahead of this machine's."""
        self.answers: list[Answer] = [Answer()]
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.headers: list[Mapping[str, str]] = []
        self.answering: Callable[[str, Mapping[str, str]], Answer] = self._next
        self.end: Callable[[], None]
        """Refuse connections from now on."""
        self.begin: Callable[[], None]
        """Listen again at the same address."""

    def _next(self, _path: str, _parameters: Mapping[str, str]) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def misbehaving() -> Iterator[Misbehaving]:
    """Serve on a free port of loopback until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else 40 ms an answer

        def date_time_string(self, timestamp: float | None = None) -> str:
            at = time.time() if timestamp is None else timestamp
            return super().date_time_string(at + server.ahead_s)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            parameters = {k: v[0] for k, v in parse_qs(parts.query).items()}
            server.asked.append((parts.path, parameters))
            server.headers.append(dict(self.headers))
            answer = server.answering(parts.path, parameters)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) + 100 * answer.cut))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.cut

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    def begin(port: int) -> None:
        servers.append(ThreadingHTTPServer(("127.0.0.1", port), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()

    def end() -> None:
        servers[-1].shutdown()
        servers[-1].socket.close()  # `server_close` would wait for the thread that calls this

    servers: list[ThreadingHTTPServer] = []
    begin(0)
    port = int(servers[0].server_address[1])
    server = Misbehaving(f"http://127.0.0.1:{port}")
    server.begin, server.end = partial(begin, port), end
    yield server
    end()
