"""`fallow apply`, `undo`, `resume`, `approve`, `keep`, `freeze`, `thaw`, `canary` and `actions`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, cast

import typer

from actions.canary import Canary, CanaryResult
from actions.journal import JournalState
from actions.journal.warehouse_copy import copy_journal, read_copied_hashes
from actions.loop.actor import EVIDENCE
from actions.loop.actor import approve as agree
from actions.loop.marks import reconcile_marks
from actions.loop.other_clusters import CatalogActors
from actions.loop.protocols import TurnReport
from actions.loop.resume_requests import request_resume
from dashboards.figures.policy_actions import list_outdated_requests
from dashboards.figures.query import Filters
from fallow import plugins
from fallow.demo_marker import has_demo_cluster
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.window import format_duration, parse_duration
from runtime.cli.options import CommandRun, Output
from runtime.operations.acting import live_actor, plans
from runtime.operations.acting.keeps import keep_workload
from runtime.operations.acting.live_evidence import LiveEvidence, NoEvidence
from runtime.operations.acting.requests import describe_resume, freeze_all
from runtime.operations.ingestion.last_readings import open_last_readings
from runtime.rendering import action_tables

if TYPE_CHECKING:
    from datetime import timedelta

    from actions.cluster.client import KubeClient
    from actions.journal import Journal
    from actions.loop.actor import Actor
    from fallow.settings import Settings
    from warehouse.lake import Warehouse

REFUSED, TEMPORARY = 3, 75
CANARY_POLL_S = 2.0
Yes = Annotated[bool, typer.Option("--yes", help="act; without it nothing is written")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="who acts [the system user]")]


def apply(
    run: CommandRun,
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
    settings = run.settings()
    if yes and has_demo_cluster(settings.home):
        raise UsageError(
            "a demo's fleet acts while its time passes: `fallow apply --yes` is for a real one",
            hint=f"fallow demo --continue 1h --home {quote(str(settings.home))}",
        )
    rules = plans.load_policies(settings, _list_paths(policies))
    cluster = open_cluster(run, settings)
    with (
        run.warehouse(settings, write=yes) as warehouse,
        _open_evidence(run, settings, warehouse, read=yes) as evidence,
        _record(run, settings, write=yes) as record,
    ):
        others = CatalogActors(
            warehouse, settings, lambda: copy_journal(record.journal, warehouse, settings.cluster)
        )
        actor = live_actor.build_actor(
            settings,
            record,
            evidence,
            cluster=cluster,
            policies=rules,
            clock=run.now,
            others=others,
        )
        if yes:
            _wait_for_lease(run, actor)
        report = actor.turn(dry_run=not yes, only=findings or ())
        if yes:
            if wait:
                _settle(run, actor, wait)
            actor.lease.give_up()
            try:
                others.copied(ended=True)
            except FallowError as error:  # the journal has it; what was done is shown all the same
                run.say(f"the journal is not copied to the warehouse yet: {error.message}")
    _show(run, report)
    return _exit_code(report)


def undo(
    run: CommandRun,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="its id, or how it begins")],
    *,
    by: By = None,
) -> None:
    """Give back what an action took: exactly, and once.

    It is refused where somebody changed the object since.
    """
    settings = run.settings()
    with _record(run, settings, write=True, by=by, needed=True) as record:
        actor = live_actor.build_actor(
            settings,
            record,
            NoEvidence(),
            cluster=open_cluster(run, settings),
            policies=(),
            clock=run.now,
        )
        outcome = actor.undo(action, record.journal.actor)
    run.say(f"action {outcome.action} is undone")


def resume(
    run: CommandRun,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="its id, or how it begins")],
    *,
    by: By = None,
) -> None:
    """Ask that the job which an action suspended is resumed.

    `fallow undo` gives it back at once, also where no GPU is free, and withdraws the request.
    """
    settings = run.settings()
    with _record(run, settings, write=True, by=by, needed=True) as record:
        action_id, request = request_resume(record, action, record.journal.actor, run.now())
        state = describe_resume(settings, record, action_id)
    run.say(
        f"action {action_id}: {request.by} requested at {request.at:%Y-%m-%d %H:%M} UTC; {state}"
    )


def approve(
    run: CommandRun,
    request: Annotated[
        str,
        typer.Argument(metavar="ID", help="an id of `fallow actions` or `plan`"),
    ],
    *,
    by: By = None,
) -> None:
    """Agree to an action that waits for approval. Whoever asked for it cannot."""
    settings = run.settings()
    with _record(run, settings, write=True, by=by, needed=True) as record:
        request_id = agree(record, request, record.journal.actor)
        run.say(f"{request_id} is approved by {record.journal.actor}; the next turn may act on it")


def keep(
    run: CommandRun,
    workload: Annotated[str, typer.Argument(metavar="KIND/NAMESPACE/NAME", help="what to keep")],
    duration: Annotated[str, typer.Argument(metavar="[DURATION]", help="for how long")] = "24h",
    *,
    by: By = None,
) -> None:
    """Keep a workload from being stopped for a while.

    It is an annotation, written as yourself.
    """
    settings = run.settings()
    until = run.now() + parse_duration(duration)
    cluster = open_cluster(run, settings)
    with _record(run, settings, write=True, by=by) as record:
        until_text = keep_workload(settings, record, cluster, workload, until)
    run.say(f"{workload} is kept until {until_text}")


def freeze(
    run: CommandRun,
    why: Annotated[str, typer.Argument(metavar="[WHY]", help="for the journal")] = "by command",
    *,
    by: By = None,
) -> int:
    """Stop everything that acts, within one turn: the kill switch."""
    settings = run.settings()
    failures = freeze_all(settings, run.now, _open_cluster_or_none(run, settings), why, by or "")
    for text in failures:
        run.say(f"not switched: {text}")
    run.say("frozen: nothing acts until `fallow thaw`")
    return 0


def thaw(run: CommandRun, *, by: By = None) -> int:
    """Allow acting again, once every switch is off."""
    settings = run.settings()
    with _record(run, settings, write=True, by=by) as record:
        switch = live_actor.kill_switch(settings, record, _open_cluster_or_none(run, settings))
        failures = switch.thaw(record.journal.actor)
        reason = switch.why()
    for text in failures:
        run.say(f"not switched: {text}")
    run.say("thawed" if reason is None else f"still {reason}")
    return 0 if reason is None else 1


def reconcile(run: CommandRun, *, by: By = None) -> int:
    """Compare the journal with the marks of actions on objects.

    A restored home needs it before `fallow thaw`. It changes nothing in the cluster and lists the
    actions that the journal lacks: `fallow undo` cannot undo them.
    """
    settings = run.settings()
    cluster = open_cluster(run, settings)
    with _record(run, settings, write=True, by=by) as record:
        result = reconcile_marks(record, cluster, settings.actions.lease)
    if result.lease:
        run.say(f"the journal lacks rows: {result.lease}")
    if result.missing:
        count = len(result.missing)
        run.say(
            f"objects name {count} actions that the journal lacks and `fallow undo` cannot undo"
        )
    else:
        run.say("the journal has the action of every mark")
    rows = [
        {
            "action": mark.action,
            "kind": mark.kind,
            "namespace": mark.namespace,
            "name": mark.name,
            "acted_at": mark.at,
        }
        for mark in result.missing
    ]
    run.data(rows, noun="missing")
    return 0


def canary(run: CommandRun, *, yes: Yes = False) -> int:
    """Stop and restore a Deployment of Fallow's own, as a proof.

    A dry run unless --yes; then it stays until the Deployment is Ready again, or failed to be.
    """
    settings = run.settings()
    wanted = settings.actions.canary
    if not wanted.image:
        raise UsageError(
            "there is no canary",
            hint="set actions.canary.image to an image that runs until it is stopped",
        )
    name = f"Deployment/{wanted.namespace}/{wanted.name}"
    cluster = open_cluster(run, settings)
    if not yes:
        run.say(f"would stop and restore {name} in {cluster.name}: fallow canary --yes")
        return 0
    with _record(run, settings, write=True) as record:
        actor = live_actor.build_actor(
            settings,
            record,
            NoEvidence(),
            cluster=cluster,
            policies=(),
            clock=run.now,
        )
        if why := _wait_for_lease(run, actor):
            raise TemporaryError(
                f"the canary did not run, another actor holds the lease: {why}",
                hint="where `fallow up` acts, it runs the canary itself, every "
                f"{format_duration(wanted.every.total_seconds())}; stop it to run this one",
            )
        result = _run_canary(actor, Canary(actor, wanted))
        actor.lease.give_up()
    if isinstance(result, TurnReport):
        _show(run, result)
        return _exit_code(result)
    run.say(f"{name} was stopped, restored and is Ready" if result.ok else result.why)
    return 0 if result.ok else 1


def _run_canary(actor: "Actor", runs: Canary) -> CanaryResult | TurnReport:
    """Return the result of one run; the report of a turn in which none may begin."""
    begun = False
    while True:
        report = actor.turn(dry_run=False)
        begun = begun or any(state.is_canary for state in actor.record.list_open())
        if report.halted and not begun:
            return report
        result = runs.step(report.halted, at_once=True)
        if result is not None:
            return result
        time.sleep(CANARY_POLL_S)


def actions(
    run: CommandRun,
    action: Annotated[str | None, typer.Argument(metavar="[ACTION]", help="one, whole")] = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="check every link of the journal's chain")
    ] = False,
    anchor: Annotated[
        str | None,
        typer.Option(
            metavar="ROW:HASH",
            help="with --verify: also compare with the journal's end in a notice, report or backup",
        ),
    ] = None,
) -> int:
    """List what was done, what waits for approval, what came of it."""
    settings = run.settings()
    if verify or anchor is not None:
        return _verify(run, settings, anchor)
    outdated, cluster = _list_outdated(run, settings), run.options.get("cluster")
    with _record(run, settings, write=False, needed=True) as record:
        if action is not None:
            run.text(action_tables.render_action(record, action, run.output))
            return 0
        waiting = action_tables.build_approval_rows(record, outdated, cluster)
        rows = action_tables.action_rows(record, cluster)
        if run.output is Output.json:
            run.data(rows, noun="actions", waiting=waiting)
        else:
            count = sum(row["result"] == action_tables.WAITS for row in waiting)
            if count:
                run.say(f"{count} wait for approval: fallow approve ID")
            run.data([*waiting, *rows], noun="actions")
    return 0


def _list_outdated(run: CommandRun, settings: "Settings") -> set[str]:
    """Return the requests whose case is gone; none where the warehouse cannot be read.

    Raises:
        UsageError: the warehouse has nothing of the cluster that an option names.
    """
    try:
        with run.warehouse(settings) as warehouse:
            return list_outdated_requests(warehouse, Filters(cluster=settings.cluster))
    except FallowError as error:
        if run.options.get("cluster") and isinstance(error, UsageError):
            raise
        return set()


def _verify(run: CommandRun, settings: "Settings", anchor: str | None) -> int:
    copy: list[tuple[int, str]] = []
    try:
        with run.warehouse(settings) as warehouse:
            copy = read_copied_hashes(warehouse, settings.cluster)
    except FallowError as error:
        run.say(f"without the warehouse's copy: {error.message}")
    with live_actor.open_journal(settings, run.now, write=False) as journal:
        broken = journal.verify(copy)
        if broken is not None:
            run.say(f"fallow: the journal is broken at row {broken.seq}: {broken.why}")
            return 1
        lag = journal.explain_anchor(anchor) if anchor is not None else None
        rows = len(journal.entries())
    if lag is not None:
        run.say(f"fallow: the journal is not the one of the anchor {anchor}: {lag}")
        return 1
    run.say(f"{rows:,} rows, every link holds; {len(copy):,} of them as the warehouse copied them")
    if anchor is not None:
        run.say(f"the row of the anchor {anchor} is as it was written")
    return 0


@contextmanager
def _record(
    run: CommandRun,
    settings: "Settings",
    *,
    write: bool,
    by: str | None = None,
    needed: bool = False,
) -> "Iterator[JournalState]":
    """Open the journal; a dry run without one reads an empty journal that is not stored."""
    exists = live_actor.get_journal_path(settings).is_file()
    if needed and not exists:
        raise UsageError(
            f"there is no journal at {live_actor.get_journal_path(settings)}",
            hint="nothing has acted, or been asked for, yet",
        )
    if write or exists:
        with live_actor.open_journal(settings, run.now, write=write, actor=by or "") as journal:
            yield JournalState(journal).catch_up()
            if write and exists:
                _copy_record(run, settings, journal)
        return
    with live_actor.open_empty_journal(run.now) as journal:
        yield JournalState(journal)


def _copy_record(run: CommandRun, settings: "Settings", journal: "Journal") -> None:
    """Copy the new rows for reports and pages; a process that writes there copies them itself."""
    with suppress(FallowError), run.warehouse(settings, write=True) as warehouse:
        copy_journal(journal, warehouse, settings.cluster)


def open_cluster(run: CommandRun, settings: "Settings") -> "KubeClient":
    """Return a client of the cluster by the transport of the settings, until the command ends.

    Raises: as the transport, such as `actions.cluster.client.open_client`.
    """
    open_client = plugins.load("transports", settings.kubernetes.transport)
    return cast("KubeClient", run.resources.enter_context(open_client(settings)))


def _open_cluster_or_none(run: CommandRun, settings: "Settings") -> "KubeClient | None":
    """Return the cluster's client; a kill switch also works without a cluster, and reports it."""
    try:
        return open_cluster(run, settings)
    except FallowError as error:
        run.say(f"the ConfigMap is left as it is: {error.message}")
        return None


