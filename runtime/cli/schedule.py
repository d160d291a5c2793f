"""`fallow schedule`: the reports that are due, sending one now, and what came of those sent."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fallow.errors import TemporaryError, UsageError
from runtime.cli.options import CommandRun
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from runtime.service.delivery.sender import Deliveries
from runtime.service.scheduling.clock import find_next_due

if TYPE_CHECKING:
    from fallow.settings import Settings
    from fallow.settings.reports import Schedule
    from runtime.service.delivery.outbox import Delivery

Name = Annotated[str, typer.Argument(metavar="NAME", help="of the schedule")]


def list_schedules(run: CommandRun) -> None:
    """List the schedules: what is sent where, when it was due last and is due next."""
    settings, now = run.settings(), run.now()
    last: dict[str, datetime] = {}
    for entry in reversed(_read_deliveries(settings)):
        last[entry.schedule] = entry.due
    rows = [
        {
            "name": entry.name,
            "report": " ".join(filter(None, (entry.audience, entry.team))),
            "format": entry.format,
            "cron": entry.cron,
            "time_zone": entry.time_zone,
            "to": ", ".join(entry.to),
            "last": last.get(entry.name),
            "next": find_next_due(entry, now),
        }
        for entry in settings.reports.schedules
    ]
    if not rows:
        run.say("fallow: no report is scheduled: set reports.schedules in fallow.yaml")
    run.data(rows, noun="schedules")


def run_schedule(
    run: CommandRun,
    name: Name,
    due: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="send again what failed or is unknown of this one"),
    ] = None,
) -> int:
    """Make a schedule's report as of now and send it; 1 when a destination did not get it.

    What a destination has is never sent to it again: with --due only those that failed, or of which
    nobody knows, are tried once more.
    """
    settings, now = run.settings(), run.now()
    schedule = _find_schedule(settings, name)
    due_at = _parse_due(due) if due else now.replace(microsecond=0)
    with run.warehouse(settings) as warehouse, Outbox.open(get_outbox_path(settings)) as outbox:
        if due is None:
            outbox.owe(name, due_at, schedule.to, now)
        elif not outbox.again(name, due_at, now):
            raise UsageError(
                f"nothing of {name} failed or is unknown that was due {due_at.isoformat()}",
                hint=_name_retryable(outbox, name),
            )
        deliveries = Deliveries(settings, warehouse, outbox, clock=run.now)
        if not deliveries.turn(only=(name, due_at)):
            raise TemporaryError(
                "another process is sending reports", hint="it sends this one too, within a minute"
            )
        rows = outbox.of(name, due_at)
    run.data([_build_row(delivery) for delivery in rows], noun="deliveries")
    return 0 if all(delivery.state == "sent" for delivery in rows) else 1


def list_deliveries(
    run: CommandRun,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="only this schedule")] = None,
) -> None:
    """List what came of reports, the newest first: to whom, how, when, and why not."""
    settings = run.settings()
    rows = [
        _build_row(delivery)
        for delivery in _read_deliveries(settings)
        if name in (None, delivery.schedule)
    ]
    run.data(rows, noun="deliveries")


def _read_deliveries(settings: "Settings") -> "list[Delivery]":
    if not get_outbox_path(settings).is_file():
        return []
    with Outbox.open(get_outbox_path(settings), write=False) as outbox:
        return outbox.latest()


def _find_schedule(settings: "Settings", name: str) -> "Schedule":
    for schedule in settings.reports.schedules:
        if schedule.name == name:
            return schedule
    legal = ", ".join(schedule.name for schedule in settings.reports.schedules) or "none is defined"
    raise UsageError(f"no schedule is called {name!r}", hint=f"reports.schedules has: {legal}")


def _parse_due(text: str) -> datetime:
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no time", hint="as `fallow schedule deliveries` prints it"
        ) from error
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def _name_retryable(outbox: "Outbox", name: str) -> str:
    retryable = [
        d for d in outbox.latest() if d.schedule == name and d.state in ("failed", "unknown")
    ]
    due_times = sorted({delivery.due.isoformat() for delivery in retryable}, reverse=True)
    return f"those that did: {', '.join(due_times[:5])}" if due_times else "all of them were sent"


def _build_row(delivery: "Delivery") -> dict[str, Any]:
    return {
        "schedule": delivery.schedule,
        "due": delivery.due,
        "destination": delivery.destination,
        "state": delivery.state,
        "at": delivery.at,
        "tries": delivery.tries,
        "message": delivery.message,
    }
