"""The app as an ASGI application: Streamlit's, with headers of security on every response.

Addresses of pages that are now tabs of others (`old_addresses.csv`) lead there with their
parameters: people share links.
"""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from dashboards import active_settings, reading_ahead, warmup
from dashboards import app as app_pages
from fallow.resources import read_table

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SCRIPT = Path(__file__).with_name("app.py")
INDEX = Path(st.__file__).parent / "static" / "index.html"
NO_PAGE = "no-page"
"""The address that says that there is no page at the address in its parameter `address`."""
SERVED_FOLDERS = frozenset({"_stcore", "app", "auth", "component", "media", "static"})
"""Folders of Streamlit's own addresses; its client requests `_stcore` below every page."""
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def build_policy(index: str) -> str:
    """Return the Content-Security-Policy of pages whose first document is `index`.

    Scripts come from this server alone; the few lines of script inside the document are named by
    their hashes. Charts are drawn by Vega's interpreter, so no text is evaluated. Styles are
    inline: Streamlit's components write them while they draw.
    """
    hashes = [base64.b64encode(_hash(text)).decode() for text in _INLINE.findall(index)]
    sources = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *(f"'sha256-{value}'" for value in hashes)]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in sources.items())


def build_headers(index: str) -> dict[str, str]:
    """Return the headers that every response has."""
    return {
        "content-security-policy": build_policy(index),
        "x-frame-options": "DENY",
        "x-content-type-options": "nosniff",
        # An address names teams and workloads: other sites do not get it.
        "referrer-policy": "same-origin",
    }


class SecuredApp:
    """An ASGI application whose HTTP responses all have these headers, errors too."""

    def __init__(self, inner: Any, headers: dict[str, str]) -> None:
        self._inner = inner
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self._join(message.get("headers") or ())
            await send(message)

        await self._inner(scope, receive, send_secured)

    def _join(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        ours = {name for name, _ in self._headers}
        return [*(h for h in headers if h[0].lower() not in ours), *self._headers]


def find_new_address(path: str, query: str) -> str | None:
    """Return the address that replaces an old one, relative to its folder; None = it is no old one.

    Parameters are kept; the new page's tab is one of them.
    """
    name = path.rstrip("/").rpartition("/")[2]
    if name not in OLD_ADDRESSES:
        return None
    page, tab = OLD_ADDRESSES[name]
    parameters = [*([("tab", tab)] if tab else []), *parse_qsl(query, keep_blank_values=True)]
    folder = "../" if path.endswith("/") else ""
    return f"{folder}{page}" + (f"?{urlencode(parameters)}" if parameters else "")


def find_page_of_nested(path: str, base_path: str) -> str | None:
    """Return the address that tells that a path of several folders is no page; None = it may be.

    Pages have one name each. In a deeper folder the document would not even find its scripts.
    """
    names = path.strip("/").removeprefix(base_path.strip("/")).strip("/").split("/")
    if len(names) < 2 or SERVED_FOLDERS & {*names} or "." in names[-1]:  # noqa: PLR2004
        return None
    folders = "../" * (len(names) - (not path.endswith("/")))
    return f"{folders}{NO_PAGE}?{urlencode({'address': '/'.join(names)})}"


class MovedPages:
    """An ASGI application that answers requests for old addresses of pages with their new ones."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        target = None
        if scope["type"] == "http" and scope.get("method") in ("GET", "HEAD"):
            path, query = scope["path"], scope.get("query_string", b"").decode()
            base_path = active_settings.get_settings().dashboard.base_path
            target = find_new_address(path, query) or find_page_of_nested(path, base_path)
        if target is None:
            await self._inner(scope, receive, send)
            return
        headers = [(b"location", target.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 308, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


class EarlyReading:
    """An ASGI application that begins to read a page's figures when its document is requested."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope.get("method") == "GET":
            base_path = active_settings.get_settings().dashboard.base_path
            name = app_pages.find_name(scope["path"], base_path)
            if name is not None:
                headers = {n.decode().lower(): v.decode("latin-1") for n, v in scope["headers"]}
                query = scope.get("query_string", b"").decode("latin-1")
                reading_ahead.start(name, query, headers)
        await self._inner(scope, receive, send)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


OLD_ADDRESSES = {
    row["address"]: (row["page"], row["tab"])
    for row in read_table("dashboards", "old_addresses.csv")
}
app = SecuredApp(
    MovedPages(EarlyReading(st.App(SCRIPT, lifespan=warmup.start_app))),
    build_headers(INDEX.read_text(encoding="utf-8")),
)
