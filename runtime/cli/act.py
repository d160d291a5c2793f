"""`fallow apply`, `undo`, `approve`, `keep`, `freeze`, `thaw` and `actions`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.cli.frame import Output, Run, command

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from actions.cluster.door import Door
    from actions.journal import Record
    from actions.loop.actor import Actor
    from actions.loop.seams import TurnReport
    from fallow.settings import Settings

REFUSED, TEMPORARY = 3, 75
Yes = Annotated[bool, typer.Option("--yes", help="act; without it nothing is written")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="who acts [the system user]")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "apply")(apply)
    command(app, "undo")(undo)
    command(app, "approve")(approve)
    command(app, "keep")(keep)
    command(app, "freeze")(freeze)
    command(app, "thaw")(thaw)
    command(app, "actions")(actions)


def apply(
    run: Run,
    findings: Annotated[
        list[str] | None, typer.Argument(metavar="[FINDING]...", help="only these [all]")
    ] = None,
    *,
    yes: Yes = False,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FILE", help="files or folders [actions.policies]"),
    ] = None,
    wait: Annotated[
        str | None, typer.Option(help="stay until it is known what came of it, such as 5m")
    ] = None,
) -> int:
    """Take the next steps of all policies, once. A dry run unless --yes.

    A dry run asks the cluster whether it would take each write, and writes nothing.
    """
    from runtime import acting, planned  # noqa: PLC0415

    settings = run.settings()
    rules = planned.policies(settings, _paths(policies))
    door = acting.door(settings)
    with run.warehouse(settings, write=yes) as warehouse:
        refresh = acting.refresher(warehouse, settings) if yes else _no_refresh
        reread = acting.rereader(warehouse, settings)
        evidence = acting.LiveEvidence(warehouse, settings, refresh, run.now, reread)
        with _record(run, settings, write=yes) as record:
            actor = acting.actor(
                settings, record, evidence, door=door, policies=rules, clock=run.now
            )
            if yes:
                _lease(run, actor)
            report = actor.turn(dry_run=not yes, only=findings or ())
            if yes:
                if wait:
                    _settle(run, actor, wait)
                actor.lease.give_up()
                _copied(warehouse, settings, record)
    _show(run, report)
    return _code(report)


def undo(
    run: Run,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="its id, or how it begins")],
    *,
    by: By = None,
) -> None:
    """Give back what an action took: exactly, once, and only if nobody changed it since."""
    from runtime import acting  # noqa: PLC0415

    settings = run.settings()
    with _record(run, settings, write=True, by=by, needed=True) as record:
        actor = acting.actor(
            settings,
            record,
            acting.NoCluster(),
            door=acting.door(settings),
            policies=(),
            clock=run.now,
        )
        outcome = actor.undo(action, record.journal.actor)
    run.say(f"action {outcome.action} is undone")


def approve(
    run: Run,
    request: Annotated[str, typer.Argument(metavar="ID", help="as `fallow actions` lists it")],
    *,
    by: By = None,
) -> None:
    """Agree to an action that waits for approval. Whoever asked for it cannot."""
    from actions.loop.actor import approve as agree  # noqa: PLC0415

    settings = run.settings()
    with _record(run, settings, write=True, by=by, needed=True) as record:
        found = agree(record, request, record.journal.actor)
        run.say(f"{found} is approved by {record.journal.actor}; the next turn may act on it")


def keep(
    run: Run,
    workload: Annotated[str, typer.Argument(metavar="KIND/NAMESPACE/NAME", help="what to keep")],
    duration: Annotated[str, typer.Argument(metavar="[DURATION]", help="for how long")] = "24h",
    *,
    by: By = None,
) -> None:
    """Keep a workload from being stopped for a while: an annotation, written as yourself."""
    from fallow.window import parse_duration  # noqa: PLC0415
    from runtime import acting  # noqa: PLC0415

    settings = run.settings()
    until = run.now() + parse_duration(duration)
    door = acting.door(settings)
    with _record(run, settings, write=True, by=by) as record:
        said = acting.keep(settings, record, door, workload, until)
    run.say(f"{workload} is kept until {said}")


def freeze(
    run: Run,
    why: Annotated[str, typer.Argument(metavar="[WHY]", help="for the journal")] = "by command",
    *,
    by: By = None,
) -> int:
    """Stop everything that acts, within one turn: the kill switch."""
    from actions.journal import Record  # noqa: PLC0415
    from fallow.errors import FallowError  # noqa: PLC0415
    from runtime import acting  # noqa: PLC0415

    settings = run.settings()
    failed: list[str] = []
    try:
        with acting.journal(settings, run.now, actor=by or "") as opened:
            switch = acting.freeze(settings, Record(opened), _door_or_none(run, settings))
            failed += switch.freeze(why, opened.actor)
    except FallowError as error:  # a kill switch works whatever became of the journal
        switch = acting.freeze(settings, None, _door_or_none(run, settings))
        failed += [error.message, *switch.freeze(why, by or acting.who(settings))]
    for text in failed:
        run.say(f"not switched: {text}")
    run.say("frozen: nothing acts until `fallow thaw`")
    return 0


def thaw(run: Run, *, by: By = None) -> int:
    """Allow acting again, once every switch is off."""
    from runtime import acting  # noqa: PLC0415

    settings = run.settings()
    with _record(run, settings, write=True, by=by) as record:
        switch = acting.freeze(settings, record, _door_or_none(run, settings))
        failed = switch.thaw(record.journal.actor)
        still = switch.why()
    for text in failed:
        run.say(f"not switched: {text}")
    run.say("thawed" if still is None else f"still {still}")
    return 0 if still is None else 1


def actions(
    run: Run,
    action: Annotated[str | None, typer.Argument(metavar="[ACTION]", help="one, whole")] = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="check every link of the journal's chain")
    ] = False,
) -> int:
    """List what was done, what waits for approval, and what came of it."""
    from runtime import acting_shown  # noqa: PLC0415

    settings = run.settings()
    if verify:
        return _verify(run, settings)
    with _record(run, settings, write=False, needed=True) as record:
        if action is not None:
            run.text(acting_shown.whole(record, action, run.output))
        elif run.output is Output.json:
            run.data(
                acting_shown.listed(record), noun="actions", waiting=acting_shown.waiting(record)
            )
        else:
            waiting = acting_shown.waiting(record)
            if waiting:
                run.say(f"{len(waiting)} wait for approval: fallow approve ID")
            run.data([*waiting, *acting_shown.listed(record)], noun="actions")
    return 0


def _verify(run: Run, settings: "Settings") -> int:
    from actions.journal.copying import known  # noqa: PLC0415
    from fallow.errors import FallowError  # noqa: PLC0415
    from runtime import acting  # noqa: PLC0415

    copy: list[tuple[int, str]] = []
    try:
        with run.warehouse(settings) as warehouse:
            copy = known(warehouse, settings.cluster)
    except FallowError as error:
        run.say(f"without the warehouse's copy: {error.message}")
    with acting.journal(settings, run.now, write=False) as journal:
        broken = journal.verify(copy)
        if broken is not None:
            run.say(f"fallow: the journal is broken at row {broken.seq}: {broken.why}")
            return 1
        rows = len(journal.entries())
    run.say(f"{rows:,} rows, every link holds; {len(copy):,} of them as the warehouse copied them")
    return 0


@contextmanager
def _record(
    run: Run, settings: "Settings", *, write: bool, by: str | None = None, needed: bool = False
) -> "Iterator[Record]":
    """Open the journal; a dry run without one reads an empty one, which is nowhere."""
    from actions.journal import Record  # noqa: PLC0415
    from fallow.errors import UsageError  # noqa: PLC0415
    from runtime import acting  # noqa: PLC0415

    there = acting.journal_path(settings).is_file()
    if needed and not there:
        raise UsageError(
            f"there is no journal at {acting.journal_path(settings)}",
            hint="nothing has acted, or been asked for, yet",
        )
    if write or there:
        with acting.journal(settings, run.now, write=write, actor=by or "") as opened:
            yield Record(opened).catch_up()
        return
    with acting.empty_journal(run.now) as opened:
        yield Record(opened)


def _door_or_none(run: Run, settings: "Settings") -> "Door | None":
    """Return the door; a kill switch works without a cluster too, and says so."""
    from fallow.errors import FallowError  # noqa: PLC0415
    from runtime import acting  # noqa: PLC0415

    try:
        return acting.door(settings)
    except FallowError as error:
        run.say(f"the ConfigMap is left as it is: {error.message}")
        return None


def _lease(run: Run, actor: "Actor") -> None:
    """Wait for a lease whose holder shows no life: whether it lives only time tells."""
    import time  # noqa: PLC0415

    if why := actor.lease.hold():
        run.say(f"waiting for the lease: {why}")
        actor.lease.wait(time.sleep)


def _settle(run: Run, actor: "Actor", wait: str) -> None:
    import time  # noqa: PLC0415

    from fallow.window import parse_duration  # noqa: PLC0415

    length: timedelta = parse_duration(wait)
    until = run.now() + length
    while actor.record.open() and run.now() < until:
        time.sleep(min(10.0, length.total_seconds()))
        for outcome in actor.settle():
            run.say(f"action {outcome.action}: {outcome.result}")


def _copied(warehouse: Any, settings: "Settings", record: "Record") -> None:
    from actions.journal.copying import copy  # noqa: PLC0415

    copy(record.journal, warehouse, settings.cluster)


def _show(run: Run, report: "TurnReport") -> None:
    from runtime import acting_shown  # noqa: PLC0415

    for line in acting_shown.talk(report):
        run.say(line)
    rows = acting_shown.taken(report)
    if run.output is Output.json:
        run.data(rows, noun="steps", dry_run=report.dry_run, at=report.at)
    else:
        run.data(rows, noun="steps")


def _code(report: "TurnReport") -> int:
    if any(reason.gate == "lease" for reason in report.halted):
        return TEMPORARY
    if report.halted or (report.plan is not None and report.plan.aborted is not None):
        return REFUSED
    return 0


def _no_refresh(_now: object) -> None:
    """A dry run looks at what is stored."""


def _paths(names: list[str] | None) -> "list[Path]":
    from pathlib import Path  # noqa: PLC0415

    return [Path(name) for name in names or ()]
