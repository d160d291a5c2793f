"""Hand a text and a file to a service by Apprise; say what came of it, and how sure that is.

Apprise says yes or no. Why, and whether it may have arrived all the same, stands in its log, which
names URLs: it is read here and goes nowhere else.
"""

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

TEMPORARY = frozenset({408, 425, 429})
SERVER = 500
_CODE = re.compile(r"error=(\d{3})\b")
_NOT_REACHED = re.compile(r"NewConnection|ConnectTimeout|NameResolution|SSLError|ProxyError")
_PART = re.compile(r"^Sent ")


class Handed(NamedTuple):
    """What came of it. Neither `taken` nor `sure`: it may have arrived."""

    taken: bool
    said: str = ""
    sure: bool = True
    again: bool = False


class File(NamedTuple):
    """What goes with a text, where the service takes files."""

    name: str
    media_type: str
    body: bytes


def opened(url: str) -> Any:
    """Return Apprise's service of a URL, None = it is no Apprise URL."""
    import apprise  # noqa: PLC0415  (0.3 s and 170 services)

    with _heard():
        return apprise.Apprise.instantiate(url, suppress_exceptions=True)


def hand(
    made: Any,
    title: str,
    text: str,
    timeout: float,
    *,
    file: File | None = None,
    headers: Mapping[str, str] | None = None,
) -> Handed:
    """Hand a text over; `headers` go with it where the service is a plain webhook."""
    import apprise  # noqa: PLC0415
    from apprise.attachment import memory  # noqa: PLC0415

    made.socket_connect_timeout = made.socket_read_timeout = timeout
    if headers and isinstance(getattr(made, "headers", None), dict):
        made.headers.update(headers)
    attached = None
    if file is not None and made.attachment_support:
        attached = apprise.AppriseAttachment()
        kept: Any = memory.AttachMemory
        kind = file.media_type.partition(";")[0]
        attached.add(kept(file.body, name=file.name, mimetype=kind))
    with _heard() as lines:
        try:
            took = made.notify(
                body=text, title=title, body_format=apprise.NotifyFormat.TEXT, attach=attached
            )
        except Exception as error:  # noqa: BLE001  (a service's own client may raise anything)
            return Handed(False, f"it may have arrived: {type(error).__name__}", sure=False)
    return Handed(True) if took else _meant(lines)


def _meant(lines: list[str]) -> Handed:
    """Read what Apprise logged; what is not understood may have arrived."""
    if any(_PART.match(line) for line in lines):
        return Handed(False, "some of its targets took it and some did not", sure=False)
    codes = [int(found[1]) for line in lines if (found := _CODE.search(line))]
    if codes:
        again = codes[-1] >= SERVER or codes[-1] in TEMPORARY
        return Handed(False, f"the service answered {codes[-1]}", again=again)
    if any(_NOT_REACHED.search(line) for line in lines):
        return Handed(False, "the service cannot be reached", again=True)
    return Handed(False, "the service did not say whether it took it", sure=False)


class _Ear(logging.Handler):
    """Keep the lines that one thread logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line of ours."""
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    log = logging.getLogger("apprise")
    log.propagate = False
    log.setLevel(logging.DEBUG)
    ear = _Ear()
    log.addHandler(ear)
    try:
        yield ear.lines
    finally:
        log.removeHandler(ear)
