"""`fallow baseline`: keep what a window cost and what was found, to compare with later."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runtime.cli.options import CommandRun, Output
from runtime.operations.accounting import baselines
from runtime.rendering import finding_tables
from runtime.rendering.tables import document


class Baselines(TyperGroup):
    """`fallow baseline NAME` saves; list, show and compare are subcommands."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Pass words that name no subcommand to `save`."""
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["save", *args]
        return super().parse_args(ctx, args)


def save(
    run: CommandRun,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="its name [until-DAY]")
    ] = None,
    *,
    window: Annotated[str | None, typer.Option(help="7d, or START/END")] = None,
) -> None:
    """Measure a window (bill by team, model and state; all findings) and keep it unchangeable."""
    settings = run.settings()
    if name is not None:
        baselines.check_name(settings, name)
    measured = _measure(run, window)
    path = baselines.save(settings, name, measured, run.now())
    run.say(f"stored in {path}, unchangeable")
    _print(run, baselines.read(settings, path.stem))


def list_stored(run: CommandRun) -> None:
    """List the stored baselines."""
    run.data(baselines.list_baselines(run.settings()), noun="baselines")


def show(
    run: CommandRun, name: Annotated[str, typer.Argument(metavar="NAME", help="its name")]
) -> None:
    """Print a stored baseline."""
    _print(run, baselines.read(run.settings(), name))


def compare(
    run: CommandRun,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the baseline")],
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="another one [the window]")
    ] = None,
    *,
    window: Annotated[str | None, typer.Option(help="7d, or START/END")] = None,
) -> None:
    """Show what changed since a baseline, per day: the window now, or another baseline."""
    before = baselines.read(run.settings(), name)
    after = baselines.read(run.settings(), other) if other else _measure(run, window)
    rows = baselines.compare(before, after)
    run.data(rows, noun="changes", before=before["window"], after=after["window"], baseline=name)


def _measure(run: CommandRun, window: str | None) -> dict[str, Any]:
    settings = run.settings()
    with run.warehouse(settings) as warehouse:
        measured = baselines.measure(
            warehouse, settings, window, now=run.now(), cluster=run.options.get("cluster")
        )
    for note in measured.pop("notes"):
        run.say(note)
    return measured


def _print(run: CommandRun, body: dict[str, Any]) -> None:
    baseline = baselines.decode_usd(body)
    if run.output is Output.json:
        run.text(document("baseline", {k: v for k, v in baseline.items() if k != "schema"}))
    elif run.output is Output.csv:
        run.data(baseline["ledger"], noun="ledger")
    else:
        parts = [("the bill", baseline["ledger"]), ("what was found", baseline["findings"])]
        run.text(finding_tables.render_tables(parts, run.output))
