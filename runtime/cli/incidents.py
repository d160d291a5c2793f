"""`fallow incidents`: failures of workloads and devices, with their causes and one step each."""

from typing import Annotated

import typer

from analyzers.reliability.incidents.recovery import DIMENSIONS
from fallow.window import parse_timestamp
from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output, command
from runtime.operations import incidents, windows

BY = "how often incidents come and what they cost, by this"
SPLIT = "time at which the trend before and after is compared [the middle of the window]"


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "incidents")(list_incidents)


def list_incidents(
    run: CommandRun,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
    by: Annotated[str | None, typer.Option(help=BY, metavar="|".join(DIMENSIONS))] = None,
    split: Annotated[str | None, typer.Option(help=SPLIT)] = None,
) -> None:
    """List failures of workloads and devices: ranked causes, evidence, lost work, and one step.

    Reads only: no step is taken. What is not certain is `hold`. With --by: how often they come and
    what they cost.
    """
    cluster = run.options.get("cluster")
    dimension = incidents.check_dimension(by) if by else None
    at = parse_timestamp(split, now=run.now()) if split else None
    with run.warehouse(run.settings()) as warehouse:
        chosen, note = windows.choose(
            warehouse, windows.end_window(window, until, run.now()), run.now(), cluster
        )
        records = incidents.list_incidents(warehouse, chosen, cluster)
        share, costs = incidents.read_costs(warehouse, chosen, records)
        groups = incidents.group_by(warehouse, chosen, records, dimension, at) if dimension else []
    rows = [incidents.build_group_row(g, dimension) for g in groups] if dimension else []
    if run.output is Output.json:
        more = {"by": dimension, "groups": rows} if dimension else {}
        notes = [incidents.NOTE, *(incidents.GROUP_NOTES if dimension else ())]
        listed = [incidents.describe_incident(incident, costs[incident.id]) for incident in records]
        run.data(listed, noun="incidents", window=chosen, recovery=share, notes=notes, **more)
        return
    if dimension:
        run.data(rows, noun="incident_groups")
        run.say(incidents.describe_share(share))
        return
    listed = [incidents.build_incident_row(i, costs[i.id]) for i in records]
    run.data(listed, noun="incidents")
    run.say(f"{note}: {len(records)} incident{'s' * (len(records) != 1)}")
    run.say(incidents.describe_share(share))
    run.say(incidents.NOTE)
