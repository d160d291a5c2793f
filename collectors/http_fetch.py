"""Fetch from many servers at once, in bounds (`fallow.system.http_client`): time, bytes, address.

No redirect is followed: a token goes where the settings name, and nowhere else.
"""

import ssl
from collections.abc import Mapping

import aiohttp
import msgspec
from yarl import URL

from fallow.system.http_client import shorten
from fallow.window import format_duration

OK = 200


class Fetch(msgspec.Struct, frozen=True):
    """An answer, whole where there is no error; of another status than 200 the body is not read."""

    status: int = 0
    reason: str = ""
    body: bytes = b""
    error: str | None = None
    too_large: bool = False


class _TooLargeError(Exception):
    """The body is larger than its reader accepts."""


def open_session(timeout_s: float | None = None) -> aiohttp.ClientSession:
    """Return a session whose requests have so many seconds each; None = the caller ends them."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def fetch(
    session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], *, limit: int
) -> Fetch:
    """Return what a GET brings; it raises nothing. `limit`: bytes after decompression."""
    status, reason, parts = 0, "", list[bytes]()
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            status, reason = response.status, shorten(response.reason or "")
            if status != OK:
                return Fetch(status, reason, error=f"HTTP {status} {reason}".rstrip())
            await _drain(response.content, parts, limit)
    except TimeoutError:
        error = f"no complete answer within {format_duration(session.timeout.total or 0)}"
    except _TooLargeError:
        error = f"more than {limit:,} bytes after decompression"
        return Fetch(status, reason, error=error, too_large=True)
    except aiohttp.ClientPayloadError:
        error = f"the answer broke off after {sum(map(len, parts))} bytes"
    except Exception as failure:  # noqa: BLE001  (a server's bytes choose what a parser raises)
        error = _explain(failure)
    else:
        return Fetch(status, reason, b"".join(parts))
    return Fetch(status, reason, b"".join(parts), error)


async def _drain(content: aiohttp.StreamReader, into: list[bytes], limit: int) -> None:
    """Read to the end; after an error `into` keeps what was received so far."""
    read = 0
    async for part in content.iter_any():
        read += len(part)
        if read > limit:
            raise _TooLargeError
        into.append(part)


def _explain(error: Exception) -> str:
    """Return an error in one line that begins with its kind."""
    kind = {
        aiohttp.ClientConnectorDNSError: "no such host",
        aiohttp.ClientConnectorCertificateError: "the TLS certificate is not trusted",
        aiohttp.ClientConnectorSSLError: "TLS failed (is it plain http?)",
        ssl.SSLError: "TLS failed",
        aiohttp.ClientConnectorError: "no connection",
        aiohttp.ServerDisconnectedError: "the server closed the connection",
        aiohttp.ClientResponseError: "no answer of HTTP",
    }
    kind_text = next((text for cls, text in kind.items() if isinstance(error, cls)), None)
    return shorten(
        ": ".join(part for part in (kind_text or type(error).__name__, str(error)) if part)
    )
