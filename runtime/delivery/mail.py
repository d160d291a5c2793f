"""Hand a report to an SMTP server: one message to all recipients, and certainty where there is any.

The address, the way of TLS and who logs in come from the channel's Apprise URL as Apprise reads it.
Apprise's own sending says only yes or no: whether trying again might send twice, it cannot tell.
"""

import smtplib
import ssl
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

from actions.notices.handing import Handed
from runtime.reporting import Report

OK, WILL_FORWARD = 250, 251
PERMANENT = 500
SAID_MOST = 200


def hand(made: Any, report: Report, text: str, key: str, timeout: float) -> Handed:
    """Send a report as an attachment by the server of Apprise's `made`.

    Until the message's last line it is certain that nobody has it; from there to the server's
    answer it is not.
    """
    recipients = [*(to for _, to in made.targets), *sorted(made.cc | made.bcc)]
    where = f"{made.smtp_host}:{made.port}"
    message = written(made, report, text, key).as_bytes(policy=SMTP)
    try:
        server = _connected(made, timeout)
    except (OSError, smtplib.SMTPException) as error:
        return _failed(f"{where} cannot be used", error)
    try:
        return _talk(server, made.from_addr[1], recipients, message, where)
    finally:
        server.close()


def written(made: Any, report: Report, text: str, key: str) -> EmailMessage:
    """Return the message; its Message-ID is the same however often it is made."""
    message = EmailMessage()
    domain = made.from_addr[1].rpartition("@")[2]
    message["Message-ID"] = f"<{key}@{domain}>"
    message["Subject"] = _plain(report.title)
    message["From"] = _address(made.from_addr)
    message["To"] = ", ".join(_address(target) for target in made.targets)
    if made.cc:
        message["Cc"] = ", ".join(sorted(made.cc))
    if made.reply_to:
        message["Reply-To"] = ", ".join(sorted(made.reply_to))
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    main, _, rest = report.media_type.partition(";")[0].partition("/")
    message.add_attachment(report.body, maintype=main, subtype=rest, filename=report.name)
    return message


def _address(named: tuple[Any, str]) -> str:
    name, address = named
    return str(Address(str(name) if name else "", addr_spec=address))


def _connected(made: Any, timeout: float) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if not made.verify_certificate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    server: smtplib.SMTP
    if made.secure_mode == "ssl":
        server = smtplib.SMTP_SSL(made.smtp_host, made.port, timeout=timeout, context=context)
    else:
        server = smtplib.SMTP(made.smtp_host, made.port, timeout=timeout)
    try:
        if made.secure_mode == "starttls":
            server.starttls(context=context)
        if made.user and made.password:
            server.login(made.user, made.password)
        server.ehlo_or_helo_if_needed()
    except BaseException:
        server.close()
        raise
    return server


def _talk(
    server: smtplib.SMTP, sender: str, recipients: list[str], message: bytes, where: str
) -> Handed:
    try:
        answer = _enveloped(server, sender, recipients, where)
    except (OSError, smtplib.SMTPException) as error:
        return _failed(f"{where} hung up", error)
    if not answer.taken:
        return answer
    try:
        code, said = server.data(message)
    except smtplib.SMTPDataError as error:  # it does not even want to hear it
        return _failed(f"{where} does not take it", error)
    except (OSError, smtplib.SMTPException) as error:
        return Handed(
            False, f"{where} fell silent, it may have arrived: {_plain(error)}", sure=False
        )
    return answer if code == OK else _refused(f"{where} does not take it", code, said)


def _enveloped(server: smtplib.SMTP, sender: str, recipients: list[str], where: str) -> Handed:
    """Say from whom and to whom; whoever is refused is named by number, not by address."""
    code, said = server.mail(sender)
    if code != OK:
        return _refused(f"{where} takes no mail from us", code, said)
    refused: list[tuple[int, bytes]] = []
    for recipient in recipients:
        code, said = server.rcpt(recipient)
        if code not in (OK, WILL_FORWARD):
            refused.append((code, said))
    if len(refused) == len(recipients):
        return _refused(f"{where} takes no mail to them", *min(refused, key=lambda one: one[0]))
    if refused:
        line = _words(*refused[0])
        return Handed(True, f"{len(refused)} of {len(recipients)} recipients refused: {line}")
    return Handed(True)


def _failed(what: str, error: Exception) -> Handed:
    if isinstance(error, smtplib.SMTPResponseException):
        return _refused(what, error.smtp_code, error.smtp_error)
    return Handed(False, f"{what}: {_plain(error)}", again=True)


def _refused(what: str, code: int, said: bytes | str) -> Handed:
    return Handed(False, f"{what}: {_words(code, said)}", again=code < PERMANENT)


def _words(code: int, said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return f"{code} {_plain(text)}"


def _plain(said: object) -> str:
    text = " ".join(str(said).split()) or type(said).__name__
    return "".join(c if c.isprintable() else " " for c in text)[:SAID_MOST]
