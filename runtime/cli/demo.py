"""`fallow demo`: the main job on an embedded synthetic fleet."""

import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import typer

from dashboards.serving import address
from fallow.errors import UsageError
from fallow.settings import Settings, load
from runtime.cli.dashboard import require_dashboards, serve_pages
from runtime.cli.options import CommandRun, Output, command
from runtime.experiments.demo import run_demo
from runtime.experiments.demo_home import check_demo_home, list_commands, locate_demo_home
from runtime.rendering.finding_tables import Progress, show_progress, show_story


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


def demo(
    run: CommandRun,
    *,
    days: Annotated[int, typer.Option(min=1, max=60, help="how much time")] = 7,
    gpus: Annotated[int, typer.Option(min=1, max=2048, help="how many GPUs")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="another fleet")] = 1,
    end: Annotated[
        str | None, typer.Option(metavar="DATE", help="its last midnight, UTC [the newest]")
    ] = None,
    open_pages: Annotated[
        bool, typer.Option("--open", help="then serve the pages, and open them in the browser")
    ] = False,
) -> None:
    """Show the waste story of a synthetic fleet: no cluster, no GPU.

    Its warehouse is kept in a folder of its own, which the next demo replaces: fallow-demo beside
    the default home, or --home DIR. One seed and one end give the same bytes.
    """
    if open_pages:
        require_dashboards()
    midnight = _read_end(end, run.now())
    home = run.options.get("home") or locate_demo_home()
    if run.options.get("home") is not None:
        own_run = CommandRun({**run.options, "home": None})
        check_demo_home(home, own_run.settings().home)
    else:
        check_demo_home(home, home.with_name("fallow"))
    with show_progress() as progress:
        steps = StepTimes(progress)
        story = run_demo(
            days=days, gpus=gpus, seed=seed, progress=steps.start, home=home, end=midnight
        )
        steps.end()
    show_story(story, run.output)
    if run.output is Output.table:
        finding = story.wastes[0].finding if story.wastes else None
        run.say(f"\n{steps.format()}")
        run.say(f"This fleet is simulated; its warehouse is {home.absolute()}. Go on with:")
        for line in list_commands(home, finding):
            run.say(f"  {line}")
    if open_pages:
        listen = choose_listen(load(flags={"home": home}).settings)
        pages = load(flags={"home": home, "dashboard.listen": listen}).settings
        serve_pages(run, pages, browser=True)


class StepTimes:
    """Measures the steps that progress names: each lasts until another one starts."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._step, self._since_s = "", time.monotonic()

    def start(self, step: str, part: float) -> None:
        """Show a step, which goes on or starts now."""
        self._progress(step, part)
        self.end()
        self._step = step

    def end(self) -> None:
        """End the current step, if there is one."""
        now_s = time.monotonic()
        if self._step:
            self._seconds[self._step] = self._seconds.get(self._step, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def format(self) -> str:
        """Return what took how long."""
        parts = [f"{step} {seconds:.1f} s" for step, seconds in self._seconds.items()]
        return f"{sum(self._seconds.values()):.1f} s: {', '.join(parts)}."


def choose_listen(settings: Settings) -> str:
    """Return where the pages answer: as set, or at a free port where another server has that."""
    host, port = address(settings)
    for each in (port, 0):
        with suppress(OSError), socket.create_server((host, each)) as server:
            return f"{host}:{server.getsockname()[1]}"
    return settings.dashboard.listen


def _read_end(text: str | None, now: datetime) -> datetime:
    """Return the midnight at which the demo's time ends: the newest, or that of a date.

    Raises:
        UsageError: no date, or one that is not over.
    """
    newest = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text is None:
        return newest
    try:
        end = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(f"--end {text} is no date", hint=f"such as {newest:%Y-%m-%d}") from None
    if end > newest:
        raise UsageError(f"--end {text} is not over yet", hint=f"the newest is {newest:%Y-%m-%d}")
    return end
