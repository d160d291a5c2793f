"""Deliver a text and a file to a service with Apprise; return the result and how certain it is.

Apprise returns only success or failure. The cause, and whether the text may have arrived all the
same, is in its log. The log contains URLs: it is read here and is not passed on.
"""

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from fallow.system.deadlines import DeadlineExceededError, TooManyHangingCallsError, call_within

TEMPORARY = frozenset({408, 425, 429})
SERVER = 500
_CODE = re.compile(r"error=(\d{3})\b")
_NOT_REACHED = re.compile(r"NewConnection|ConnectTimeout|NameResolution|SSLError|ProxyError")
_PART = re.compile(r"^Sent ")


class DeliveryAttempt(NamedTuple):
    """The result of a delivery. Neither `is_accepted` nor `sure`: it may have arrived."""

    is_accepted: bool
    message: str = ""
    sure: bool = True
    again: bool = False


class AttachedFile(NamedTuple):
    """A file sent with a text, where the service accepts files."""

    name: str
    media_type: str
    body: bytes


def open_service(url: str) -> Any:
    """Return Apprise's service for a URL; None = it is no Apprise URL."""
    import apprise  # noqa: PLC0415  (0.3 s and 170 services)

    with _capture_log():
        return apprise.Apprise.instantiate(url, suppress_exceptions=True)


def deliver_text(
    service: Any,
    title: str,
    text: str,
    timeout: float,
    *,
    file: AttachedFile | None = None,
    headers: Mapping[str, str] | None = None,
) -> DeliveryAttempt:
    """Deliver a text; `headers` are sent with it where the service is a plain webhook.

    The whole delivery has `timeout` seconds, and each read too. It is abandoned then, because
    Apprise opens its connections by itself and has no other timeout than one per read.
    """
    try:
        return call_within(
            timeout, lambda: _deliver(service, title, text, timeout, file=file, headers=headers)
        )
    except TooManyHangingCallsError as error:
        return DeliveryAttempt(False, f"not sent: {error}", again=True)
    except DeadlineExceededError as error:
        return DeliveryAttempt(False, f"{error}: it may have arrived", sure=False)


def _deliver(
    service: Any,
    title: str,
    text: str,
    timeout: float,
    *,
    file: AttachedFile | None,
    headers: Mapping[str, str] | None,
) -> DeliveryAttempt:
    import apprise  # noqa: PLC0415
    from apprise.attachment import memory  # noqa: PLC0415

    service.socket_connect_timeout = service.socket_read_timeout = timeout
    if headers and isinstance(getattr(service, "headers", None), dict):
        service.headers.update(headers)
    attached = None
    if file is not None and service.attachment_support:
        attached = apprise.AppriseAttachment()
        memory_class: Any = memory.AttachMemory
        kind = file.media_type.partition(";")[0]
        attached.add(memory_class(file.body, name=file.name, mimetype=kind))
    with _capture_log() as log_lines:
        try:
            accepted = service.notify(
                body=text, title=title, body_format=apprise.NotifyFormat.TEXT, attach=attached
            )
        except Exception as error:  # noqa: BLE001  (a service's own client may raise anything)
            return DeliveryAttempt(
                False, f"it may have arrived: {type(error).__name__}", sure=False
            )
    return DeliveryAttempt(True) if accepted else _interpret_log(log_lines)


def _interpret_log(lines: list[str]) -> DeliveryAttempt:
    """Interpret Apprise's log; with an unknown line, the text may have arrived."""
    if any(_PART.match(log_line) for log_line in lines):
        return DeliveryAttempt(False, "some of its targets took it and some did not", sure=False)
    codes = [int(match[1]) for log_line in lines if (match := _CODE.search(log_line))]
    if codes:
        is_temporary = codes[-1] >= SERVER or codes[-1] in TEMPORARY
        return DeliveryAttempt(False, f"the service answered {codes[-1]}", again=is_temporary)
    if any(_NOT_REACHED.search(log_line) for log_line in lines):
        return DeliveryAttempt(False, "the service cannot be reached", again=True)
    return DeliveryAttempt(False, "the service did not say whether it took it", sure=False)


class _LogCapture(logging.Handler):
    """Collect the log lines of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Store a line of our thread."""
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


@contextmanager
def _capture_log() -> Iterator[list[str]]:
    log = logging.getLogger("apprise")
    log.propagate = False
    log.setLevel(logging.DEBUG)
    capture = _LogCapture()
    log.addHandler(capture)
    try:
        yield capture.lines
    finally:
        log.removeHandler(capture)
