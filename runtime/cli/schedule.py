"""`fallow schedule`: the reports that are due, sending one now, and what came of those sent."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.cli.frame import Run, command

if TYPE_CHECKING:
    from fallow.report_settings import Schedule
    from fallow.settings import Settings
    from runtime.delivery.book import Book, Delivery

Name = Annotated[str, typer.Argument(metavar="NAME", help="of the schedule")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Reports on a schedule, and where they went.", no_args_is_help=True)
    app.add_typer(group, name="schedule")
    command(group, "list")(listed)
    command(group, "run")(ran)
    command(group, "deliveries")(deliveries)


def listed(run: Run) -> None:
    """List the schedules: what is sent where, when it was due last and is due next."""
    from runtime.scheduling.clock import after  # noqa: PLC0415

    settings, now = run.settings(), run.now()
    last: dict[str, datetime] = {}
    for one in reversed(_sent(settings)):
        last[one.schedule] = one.due
    rows = [
        {
            "name": one.name,
            "report": " ".join(filter(None, (one.audience, one.team))),
            "format": one.format,
            "cron": one.cron,
            "time_zone": one.time_zone,
            "to": ", ".join(one.to),
            "last": last.get(one.name),
            "next": after(one, now),
        }
        for one in settings.reports.schedules
    ]
    if not rows:
        run.say("fallow: no report is scheduled: set reports.schedules in fallow.yaml")
    run.data(rows, noun="schedules")


def ran(
    run: Run,
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
    from fallow.errors import TemporaryError, UsageError  # noqa: PLC0415
    from runtime.delivery.book import Book, path_of  # noqa: PLC0415
    from runtime.delivery.sending import Deliveries  # noqa: PLC0415

    settings, now = run.settings(), run.now()
    schedule = _schedule(settings, name)
    moment = _moment(due) if due else now.replace(microsecond=0)
    with run.warehouse(settings) as warehouse, Book.open(path_of(settings)) as book:
        if due is None:
            book.owe(name, moment, schedule.to, now)
        elif not book.again(name, moment, now):
            raise UsageError(
                f"nothing of {name} failed or is unknown that was due {moment.isoformat()}",
                hint=_those(book, name),
            )
        deliveries = Deliveries(settings, warehouse, book, clock=run.now)
        if not deliveries.turn(only=(name, moment)):
            raise TemporaryError(
                "another process is sending reports", hint="it sends this one too, within a minute"
            )
        rows = book.of(name, moment)
    run.data([_row(one) for one in rows], noun="deliveries")
    return 0 if all(one.state == "sent" for one in rows) else 1


def deliveries(
    run: Run,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="only this schedule")] = None,
) -> None:
    """List what came of reports, the newest first: to whom, how, when, and why not."""
    settings = run.settings()
    rows = [_row(one) for one in _sent(settings) if name in (None, one.schedule)]
    run.data(rows, noun="deliveries")


def _sent(settings: "Settings") -> "list[Delivery]":
    from runtime.delivery.book import Book, path_of  # noqa: PLC0415

    if not path_of(settings).is_file():
        return []
    with Book.open(path_of(settings), write=False) as book:
        return book.latest()


def _schedule(settings: "Settings", name: str) -> "Schedule":
    from fallow.errors import UsageError  # noqa: PLC0415

    for one in settings.reports.schedules:
        if one.name == name:
            return one
    legal = ", ".join(one.name for one in settings.reports.schedules) or "none is defined"
    raise UsageError(f"no schedule is called {name!r}", hint=f"reports.schedules has: {legal}")


def _moment(text: str) -> datetime:
    from fallow.errors import UsageError  # noqa: PLC0415

    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no moment", hint="as `fallow schedule deliveries` prints it"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _those(book: "Book", name: str) -> str:
    there = [d for d in book.latest() if d.schedule == name and d.state in ("failed", "unknown")]
    moments = sorted({one.due.isoformat() for one in there}, reverse=True)
    return f"those that did: {', '.join(moments[:5])}" if moments else "all of them were sent"


def _row(one: "Delivery") -> dict[str, Any]:
    return {
        "schedule": one.schedule,
        "due": one.due,
        "destination": one.destination,
        "state": one.state,
        "at": one.at,
        "tries": one.tries,
        "said": one.said,
    }
