"""`fallow what-if`: the site's own past, replayed with another policy, quota, pool or priority."""

from pathlib import Path
from typing import Annotated

import typer

from capacity.replay import answer
from capacity.replay.changes import parse_changes
from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output
from runtime.operations.accounting import windows
from runtime.operations.acting.policy_replays import list_policy_stops


def what_if(
    run: CommandRun,
    *,
    quota: Annotated[
        list[str] | None, typer.Option(help="TEAM=GPUs or QUEUE=GPUs, repeatable")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="MODEL=GPUs: all nodes of the model, repeatable")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="stops of its back-test free their GPUs")
    ] = None,
    priority: Annotated[list[str] | None, typer.Option(help="TEAM=N, repeatable")] = None,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
) -> None:
    """Replay the past with another policy, quota, pool or priority.

    Reads only. First the past as it was is replayed: where it misses the record by more than 10 %,
    the answer is not to be trusted and says which figures missed.
    """
    cluster, settings = run.options.get("cluster"), run.settings()
    if policy is None:
        parse_changes(quota or (), pool or (), priority or ())  # bad input needs no warehouse
    with run.warehouse(settings) as warehouse:
        chosen, note = windows.choose(
            warehouse,
            windows.end_window(window, until, run.now()),
            run.now(),
            cluster,
            inventory=True,
        )
        stops = None
        if policy is not None:
            stops = list_policy_stops(
                warehouse, settings, policy, chosen, now=run.now(), cluster=cluster
            )
        changes = parse_changes(quota or (), pool or (), priority or (), stops)
        result = answer.answer_what_if(warehouse, chosen, changes, cluster)
    rows = answer.build_team_rows(result)
    if run.output is Output.json:
        run.data(rows, noun="what-if", **answer.describe_what_if(result))
        return
    run.say(f"{result.calibration.trust}: {result.calibration.why}")
    is_table = run.output in {Output.table, Output.md}
    run.data(list(map(answer.write_durations, rows)) if is_table else rows, noun="what-if")
    run.say(f"{note}; scheduler: {result.scheduler}")
    run.say(answer.describe_difference(result))
    run.say(answer.describe_dollars(result.dollars))
    for line in result.notes:
        run.say(line)
