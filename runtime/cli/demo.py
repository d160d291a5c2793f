"""`fallow demo`: the main job on an embedded synthetic fleet."""

import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from dashboards.serving import address
from fallow.demo_marker import has_demo_cluster, is_demo_home
from fallow.errors import UsageError
from fallow.settings import Settings, load
from fallow.window import parse_duration
from runtime.cli.dashboard import require_dashboards, serve_pages
from runtime.cli.options import CommandRun, Output
from runtime.experiments.demo import run_demo
from runtime.experiments.demo_home import (
    check_demo_home,
    list_acting_commands,
    list_commands,
    locate_demo_home,
)
from runtime.experiments.demo_turns import LONGEST, continue_demo
from runtime.rendering import action_tables
from runtime.rendering.finding_tables import Progress, show_progress, show_story

DAYS, GPUS, SEED = 7, 128, 1


def demo(
    run: CommandRun,
    *,
    days: Annotated[int, typer.Option(min=1, max=60, help="how much time")] = DAYS,
    gpus: Annotated[int, typer.Option(min=1, max=2048, help="how many GPUs")] = GPUS,
    seed: Annotated[int, typer.Option(min=0, help="another fleet")] = SEED,
    end: Annotated[
        str | None, typer.Option(metavar="DATE", help="its last midnight, UTC [the newest]")
    ] = None,
    open_pages: Annotated[
        bool, typer.Option("--open", help="then serve the pages, and open them in the browser")
    ] = False,
    more: Annotated[
        str | None,
        typer.Option(
            "--continue", metavar="DURATION", help="let the kept fleet live on, such as 2h"
        ),
    ] = None,
) -> None:
    """Show the waste story of a synthetic fleet: no cluster, no GPU.

    Its warehouse and its cluster are kept in a folder of their own, which the next demo replaces:
    fallow-demo beside the default home, or --home DIR. One seed and one end give the same bytes.
    With --continue, time passes in the cluster `demo`: samples are stored, and the policies of the
    home notify, wait and act on what people approved. `demo-west` and `demo-east` stand still.
    """
    if open_pages:
        require_dashboards()
    if more is not None:
        if (days, gpus, seed, end) != (DAYS, GPUS, SEED, None):
            raise UsageError(
                "--continue goes on with the fleet that is kept",
                hint="leave --days, --gpus, --seed and --end out",
            )
        _continue_demo(run, more)
        return
    midnight = _read_end(end, run.now())
    home = run.options.get("home") or locate_demo_home()
    if run.options.get("home") is not None:
        check_demo_home(home, _find_own_home(run))
    else:
        check_demo_home(home, home.with_name("fallow"))
    with show_progress() as progress:
        steps = StepTimes(progress)
        story = run_demo(
            days=days,
            gpus=gpus,
            seed=seed,
            progress=steps.start,
            home=home,
            end=midnight,
            has_history=True,
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


def _continue_demo(run: CommandRun, text: str) -> None:
    """Let time pass in the cluster of a demo's home, and show what the actor did."""
    length = _read_length(text)
    home = _find_demo_home(run)
    settings = run.settings(home=home)
    with show_progress() as progress:
        steps = StepTimes(progress)
        reports = continue_demo(settings, length, steps.start)
        steps.end()
    run.data(action_tables.build_turn_rows(reports), noun="steps")
    run.say(steps.format())
    run.say(
        f"The fleet's time is {run.now():%Y-%m-%d %H:%M} UTC. Findings that its policies act on "
        "are of that time; `fallow analyze` renews the others. Go on with:"
    )
    for line in list_acting_commands(home):
        run.say(f"  {line}")


def _find_own_home(run: CommandRun) -> Path:
    """Return the user's own home; FALLOW_HOME may name the demo's, for the commands after it."""
    environ = {name: value for name, value in os.environ.items() if name != "FALLOW_HOME"}
    return load(file=run.options.get("config"), environ=environ).settings.home


def _find_demo_home(run: CommandRun) -> Path:
    """Return the demo's home in force: by --home, else by FALLOW_HOME, else the default one.

    Raises:
        UsageError: it has no cluster that can go on.
    """
    homes = [run.options.get("home"), os.environ.get("FALLOW_HOME"), locate_demo_home()]
    demo_homes = [Path(home) for home in homes[:2] if home and is_demo_home(Path(home))]
    home = Path(homes[0]) if homes[0] else (demo_homes or [locate_demo_home()])[0]
    if not has_demo_cluster(home):
        own = f"fallow demo --home {quote(str(home))}"
        raise UsageError(
            f"there is no demo in {home} whose fleet can go on",
            hint="fallow demo" if home == locate_demo_home() else own,
        )
    return home


def _read_length(text: str) -> timedelta:
    """Return for how long the fleet lives on.

    Raises:
        UsageError: it is no duration, too long, or not of whole hours.
    """
    length = parse_duration(text)
    if length > LONGEST or length % timedelta(hours=1):
        raise UsageError(f"the fleet cannot go on for {text}", hint="legal: 1h to 24h, whole hours")
    return length


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
