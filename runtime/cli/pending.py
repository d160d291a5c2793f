"""`fallow why-pending`: where a workload that waits for GPUs would fit."""

from typing import Annotated

import typer

from runtime.cli.options import CommandRun, Output, command
from runtime.operations import pending


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "why-pending")(why_pending)


def why_pending(
    run: CommandRun,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind/namespace/name, or a part of it")
    ],
) -> None:
    """Say which cluster, pool or zone has room for a workload that waits for GPUs.

    Reads only: nothing is moved.
    """
    with run.warehouse(run.settings()) as warehouse:
        answer, at = pending.explain_why_pending(
            warehouse, workload, at=run.now(), cluster=run.options.get("cluster")
        )
    described, rows = pending.describe_pending(answer, at), pending.build_place_rows(answer)
    if run.output is Output.json:
        run.data(rows, noun="why_pending", **described)
        return
    run.data(rows, noun="why_pending")
    pods = f"{answer.pods} pod{'s' * (answer.pods != 1)} of {answer.gpus:g} GPUs"
    words = answer.answer.replace("_", " ")
    run.say(f"{described['workload']} ({pods}) waits since {answer.since:%Y-%m-%d %H:%M} UTC")
    run.say(f"{words}{f': {answer.why}' if answer.why else ''}")
    run.say(pending.NOTE)
