"""A webhook and a mail server on loopback."""

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Hook:
    """A webhook that keeps what it was sent; `code` is what it answers."""

    def __init__(self) -> None:
        self.code = 200
        self.got: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.code == 200:
                    hook.got.append(json.loads(body))
                self.send_response(hook.code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server.server_address[1]}/hook"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Mail(socketserver.StreamRequestHandler):
    """As much SMTP as one message needs."""

    got: list[str]

    def handle(self) -> None:
        """Take one message."""
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            word = line.upper().split()[0]
            if word == "EHLO":
                self._say("250 test")
            elif word == "DATA":
                self._say("354 go on")
                lines = []
                while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                    lines.append(text)
                self.server.got.append("\n".join(lines))  # type: ignore[attr-defined]
                self._say("250 taken")
            elif word == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def mail() -> Iterator[tuple[str, list[str]]]:
    """Return the Apprise URL of a mail server, and the messages it takes."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        server.got = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_address[1]
        yield f"mailto://127.0.0.1:{port}/?from=fallow@x.test&to=ann@x.test", server.got  # type: ignore[attr-defined]
        server.shutdown()
