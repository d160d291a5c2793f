"""What stands between Fallow and a Prometheus: a server that changes answers."""

import json
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Front = Callable[[str, int, bytes], tuple[int, bytes]]
"""A path, a status and a body become a status and a body."""


@contextmanager
def serve_front(url: str, change: Front) -> Iterator[str]:
    """Pass GET requests on to a Prometheus and change what it answers; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with urllib.request.urlopen(url + self.path, timeout=60) as response:
                    status, body = response.status, response.read()
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read()
            self._send(*change(self.path, status, body))

        def do_POST(self) -> None:
            self._send(*change(self.path, 404, b""))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def build_error(reason: str, kind: str = "execution") -> bytes:
    """Return what a Prometheus answers to a query that it refuses."""
    return json.dumps({"status": "error", "errorType": kind, "error": reason}).encode()


def refuse_longer(hours: float, status: int, body: bytes) -> Front:
    """Return a front that refuses each query of a longer time than so many hours."""

    def change(path: str, given: int, answer: bytes) -> tuple[int, bytes]:
        parts = urllib.parse.urlsplit(path)
        parameters = dict(urllib.parse.parse_qsl(parts.query))
        ranges = re.findall(r"\[(\d+)ms\]", parameters.get("query", ""))
        seconds = max((int(length) / 1000 for length in ranges), default=0.0)
        if "query_range" in parts.path:
            seconds += float(parameters["end"]) - float(parameters["start"])
        return (status, body) if seconds > hours * 3600 else (given, answer)

    return change
