"""`fallow what-if`: the site's own past, replayed with other quotas, pools or priorities."""

from typing import Annotated

import typer

from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output, command
from runtime.operations import windows
from runtime.operations.what_if import answer
from runtime.operations.what_if.changes import parse_changes


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "what-if")(what_if)


def what_if(
    run: CommandRun,
    *,
    quota: Annotated[
        list[str] | None, typer.Option(help="TEAM=GPUs or QUEUE=GPUs, repeatable")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="MODEL=GPUs: all nodes of the model, repeatable")
    ] = None,
    priority: Annotated[list[str] | None, typer.Option(help="TEAM=N, repeatable")] = None,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
) -> None:
    """Replay the site's own past with another quota, node pool or priority: before and after.

    Reads only. First the past as it was is replayed: where it misses the record by more than 10 %,
    the answer is not to be trusted and says which figures missed.
    """
    changes = parse_changes(quota or (), pool or (), priority or ())
    cluster = run.options.get("cluster")
    with run.warehouse(run.settings()) as warehouse:
        chosen, note = windows.choose(
            warehouse,
            windows.end_window(window, until, run.now()),
            run.now(),
            cluster,
            inventory=True,
        )
        result = answer.answer_what_if(warehouse, chosen, changes, cluster)
    rows = answer.build_team_rows(result)
    if run.output is Output.json:
        run.data(rows, noun="what-if", **answer.describe_what_if(result))
        return
    run.data(rows, noun="what-if")
    run.say(f"{note}; scheduler: {result.scheduler}")
    run.say(answer.describe_difference(result))
    run.say(answer.describe_dollars(result.dollars))
    run.say(f"{result.calibration.trust}: {result.calibration.why}")
    for line in result.notes:
        run.say(line)
