"""Check whether the pages can be served: extras installed, ports free, sign-in responding."""

import importlib.util
import json
import socket
from collections.abc import Iterator

from collectors.doctor import CheckRow
from fallow.errors import advise_extra
from fallow.settings import Settings
from fallow.system.deadlines import BodyTooLargeError
from fallow.system.http_client import send_request

EXTRAS = (
    ("dashboards", ("streamlit", "altair", "authlib"), "fallow dashboard and its sign-in"),
    ("reports", ("typst", "vl_convert"), "reports as PDF and their pictures"),
)
WAIT_S = 5.0
OK = 200


def check_pages(settings: Settings) -> Iterator[CheckRow]:
    """Return what is installed for the pages, and whether they can be served and signed in to."""
    for extra, modules, purpose in EXTRAS:
        yield _check_extra(extra, modules, purpose)
    yield _check_port("dashboard", settings.dashboard.listen, "/_stcore/health", "dashboard.listen")
    yield _check_port("service", settings.service.listen, "/healthz", "service.listen")
    if settings.dashboard.oidc.on:
        yield check_provider(settings.dashboard.oidc.metadata_url)


def _check_extra(extra: str, modules: tuple[str, ...], purpose: str) -> CheckRow:
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if not lacking:
        return CheckRow(f"extra {extra}", "ok", f"installed: {purpose}")
    finding = f"without {', '.join(lacking)}: no {purpose}"
    return CheckRow(f"extra {extra}", "warn", finding, advise_extra(extra))


def _check_port(check: str, listen: str, path: str, key: str) -> CheckRow:
    host, _, number = listen.rpartition(":")
    if not host or not number.isdigit():
        return CheckRow(check, "bad", f"{key} {listen!r} is no host:port", f"{key}: 127.0.0.1:8501")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), int(number)))
    except OSError as error:
        if _is_answering(f"http://{listen}{path}"):
            return CheckRow(check, "ok", f"it runs: {listen} answers")
        finding = f"{listen} cannot be bound: {error.strerror or error}"
        return CheckRow(
            check, "bad", finding, f"free the port, or set {key} to an address of this host"
        )
    return CheckRow(check, "ok", f"does not run here; {listen} is free for it")


def _is_answering(url: str) -> bool:
    try:
        return send_request("GET", url, within_s=WAIT_S).status == OK
    except (OSError, BodyTooLargeError):
        return False


def check_provider(url: str) -> CheckRow:
    """Return whether a provider's metadata can be read and name an issuer."""
    step = "dashboard.oidc.metadata_url is the address that ends in openid-configuration"
    if not url.startswith(("https://", "http://")):
        return CheckRow("sign-in", "bad", f"{url!r} is no http or https address", step)
    try:
        answer = send_request("GET", url, within_s=WAIT_S)
    except OSError as error:
        finding = f"{url} does not answer: {error}"
        return CheckRow("sign-in", "away", finding, f"{step}; may this machine reach it?")
    except BodyTooLargeError as error:
        return CheckRow("sign-in", "bad", f"{url}: {error}", step)
    if answer.status != OK:
        return CheckRow("sign-in", "bad", f"{url} answers HTTP {answer.status}", step)
    try:
        issuer = json.loads(answer.body).get("issuer")
    except (ValueError, AttributeError, RecursionError):
        issuer = None
    if not issuer:
        return CheckRow("sign-in", "bad", f"{url} names no issuer", step)
    return CheckRow("sign-in", "ok", f"{issuer} answers")
