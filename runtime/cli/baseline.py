"""`fallow baseline`: keep what a window cost and what was found, to compare with later."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runtime.cli.frame import Output, Run, command


class Baselines(TyperGroup):
    """`fallow baseline NAME` saves; list, show and compare are words of their own."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Take what is no command of the group as the words of `save`."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["save", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        cls=Baselines, help="Keep what a window cost: fallow baseline NAME saves one."
    )
    app.add_typer(group, name="baseline")
    command(group, "save")(save)
    command(group, "list")(listed)
    command(group, "show")(show)
    command(group, "compare")(compare)


def save(
    run: Run,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="its name [until-DAY]")
    ] = None,
    *,
    window: Annotated[str | None, typer.Option(help="7d, or START/END")] = None,
) -> None:
    """Measure a window (bill by team, model and state; all findings) and keep it unchangeable."""
    from runtime import baselines  # noqa: PLC0415

    settings = run.settings()
    if name is not None:
        baselines.check(settings, name)
    measured = _measured(run, window)
    path = baselines.save(settings, name, measured, run.now())
    run.say(f"stored in {path}, unchangeable")
    _print(run, baselines.read(settings, path.stem))


def listed(run: Run) -> None:
    """List the stored baselines."""
    from runtime import baselines  # noqa: PLC0415

    run.data(baselines.stored(run.settings()), noun="baselines")


def show(run: Run, name: Annotated[str, typer.Argument(metavar="NAME", help="its name")]) -> None:
    """Print a stored baseline."""
    from runtime import baselines  # noqa: PLC0415

    _print(run, baselines.read(run.settings(), name))


def compare(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the baseline")],
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="another one [the window]")
    ] = None,
    *,
    window: Annotated[str | None, typer.Option(help="7d, or START/END")] = None,
) -> None:
    """Show what changed since a baseline, per day: the window now, or another baseline."""
    from runtime import baselines  # noqa: PLC0415

    before = baselines.read(run.settings(), name)
    after = baselines.read(run.settings(), other) if other else _measured(run, window)
    rows = baselines.compared(before, after)
    run.data(rows, noun="changes", before=before["window"], after=after["window"], baseline=name)


def _measured(run: Run, window: str | None) -> dict[str, Any]:
    from runtime import baselines  # noqa: PLC0415

    settings = run.settings()
    with run.warehouse(settings) as warehouse:
        measured = baselines.measure(
            warehouse, settings, window, now=run.now(), cluster=run.options.get("cluster")
        )
    for note in measured.pop("notes"):
        run.say(note)
    return measured


def _print(run: Run, body: dict[str, Any]) -> None:
    from runtime import baselines, showing  # noqa: PLC0415

    told = baselines.priced(body)
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("baseline", {k: v for k, v in told.items() if k != "schema"}))
    elif run.output is Output.csv:
        run.data(told["ledger"], noun="ledger")
    else:
        parts = [("the bill", told["ledger"]), ("what was found", told["findings"])]
        run.text(showing.titled(parts, run.output))