def _wait_for_lease(run: CommandRun, actor: "Actor") -> str | None:
    """Wait for a lease that its holder does not renew: only its duration shows that it ended.

    Return why it is not ours.
    """
    why = actor.lease.hold()
    if why:
        run.say(f"waiting for the lease: {why}")
        why = actor.lease.wait(time.sleep)
    return why


def _settle(run: CommandRun, actor: "Actor", wait: str) -> None:
    length: timedelta = parse_duration(wait)
    until = run.now() + length
    while actor.record.list_open() and run.now() < until:
        time.sleep(min(10.0, length.total_seconds()))
        for outcome in actor.settle():
            run.say(f"action {outcome.action}: {outcome.result}")


def _show(run: CommandRun, report: TurnReport) -> None:
    for line in action_tables.write_step_notes(report):
        run.say(line)
    rows = action_tables.build_step_rows(report)
    if run.output is Output.json:
        run.data(rows, noun="steps", dry_run=report.dry_run, at=report.at)
    else:
        run.data(rows, noun="steps")


def _exit_code(report: TurnReport) -> int:
    if any(reason.gate in ("lease", EVIDENCE) for reason in report.halted):
        return TEMPORARY
    if report.halted or (report.plan is not None and report.plan.aborted):
        return REFUSED
    return 0


@contextmanager
def _open_evidence(
    run: CommandRun, settings: "Settings", warehouse: "Warehouse", *, read: bool
) -> "Iterator[LiveEvidence]":
    """Yield evidence whose sources are read again; a dry run judges what is stored."""
    if not read:
        yield LiveEvidence(warehouse, settings, lambda _now: None, run.now)
        return
    with open_last_readings(warehouse, settings) as readings:
        yield LiveEvidence(warehouse, settings, readings.refresh, run.now, readings.reread)


def _list_paths(names: list[str] | None) -> "list[Path]":
    return [Path(name) for name in names or ()]
