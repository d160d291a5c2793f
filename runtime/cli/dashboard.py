"""`fallow dashboard`: the pages, in a browser."""

import importlib.util
import socket
import threading
import time
import webbrowser
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dashboards import what_if_runs
from dashboards.figures import queues
from dashboards.serving import address, serve
from fallow.errors import UsageError
from runtime.cli.options import CommandRun
from runtime.operations.analysis.pending import build_reader
from runtime.operations.answers.what_if_beside import answer_beside
from runtime.service.process_end import end_process
from runtime.service.uncaught import log_uncaught

if TYPE_CHECKING:
    from fallow.settings import Settings

MOST_PLANNING_S = 1.0
"""How long the page Queues plans moves for who waits; then `fallow why-pending` does."""
WAIT_S, POLL_S = 60.0, 0.2
"""How long a browser waits for pages that start, and how often it tries."""


def dashboard(
    run: CommandRun,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="where pages answer; loopback without a sign-in"),
    ] = None,
) -> None:
    """Show the pages in a browser, until Ctrl-C.

    `fallow up` starts it beside the service. It only reads; what people approve goes to the service
    with their name.
    """
    log_uncaught()
    serve_pages(run, run.settings(dashboard__listen=listen))


def serve_pages(run: CommandRun, settings: "Settings", *, browser: bool = False) -> None:
    """Serve the pages until Ctrl-C or SIGTERM; with `browser`, open them there once they answer."""
    host, port = address(settings)
    require_dashboards()
    host_text = f"[{host}]" if ":" in host else host
    url = f"http://{host_text}:{port}{_get_path(settings.dashboard.base_path)}"
    run.say(f"Fallow's dashboard: {url}")
    if browser:
        threading.Thread(target=_open_browser, args=(host, port, url), daemon=True).start()
    if not settings.dashboard.oidc.on:
        run.say("No sign-in is configured, so it answers on this machine only (dashboard.oidc).")
    what_if_runs.use_answerer(answer_beside)
    queues.use_reader(partial(build_reader, settings=settings, most_seconds=MOST_PLANNING_S))
    try:
        serve(settings)
    except (SystemExit, KeyboardInterrupt):  # SIGTERM, Ctrl-C; a page may be amid its query
        run.say("The pages are stopped.")
        end_process()


def require_dashboards() -> None:
    """Check that the pages are installed.

    Raises:
        UsageError: they are not.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise UsageError(
            "the dashboard is not installed", hint="install fallow[dashboards]: it brings Streamlit"
        )


def _open_browser(host: str, port: int, url: str) -> None:
    """Open a URL in the browser once its server accepts connections."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            webbrowser.open(url)
            return
        time.sleep(POLL_S)


def _get_path(base: str) -> str:
    return f"/{base.strip('/')}" if base.strip("/") else ""
