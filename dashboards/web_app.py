"""The app as an ASGI application: Streamlit's, with headers of security on every response.

Addresses of pages that are now tabs of others (`old_addresses.csv`) lead there with their
parameters: people share links.
"""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import streamlit as st

from dashboards import active_settings, warmup
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
OTHER_ROUTES = SERVED_FOLDERS | {"oauth2callback"}
"""Names that are no page's address, although they are one name below the server's folder."""
EARLY_SCRIPTS = (
    "Selectbox", "TextInput", "Html", "Metric", "ButtonGroup", "ArrowVegaLiteChart", "DataFrame",
    "embed", "vega-interpreter", "DownloadButton",
)  # fmt: skip
"""Scripts of elements that nearly every page has, by the first word of their files' names.

The browser runs them while the client connects. When the client asks for them, it shows a
placeholder first, and React replaces placeholders only half a second after the one before.
"""
BACKEND = (
    '<script>window.__streamlit = {BACKEND_BASE_URL: new URL("./", location.href).href}</script>'
)
"""Tells Streamlit's client where its server is: a page's address is one name below it.

Without it the client tries the folder of the page's own name too, and the browser's console has
four errors (404) for each shared address.
"""
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


class OwnOrigin:
    """An ASGI application that refuses what pages of other origins ask for.

    Streamlit opens its WebSocket to a page of any port of this machine, and a browser lets every
    page open one. Programs that are no browser send no `Origin`.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        reads = scope["type"] == "http" and scope.get("method") in ("GET", "HEAD")
        headers = {
            name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())
        }
        if scope["type"] == "lifespan" or reads or is_own_origin(headers):
            await self._inner(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"a page of another origin asks"})


def is_own_origin(headers: Mapping[bytes, str]) -> bool:
    """Return whether a request's page is this server's own, or of `dashboard.hosts`."""
    origin, host = headers.get(b"origin"), headers.get(b"host")
    if origin is None:
        return True
    settings = active_settings.get_settings().dashboard
    try:
        address = urlsplit(origin)
    except ValueError:
        return False
    own = {host, urlsplit(settings.oidc.redirect_uri).netloc or host}
    return bool(address.netloc) and (address.netloc in own or address.hostname in settings.hosts)


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


def add_early_scripts(index: str, names: Iterable[str]) -> str:
    """Return the first document with `BACKEND` and the scripts of elements, of files' names.

    A script that is not there has no tag: the client loads it when its first element comes.
    """
    names = sorted(names)
    files = [next((n for n in names if n.startswith(f"{early}.")), None) for early in EARLY_SCRIPTS]
    tags = [
        f'    <script type="module" crossorigin src="./static/js/{file}"></script>\n'
        for file in files
        if file
    ]
    return index.replace("  </head>", f"    {BACKEND}\n{''.join(tags)}  </head>", 1)


def is_page(path: str, base_path: str) -> bool:
    """Return whether a path has the form of a page's address.

    It is one name below the server's folder: from there the document finds its scripts, also where
    there is no such page, which the document says.
    """
    folder = f"/{base_path.strip('/')}/".replace("//", "/")
    name = path.removeprefix(folder)
    return path.startswith(folder) and not {"/", "."} & {*name} and name not in OTHER_ROUTES


class PageDocuments:
    """An ASGI application that answers requests for pages with one document, and passes others."""

    def __init__(self, inner: Any, document: str) -> None:
        self._inner = inner
        self._body = document.encode()
        self._headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(self._body)).encode()),
            (b"cache-control", b"no-cache"),
        ]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope.get("method") in ("GET", "HEAD"):
            base_path = active_settings.get_settings().dashboard.base_path
            if is_page(scope["path"], base_path):
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
                body = self._body if scope["method"] == "GET" else b""
                await send({"type": "http.response.body", "body": body})
                return
        await self._inner(scope, receive, send)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


OLD_ADDRESSES = {
    row["address"]: (row["page"], row["tab"])
    for row in read_table("dashboards", "old_addresses.csv")
}
DOCUMENT = add_early_scripts(
    INDEX.read_text(encoding="utf-8"),
    (path.name for path in (INDEX.parent / "static" / "js").glob("*.js")),
)
app = SecuredApp(
    OwnOrigin(MovedPages(PageDocuments(st.App(SCRIPT, lifespan=warmup.start_app), DOCUMENT))),
    build_headers(DOCUMENT),
)
