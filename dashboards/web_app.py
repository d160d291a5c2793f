"""The app as an ASGI application: Streamlit's, with headers of security on every response."""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

import streamlit as st

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SCRIPT = Path(__file__).with_name("app.py")
INDEX = Path(st.__file__).parent / "static" / "index.html"
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


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


app = SecuredApp(st.App(SCRIPT), build_headers(INDEX.read_text(encoding="utf-8")))
