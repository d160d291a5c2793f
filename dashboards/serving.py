"""Start the app: Streamlit in this process, bound to loopback unless people sign in.

Secrets of the sign-in are in a private folder while the app runs; no command line shows them.
"""

import ipaddress
import json
import logging
import signal
import socket
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from dashboards import active_settings
from fallow.errors import UsageError
from fallow.settings import Settings

log = logging.getLogger("fallow.dashboard")

APP = Path(__file__).with_name("app.py")
CONFIG = APP.parent / ".streamlit" / "config.toml"
WEB_APP = "dashboards.web_app:app"
LOOPBACK = ["127.0.0.1", "localhost", "[::1]", "::1"]
"""Host names of this machine in a browser: with any other name, another page points here."""


def address(settings: Settings) -> tuple[str, int]:
    """Return host and port to bind.

    Raises:
        UsageError: `dashboard.listen` is no host:port, or not loopback without sign-in.
    """
    listen = settings.dashboard.listen
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or not 0 <= int(port) <= 65535:  # noqa: PLR2004
        raise UsageError(
            f"dashboard.listen {listen!r} is no host:port", hint="write 127.0.0.1:8501"
        )
    if not settings.dashboard.oidc.on and not is_loopback(host):
        raise UsageError(
            f"without a sign-in the dashboard answers on this machine only, not on {host}",
            hint="listen on 127.0.0.1, or set dashboard.oidc (docs/settings.md)",
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        UsageError: see `address`.
    """
    host, port = address(settings)
    from streamlit.web import bootstrap  # noqa: PLC0415  (2 s that a usage error need not pay)

    active_settings.use_settings(settings)
    with _write_secrets(settings) as secrets:
        flags = build_options(settings, host, port, secrets)
        sign_in_text = (
            "people sign in" if settings.dashboard.oidc.on else "no sign-in: this machine only"
        )
        log.info("dashboard", extra={"url": f"http://{host}:{port}", "who": sign_in_text})
        bootstrap.load_config_options(flag_options=flags)
        send_without_delay()
        # uvicorn ends by the signal that stopped it: here that is a normal end, and it leaves the
        # folder of secrets by the usual way.
        signal.signal(signal.SIGTERM, _end)
        bootstrap.run_asgi_app(str(APP), WEB_APP, [], flags)


def send_without_delay() -> None:
    """Let the server that Streamlit binds send small packets at once.

    Streamlit's socket names no protocol, and asyncio turns Nagle's algorithm off only where it is
    TCP's number. The second packet of an answer then waits for the browser's acknowledgement, which
    is delayed: 44 ms for each file and message. Connections inherit the option.
    """
    from streamlit.web.server.starlette import starlette_server  # noqa: PLC0415  (as `serve`)

    bind = starlette_server._bind_socket  # noqa: SLF001  (a test holds that it is there)

    def bind_without_delay(address: str, port: int, backlog: int) -> socket.socket:
        listening = bind(address, port, backlog)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening

    starlette_server._bind_socket = bind_without_delay  # noqa: SLF001


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def build_options(settings: Settings, host: str, port: int, secrets: Path | None) -> dict[str, Any]:
    """Return Streamlit's options by their name on its command line (dots are underscores)."""
    options_found: dict[str, Any] = {
        "server_address": host,
        "server_port": port,
        "server_baseUrlPath": settings.dashboard.base_path,
        "secrets_files": [str(secrets)] if secrets else [],
    }
    options_found = {**_flatten(tomllib.loads(CONFIG.read_text(encoding="utf-8"))), **options_found}
    hosts = settings.dashboard.hosts or ([] if settings.dashboard.oidc.on else LOOPBACK)
    if hosts:
        options_found["server_allowedHosts"] = hosts
    if settings.dashboard.oidc.on:
        options_found["server_cookieSecret"] = (
            settings.dashboard.oidc.cookie_secret.get_secret_value()
        )
    return options_found


def _flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat |= (
            _flatten(value, f"{prefix}{name}_")
            if isinstance(value, dict)
            else {prefix + name: value}
        )
    return flat


@contextmanager
def _write_secrets(settings: Settings) -> Iterator[Path | None]:
    """Write the secrets of `st.login` into a folder of mode 0700, deleted when the app ends."""
    oidc = settings.dashboard.oidc
    if not oidc.on:
        yield None
        return
    auth = {
        "redirect_uri": oidc.redirect_uri,
        "cookie_secret": oidc.cookie_secret.get_secret_value(),
        "client_id": oidc.client_id,
        "client_secret": oidc.client_secret.get_secret_value(),
        "server_metadata_url": oidc.metadata_url,
    }
    # A JSON string is a TOML string as long as it has no \/ or surrogate escapes.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in auth.items()]
    scope = json.dumps(oidc.scope, ensure_ascii=False)
    with tempfile.TemporaryDirectory(prefix="fallow-sign-in-") as folder:
        path = Path(folder) / "secrets.toml"
        path.touch(mode=0o600)
        text = "\n".join(["[auth]", *lines, f"client_kwargs = {{ scope = {scope} }}", ""])
        path.write_text(text, encoding="utf-8")
        yield path
