"""Open connections to mail servers that the thread's deadline ends.

with Deadline(30.0), open_smtp("smtp.example", 587, timeout=30.0) as server:
    server.ehlo()
"""

import smtplib
import socket
import ssl
from typing import Any

from fallow.system.deadlines import watch_current


class WatchedSmtp(smtplib.SMTP):
    """A connection that the thread's deadline ends, from the server's greeting on."""

    def _get_socket(self, *args: Any) -> socket.socket:
        connection: socket.socket = super()._get_socket(*args)  # type: ignore[misc]  # smtplib's own
        watch_current(connection)
        return connection


class WatchedSmtpSsl(smtplib.SMTP_SSL, WatchedSmtp):
    """The same over TLS, in its handshake too: SMTP_SSL wraps the socket of the class after it."""


def open_smtp(
    host: str, port: int, *, timeout: float, context: ssl.SSLContext | None = None
) -> smtplib.SMTP:
    """Connect and read the greeting; with a context, by TLS from the start.

    Raises:
        OSError, smtplib.SMTPException: it does not answer as a mail server.
    """
    if context is not None:
        return WatchedSmtpSsl(host, port, timeout=timeout, context=context)
    return WatchedSmtp(host, port, timeout=timeout)
