"""Deliver a report to an SMTP server: one message to all recipients, with a certain result.

The address, the TLS mode and the login come from the channel's Apprise URL, as Apprise reads it.
Apprise itself returns only success or failure: it cannot tell whether another attempt might send
the message twice.
"""

import smtplib
import ssl
from contextlib import suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

from actions.notices.apprise_delivery import DeliveryAttempt
from fallow.system.deadlines import Deadline, DeadlineExceededError
from fallow.system.smtp_client import open_smtp
from fallow.texts import make_printable
from runtime.operations.answers.reports import Report

OK, WILL_FORWARD = 250, 251
PERMANENT = 500
MOST_TEXT = 200


def send_mail(plugin: Any, report: Report, text: str, key: str, timeout: float) -> DeliveryAttempt:
    """Send a report as an attachment through the server of Apprise's `plugin`.

    The delivery has `timeout` seconds from connecting to the last answer. Until the last line of
    the message is sent, it is certain that nothing was delivered. From then until the server's
    response the result is unknown.
    """
    where, attempt = f"{plugin.smtp_host}:{plugin.port}", None
    # What the delivery itself knows counts: it tells whether the message may have arrived.
    with suppress(DeadlineExceededError), Deadline(timeout):
        attempt = _deliver(plugin, report, text, key, timeout, where=where)
    return attempt or DeliveryAttempt(False, f"{where} fell silent", sure=False)


def _deliver(
    plugin: Any, report: Report, text: str, key: str, timeout: float, *, where: str
) -> DeliveryAttempt:
    recipients = [*(to for _, to in plugin.targets), *sorted(plugin.cc | plugin.bcc)]
    message = build_message(plugin, report, text, key).as_bytes(policy=SMTP)
    try:
        server = _connect(plugin, timeout)
    except (OSError, smtplib.SMTPException) as error:
        return _report_failure(f"{where} cannot be used", error)
    try:
        return _send(server, plugin.from_addr[1], recipients, message, where)
    finally:
        server.close()


def build_message(plugin: Any, report: Report, text: str, key: str) -> EmailMessage:
    """Return the message; its Message-ID is the same at each attempt."""
    message = EmailMessage()
    domain = plugin.from_addr[1].rpartition("@")[2]
    message["Message-ID"] = f"<{key}@{domain}>"
    message["Subject"] = _make_printable(report.title)
    message["From"] = _format_address(plugin.from_addr)
    message["To"] = ", ".join(_format_address(target) for target in plugin.targets)
    if plugin.cc:
        message["Cc"] = ", ".join(sorted(plugin.cc))
    if plugin.reply_to:
        message["Reply-To"] = ", ".join(sorted(plugin.reply_to))
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    main, _, rest = report.media_type.partition(";")[0].partition("/")
    message.add_attachment(report.body, maintype=main, subtype=rest, filename=report.name)
    return message


def _format_address(named: tuple[Any, str]) -> str:
    name, address = named
    return str(Address(str(name) if name else "", addr_spec=address))


def _connect(plugin: Any, timeout: float) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if not plugin.verify_certificate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    by_tls = context if plugin.secure_mode == "ssl" else None
    server = open_smtp(plugin.smtp_host, plugin.port, timeout=timeout, context=by_tls)
    try:
        if plugin.secure_mode == "starttls":
            server.starttls(context=context)
        if plugin.user and plugin.password:
            server.login(plugin.user, plugin.password)
        server.ehlo_or_helo_if_needed()
    except BaseException:
        server.close()
        raise
    return server


def _send(
    server: smtplib.SMTP, sender: str, recipients: list[str], message: bytes, where: str
) -> DeliveryAttempt:
    try:
        answer = _send_envelope(server, sender, recipients, where)
    except (OSError, smtplib.SMTPException) as error:
        return _report_failure(f"{where} hung up", error)
    if not answer.is_accepted:
        return answer
    try:
        code, reply = server.data(message)
    except smtplib.SMTPDataError as error:  # it refuses the DATA command
        return _report_failure(f"{where} does not take it", error)
    except (OSError, smtplib.SMTPException) as error:
        return DeliveryAttempt(
            False, f"{where} fell silent, it may have arrived: {_make_printable(error)}", sure=False
        )
    return answer if code == OK else _report_refusal(f"{where} does not take it", code, reply)


def _send_envelope(
    server: smtplib.SMTP, sender: str, recipients: list[str], where: str
) -> DeliveryAttempt:
    """Send the envelope; refused recipients are counted, their addresses are not named."""
    code, reply = server.mail(sender)
    if code != OK:
        return _report_refusal(f"{where} takes no mail from us", code, reply)
    refused: list[tuple[int, bytes]] = []
    for recipient in recipients:
        code, reply = server.rcpt(recipient)
        if code not in (OK, WILL_FORWARD):
            refused.append((code, reply))
    if len(refused) == len(recipients):
        return _report_refusal(
            f"{where} takes no mail to them", *min(refused, key=lambda refusal: refusal[0])
        )
    if refused:
        line = _format_reply(*refused[0])
        return DeliveryAttempt(
            True, f"{len(refused)} of {len(recipients)} recipients refused: {line}"
        )
    return DeliveryAttempt(True)


def _report_failure(subject: str, error: Exception) -> DeliveryAttempt:
    if isinstance(error, smtplib.SMTPResponseException):
        return _report_refusal(subject, error.smtp_code, error.smtp_error)
    return DeliveryAttempt(False, f"{subject}: {_make_printable(error)}", again=True)


def _report_refusal(subject: str, code: int, reply: bytes | str) -> DeliveryAttempt:
    return DeliveryAttempt(
        False, f"{subject}: {_format_reply(code, reply)}", again=code < PERMANENT
    )


def _format_reply(code: int, reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return f"{code} {_make_printable(text)}"


def _make_printable(value: object) -> str:
    text = " ".join(str(value).split()) or type(value).__name__
    return make_printable(text)[:MOST_TEXT]
