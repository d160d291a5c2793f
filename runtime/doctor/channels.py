"""Whether notices can reach anybody. Nothing is sent: a mail server is greeted, a host called."""

import smtplib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from collectors.doctor import Row
from fallow.action_settings import Channel
from fallow.settings import Settings

EXAMPLE = "mailto://user:password@smtp.example:587/?from=fallow@example&to=team@example"


def reachable(settings: Settings) -> Iterator[Row]:
    """Say of each channel whether its server answers."""
    said = settings.notices
    if settings.actions.enabled and not said.default:
        finding = (
            "owners without channels of their own are told nothing, so nothing is done to them"
        )
        yield Row("notices", "warn", finding, "set notices.channels and notices.default")
    timeout = said.timeout.total_seconds()
    for name, channel in said.channels.items():
        yield _asked(f"channel {name}", channel, f"notices.channels.{name}.url", timeout)


def _asked(check: str, channel: Channel, key: str, timeout: float) -> Row:
    import apprise  # noqa: PLC0415  (0.3 s and 170 services)

    made: Any = apprise.Apprise.instantiate(
        channel.url.get_secret_value(), suppress_exceptions=True
    )
    if made is None:
        step = f"write {key} as Apprise has it, such as {EXAMPLE}"
        return Row(check, "bad", "its url is no Apprise URL", step)
    if getattr(made, "smtp_host", None):
        return _mail(check, made, key, timeout)
    host = getattr(made, "host", None)
    if not host:
        return Row(check, "ok", f"{made.service_name}: known; only sending would prove it")
    port = made.port or (443 if made.secure else 80)
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError as error:
        finding = f"{host}:{port} does not answer: {_words(error)}"
        return Row(check, "away", finding, f"correct {key}, or let this machine reach it")
    return Row(check, "ok", f"{host}:{port} answers; nothing was sent")


def _mail(check: str, made: Any, key: str, timeout: float) -> Row:
    secure = str(getattr(made, "secure_mode", ""))
    ssl_from_start = "ssl" in secure and "starttls" not in secure
    port = made.port or (465 if ssl_from_start else 587 if "starttls" in secure else 25)
    where = f"{made.smtp_host}:{port}"
    try:
        kind = smtplib.SMTP_SSL if ssl_from_start else smtplib.SMTP
        with kind(made.smtp_host, port, timeout=timeout) as server:
            server.ehlo()
            if "starttls" in secure:
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            if made.user and made.password:
                server.login(made.user, made.password)
            code, _ = server.noop()
    except smtplib.SMTPAuthenticationError as error:
        finding = f"{where} refuses the user name or password (SMTP {error.smtp_code})"
        return Row(check, "bad", finding, f"correct user and password in {key}")
    except ssl.SSLError as error:
        step = f"mailtos:// speaks TLS, mailto:// plain SMTP: which does the server? {key}"
        return Row(check, "bad", f"{where}: TLS failed: {_words(error)}", step)
    except (OSError, smtplib.SMTPException) as error:
        finding = f"{where} does not answer as a mail server: {_words(error)}"
        return Row(check, "away", finding, f"correct host and port in {key}, or open the way there")
    if code >= 400:  # noqa: PLR2004  (SMTP: errors from 400 on)
        return Row(check, "away", f"{where} answers SMTP {code}", "look at the mail server's log")
    return Row(check, "ok", f"{where} takes our greeting; nothing was sent")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
