"""`fallow incidents`: failures of workloads and devices, with their causes and one step each."""

from typing import Annotated

import typer

from analyzers.reliability.incidents.records import UNKNOWN
from analyzers.reliability.incidents.recovery import DIMENSIONS
from fallow.errors import UsageError
from fallow.window import parse_timestamp
from runtime.cli.options import UNTIL, WINDOW, CommandRun, Output
from runtime.operations.accounting import windows
from runtime.operations.analysis import incidents

BY = "how often incidents come and what they cost, by this"
SPLIT = "time at which the trend before and after is compared [the middle of the window]"


def list_incidents(  # noqa: PLR0917  (options)
    run: CommandRun,
    incident: Annotated[
        str | None, typer.Argument(metavar="ID", help="one incident, with its signs")
    ] = None,
    window: Annotated[str | None, typer.Option(help=WINDOW)] = None,
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
    by: Annotated[str | None, typer.Option(help=BY, metavar="|".join(DIMENSIONS))] = None,
    split: Annotated[str | None, typer.Option(help=SPLIT)] = None,
) -> None:
    """List failures: ranked causes, evidence, lost work, one step.

    Reads only: no step is taken. What is not certain is `hold`. With ID: what it is and its signs,
    the oldest first. With --by: how often they come and what they cost.
    """
    if incident and by:
        raise UsageError("--by is about all incidents, not one", hint=f"fallow incidents --by {by}")
    at = parse_timestamp(split, now=run.now()) if split else None
    with run.warehouse(run.settings()) as warehouse:
        report = incidents.read_report(
            warehouse,
            windows.end_window(window, until, run.now()),
            now=run.now(),
            cluster=run.options.get("cluster"),
            by=by,
            split=at,
            only=incident,
        )
    if run.output is Output.json:
        document = report.document
        run.data(document.pop("incidents"), noun="incidents", **document)
        return
    if incident:
        _show_incident(run, report)
        return
    if report.by:
        run.data(report.groups, noun="incident_groups")
    else:
        named = [row for row in report.rows if row["cause"] != UNKNOWN]
        unknown = len(report.rows) - len(named)
        is_folded = run.output is Output.table and named and unknown
        run.data(named if is_folded else report.rows, noun="incidents")
        count = len(report.incidents)
        run.say(f"{report.note}: {count} incident{'s' * (count != 1)}")
        if is_folded:
            run.say(f"{unknown} of unknown cause are not listed here: -o csv lists them too")
        for command_line in report.owner_commands:
            run.say(f"failed for good; its owner deletes it and creates it again: {command_line}")
        if report.sick:
            nodes = ", ".join(f"{sick.node} ({sick.cluster})" for sick in report.sick)
            run.say(f"sick nodes, by stored findings and incidents: {len(report.sick)}: {nodes}")
    run.say(incidents.describe_share(report.share))
    run.say(incidents.NOTE)


def _show_incident(run: CommandRun, report: incidents.IncidentReport) -> None:
    """Print one incident as lines, and its signs as a table."""
    (record,) = report.incidents
    described = incidents.describe_incident(record, report.costs[record.id])
    if run.output is Output.table:
        run.text("\n".join([*incidents.describe_fields(described), ""]))
    signs = sorted(described["evidence"], key=lambda sign: sign.at)
    run.data([{"at": s.at, "signal": s.signal, "what": s.text} for s in signs], noun="signs")
    for command_line in report.owner_commands:
        run.say(f"failed for good; its owner deletes it and creates it again: {command_line}")
