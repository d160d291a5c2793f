"""Check whether notices can be delivered. Nothing is sent: the servers are only contacted."""

import smtplib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from collectors.doctor import CheckRow
from fallow.settings import Settings
from fallow.settings.actions import Channel
from fallow.system.deadlines import Deadline
from fallow.system.smtp_client import open_smtp

EXAMPLE = "mailto://user:password@smtp.example:587/?from=fallow@example&to=team@example"


def check_channels(settings: Settings) -> Iterator[CheckRow]:
    """Return, per channel, whether its server responds."""
    notices = settings.notices
    if settings.actions.enabled and not notices.default:
        finding = "owners without channels of their own get no notice, so nothing is done to them"
        yield CheckRow("notices", "warn", finding, "set notices.channels and notices.default")
    timeout = notices.timeout.total_seconds()
    for name, channel in notices.channels.items():
        yield _check_channel(f"channel {name}", channel, f"notices.channels.{name}.url", timeout)


def _check_channel(check: str, channel: Channel, key: str, timeout: float) -> CheckRow:
    import apprise  # noqa: PLC0415  (0.3 s and 170 services)

    plugin: Any = apprise.Apprise.instantiate(
        channel.url.get_secret_value(), suppress_exceptions=True
    )
    if plugin is None:
        step = f"write {key} as Apprise has it, such as {EXAMPLE}"
        return CheckRow(check, "bad", "its url is no Apprise URL", step)
    if getattr(plugin, "smtp_host", None):
        return _check_mail_server(check, plugin, key, timeout)
    host = getattr(plugin, "host", None)
    if not host:
        return CheckRow(check, "ok", f"{plugin.service_name}: known; only sending would prove it")
    port = plugin.port or (443 if plugin.secure else 80)
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError as error:
        finding = f"{host}:{port} does not answer: {_format_error(error)}"
        return CheckRow(check, "away", finding, f"correct {key}, or let this machine reach it")
    return CheckRow(check, "ok", f"{host}:{port} answers; nothing was sent")


def _check_mail_server(check: str, plugin: Any, key: str, timeout: float) -> CheckRow:
    secure = str(getattr(plugin, "secure_mode", ""))
    ssl_from_start = "ssl" in secure and "starttls" not in secure
    port = plugin.port or (465 if ssl_from_start else 587 if "starttls" in secure else 25)
    where = f"{plugin.smtp_host}:{port}"
    try:
        context = ssl.create_default_context() if ssl_from_start else None
        with (
            Deadline(timeout),
            open_smtp(plugin.smtp_host, port, timeout=timeout, context=context) as server,
        ):
            server.ehlo()
            if "starttls" in secure:
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            if plugin.user and plugin.password:
                server.login(plugin.user, plugin.password)
            code, _ = server.noop()
    except smtplib.SMTPAuthenticationError as error:
        finding = f"{where} refuses the user name or password (SMTP {error.smtp_code})"
        return CheckRow(check, "bad", finding, f"correct user and password in {key}")
    except ssl.SSLError as error:
        step = f"mailtos:// speaks TLS, mailto:// plain SMTP: which does the server? {key}"
        return CheckRow(check, "bad", f"{where}: TLS failed: {_format_error(error)}", step)
    except (OSError, smtplib.SMTPException) as error:
        finding = f"{where} does not answer as a mail server: {_format_error(error)}"
        return CheckRow(
            check, "away", finding, f"correct host and port in {key}, or open the way there"
        )
    if code >= 400:  # noqa: PLR2004  (SMTP: errors from 400 on)
        return CheckRow(check, "away", f"{where} answers SMTP {code}", "see the mail server's log")
    return CheckRow(check, "ok", f"{where} takes our greeting; nothing was sent")


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
