"""A JupyterHub of a few users: its REST API of servers, as far as stopping and starting goes."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hub-token"


class HubServer:
    """Users' servers by user and name, what was asked, and what may be made to go wrong."""

    def __init__(self) -> None:
        self.url = ""
        self.users: dict[str, dict[str, dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.answers: list[int] = []
        """Codes that the next writes get instead of being done."""
        self.slow = False
        """Does a stop take a while? 202 then, and pending."""
        self.changed: Callable[[str, str, bool], object] = lambda _user, _name, _runs: None

    def start(self, user: str, name: str = "") -> None:
        model = {"name": name, "ready": True, "pending": None, "stopped": False}
        self.users.setdefault(user, {})[name] = model

    def answer(self, method: str, path: str, token: str) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        if token != f"token {TOKEN}":
            return 403, {"status": 403, "message": "Forbidden"}
        words = [unquote(w) for w in path.split("/")[1:]]
        user = words[3] if words[:3] == ["hub", "api", "users"] and len(words) > 3 else ""
        if user not in self.users:
            return 404, {"status": 404, "message": "Not Found"}
        if method == "GET":
            return 200, {"name": user, "kind": "user", "servers": self.users[user]}
        if self.answers:
            code = self.answers.pop(0)
            return code, {"status": code, "message": f"refused with {code}"}
        return self._write(method, user, words[5] if len(words) > 5 else "")

    def _write(self, method: str, user: str, name: str) -> tuple[int, Any]:
        own = self.users[user]
        if method == "POST":
            if name in own:
                return 400, {"status": 400, "message": f"{user} is already running"}
            self.start(user, name)
            self.changed(user, name, True)
            return 201, None
        if name not in own:
            return 404, {"status": 404, "message": f"{user} has no server"}
        if self.slow:
            own[name] |= {"pending": "stop", "ready": False}
            return 202, None
        del own[name]
        self.changed(user, name, False)
        return 204, None


@contextmanager
def jupyterhub() -> Iterator[HubServer]:
    """Serve on a free port of loopback until the block ends."""
    hub = HubServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            token = self.headers.get("Authorization", "")
            code, body = hub.answer(self.command, urlsplit(self.path).path, token)
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(code)
            if code != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815  (the base class names them)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
