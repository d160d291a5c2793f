"""`fallow spend`: where every GPU-hour and dollar went."""

from typing import Annotated

import typer

from fallow.errors import UsageError
from runtime.cli.options import TEAM, UNTIL, WINDOW, CommandRun, Output
from runtime.operations.accounting import ledger_totals, windows
from runtime.operations.answers import documents

BY = ("cluster", "namespace", "team", "workload", "model", "pool", "node", "state")
VIEWS = ("loaded", "gpu")


def complete_by(incomplete: str) -> list[str]:
    """Return the lists of `--by` that the shell offers after what is typed."""
    *chosen, word = incomplete.split(",")
    start = "".join(f"{name}," for name in chosen)
    return [f"{start}{name}" for name in BY if name.startswith(word) and name not in chosen]


def spend(
    run: CommandRun,
    *,
    by: Annotated[
        str,
        typer.Option(help=f"comma-separated: {', '.join(BY)}", autocompletion=complete_by),
    ] = "team",
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
    team: Annotated[str | None, typer.Option(help=TEAM)] = None,
    view: Annotated[str, typer.Option(help="loaded: the whole node's price; gpu: its GPUs'")] = (
        "loaded"
    ),
    share_unallocated: Annotated[
        bool,
        typer.Option("--share-unallocated", help="spread what is not allocated over its users"),
    ] = False,
) -> None:
    """Show GPU-hours and dollars, adding up to capacity and bill."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    wrong = [name for name in names if name not in BY]
    if wrong or not names:
        raise UsageError(f"--by {', '.join(wrong) or by!r} is none of: {', '.join(BY)}")
    if view not in VIEWS:
        raise UsageError(f"--view {view!r} is none of: {', '.join(VIEWS)}")
    settings = run.settings()
    with run.warehouse(settings) as warehouse:
        table = ledger_totals.read_total_spend(
            warehouse,
            windows.end_window(window, until, run.now()),
            now=run.now(),
            cluster=run.options.get("cluster"),
            by=names,
            view=view,
            share_unallocated=share_unallocated,
            team=team,
        )
    for line in table.notes:
        run.say(line)
    rows = table.rows
    if run.output in (Output.table, Output.md) and rows:
        mark = {names[0]: "total, in part"} if table.coverage.behind else {}
        rows = [*rows, {**table.total, **mark}]
    run.data(
        rows,
        noun="spend",
        **documents.describe_spend(table, view),
    )
