"""A mail server, a webhook and settings that send to them; every server is a real one."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller

from fallow.settings import Settings, load
from runtime.operations.answers.reports import Report

NOW = datetime(2026, 11, 20, 7, tzinfo=UTC)
SECRET = "hunter2-of-the-url"


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def on(self, length: timedelta) -> None:
        """Move it."""
        self.now += length


class Post:
    """What an SMTP server took, and what it says instead of taking it."""

    def __init__(self) -> None:
        self.is_accepted: list[bytes] = []
        self.recipients: list[list[str]] = []
        self.to_sender = self.to_message = ""
        self.to_recipient: dict[str, str] = {}
        self.port = 0

    async def handle_MAIL(  # noqa: N802  (aiosmtpd's names)
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        envelope.mail_from = address
        return self.to_sender or "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        reply = self.to_recipient.get(address, "250 OK")
        if reply.startswith("250"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.to_message:
            return self.to_message
        self.is_accepted.append(envelope.content)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 taken"


def free_port() -> int:
    """Return a port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def posted() -> Iterator[Post]:
    """Run an SMTP server on a free port."""
    made = Post()
    made.port = free_port()
    server = Controller(made, hostname="127.0.0.1", port=made.port)
    server.start()
    yield made
    server.stop()


class Hook:
    """What a webhook was sent, and its answer: a code, 0 = it hangs up. `seen` comes first."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.code = 200
        self.seen: Callable[[], None] = lambda: None
        self.url = ""


@contextmanager
def hooked() -> Iterator[Hook]:
    """Run a webhook on a free port."""
    made = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append(json.loads(body))
            made.headers.append(dict(self.headers))
            made.seen()
            if not made.code:  # it hangs up without an answer
                self.close_connection = True
                return
            self.send_response(made.code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        made.url = f"json://fallow:{SECRET}@127.0.0.1:{server.server_address[1]}/hook/{SECRET}"
        yield made
        server.shutdown()


def configured(tmp_path: Path, channels: dict[str, str], **more: Any) -> Settings:
    """Return settings with one schedule, `weekly`, to these channels (name: URL) and stores."""
    stores = more.pop("stores", {})
    schedule = {
        "name": "weekly",
        "audience": "finance",
        "format": "md",
        "window": "7d",
        "cron": "0 7 * * *",
        "to": [*channels, *stores],
        **more,
    }
    return load(
        environ={},
        flags={
            "home": tmp_path / "home",
            "cluster": "test",
            "notices.channels": {name: {"url": url} for name, url in channels.items()},
            "reports.stores": stores,
            "reports.schedules": [schedule],
        },
    ).settings


def report(**_asked: Any) -> Report:
    """Return a report as finance's might be."""
    return Report(
        name="fallow-finance-20261113-20261120.md",
        media_type="text/markdown; charset=utf-8",
        body="# What was paid: 1,234.50 €\n".encode(),
        title="What was paid",
        summary="1,234.50 was paid\n12 % of it was wasted",
    )


def produce(_views: Any, _settings: Settings, **asked: Any) -> Report:
    """Stand in for `runtime.operations.answers.reports.produce`."""
    return report(**asked)
