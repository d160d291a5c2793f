"""`fallow incidents`: failures of workloads and devices, with their causes and one step each."""

from typing import Annotated

import typer

from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output, command
from runtime.operations import incidents, windows


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "incidents")(list_incidents)


def list_incidents(
    run: CommandRun,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
) -> None:
    """List failures of workloads and devices: ranked causes, evidence, lost work, and one step.

    Reads only: no step is taken. What is not certain is `hold`.
    """
    cluster = run.options.get("cluster")
    with run.warehouse(run.settings()) as warehouse:
        chosen, note = windows.choose(
            warehouse, windows.end_window(window, until, run.now()), run.now(), cluster
        )
        records = incidents.list_incidents(warehouse, chosen, cluster)
    if run.output is Output.json:
        rows = [incidents.describe_incident(incident) for incident in records]
        run.data(rows, noun="incidents", window=chosen, notes=[incidents.NOTE])
        return
    run.data([incidents.build_incident_row(incident) for incident in records], noun="incidents")
    run.say(f"{note}: {len(records)} incident{'s' * (len(records) != 1)}")
    run.say(incidents.NOTE)
