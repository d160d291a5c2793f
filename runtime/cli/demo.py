"""`fallow demo`: the main job on an embedded synthetic fleet."""

from typing import Annotated

import typer

from runtime.cli.options import CommandRun, Output, command
from runtime.experiments.demo import run_demo
from runtime.rendering.finding_tables import show_progress, show_story


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


def demo(
    run: CommandRun,
    days: Annotated[int, typer.Option(min=1, max=60, help="how much time")] = 7,
    gpus: Annotated[int, typer.Option(min=1, max=2048, help="how many GPUs")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="another fleet")] = 1,
) -> None:
    """Show the waste story of a synthetic fleet: no cluster, no GPU.

    With --home DIR its warehouse is kept there, to ask it more; else nothing is kept.
    """
    home = run.options.get("home")
    with show_progress() as progress:
        story = run_demo(days=days, gpus=gpus, seed=seed, progress=progress, home=home)
    if run.output is Output.table:
        location = "was temporary and is deleted now"
        if home is not None:
            location = f"is kept: fallow explain ID --home {home} --cluster demo"
        run.say(f"fallow demo: an embedded synthetic fleet; its warehouse {location}")
    show_story(story, run.output)
