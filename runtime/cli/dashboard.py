"""`fallow dashboard`: the pages, in a browser."""

import importlib.util
from typing import Annotated

import typer

from dashboards.serving import address, serve
from fallow.errors import UsageError
from runtime.cli.options import CommandRun, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "dashboard")(dashboard)


def dashboard(
    run: CommandRun,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="where pages answer; loopback without a sign-in"),
    ] = None,
) -> None:
    """Show spend, waste, findings and actions in a browser, until told to stop.

    `fallow up` starts it beside the service. It only reads; what people approve goes to the service
    with their name.
    """
    settings = run.settings(dashboard__listen=listen)
    host, port = address(settings)
    if importlib.util.find_spec("streamlit") is None:
        raise UsageError(
            "the dashboard is not installed", hint="install fallow[dashboards]: it brings Streamlit"
        )
    host_text = f"[{host}]" if ":" in host else host
    run.say(f"Fallow's dashboard: http://{host_text}:{port}{_path(settings.dashboard.base_path)}")
    if not settings.dashboard.oidc.on:
        run.say("No sign-in is configured, so it answers on this machine only (dashboard.oidc).")
    serve(settings)


def _path(base: str) -> str:
    return f"/{base.strip('/')}" if base.strip("/") else ""
