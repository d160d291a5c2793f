"""`fallow demo`: the main job on an embedded synthetic fleet."""

from typing import Annotated

import typer

from runtime.cli.frame import Output, Run, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


def demo(
    run: Run,
    days: Annotated[int, typer.Option(min=1, max=60, help="how much time")] = 7,
    gpus: Annotated[int, typer.Option(min=1, max=2048, help="how many GPUs")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="another fleet")] = 1,
) -> None:
    """Show the waste story of a synthetic fleet: no cluster, no GPU.

    With --home DIR its warehouse is kept there, to ask it more; else nothing is kept.
    """
    from runtime.demo import play  # noqa: PLC0415  (engine and arrays load in 0.5 s)
    from runtime.showing import show_story, watching  # noqa: PLC0415

    home = run.options.get("home")
    with watching() as progress:
        story = play(days=days, gpus=gpus, seed=seed, progress=progress, home=home)
    if run.output is Output.table:
        kept = "is temporary and now gone"
        if home is not None:
            kept = f"is kept: fallow explain ID --home {home} --cluster demo"
        run.say(f"fallow demo: an embedded synthetic fleet; its warehouse {kept}")
    show_story(story, run.output)
