"""An actor from the settings: what `fallow apply` and the service's job `act` run.

warehouse ─► evidence (findings now, facts, a fresh look) ─┐
kubeconfig ─► door, lease, kill switch ────────────────────┼─► actions.loop.actor.Actor
journal, policies, channels, snapshots ────────────────────┘
"""

import getpass
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.acting import Action, Facts, LedgerEntry, Reason
from fallow.boundary import PluginRun
from fallow.errors import FallowError, RefusedError, UsageError
from fallow.seams import Reviewing
from fallow.settings import Settings
from fallow.window import Window
from runtime import pipeline, planned
from runtime.plan_rows import Telling
from runtime.plugin_runs import PluginRuns

if TYPE_CHECKING:
    from actions.cluster.door import Door
    from actions.journal import Journal, Record
    from actions.loop.actor import Actor
    from actions.loop.freeze import Freeze
    from actions.loop.recheck import Recheck
    from actions.loop.seams import Notice, Notifier, Proof, Taken, TurnReport, Way
    from actions.policy.budgets import Spent
    from actions.policy.model import Policy
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.acting")

Refresh = Callable[[datetime], None]
"""Takes a fresh look at every telemetry source and stores it."""
Reread = Callable[[Facts, datetime], None]
"""Reads the pods of one case at this moment, where a source can be asked about them alone."""
BOOKS = timedelta(hours=2)
"""How far back a fresh look has its books done."""


CALLED = frozenset({"acted", "would act", "kept a snapshot"})
"""What a turn did about a decision where its executor was called and went well."""


class LiveEvidence:
    """Cases of a warehouse that may be refreshed; see `actions.loop.seams.Evidence`."""

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        refresh: Refresh,
        clock: Callable[[], datetime],
        reread: Reread = lambda _facts, _now: None,
    ) -> None:
        self._warehouse, self._settings = warehouse, settings
        self._refresh, self._clock, self._reread = refresh, clock, reread
        self._looked: datetime | None = None
        self.judged: Sequence[Facts] = ()
        """The cases of the last plan."""

    def look(self, now: datetime) -> None:
        """Look at the sources anew; one look serves for a sixth of the age that it may have.

        To judge takes time too, and policies ask for two intervals of the devices at most.
        """
        stale = self._settings.actions.evidence_age / 6
        if self._looked is None or now - self._looked > stale:
            self._refresh(now)
            self._looked = now

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the facts of every finding of now."""
        self.judged = self._facts(now)
        return self.judged

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Look at the sources anew, and let the case's own analyzer judge again."""
        self.look(now)
        mine = facts.finding
        now = self._clock()  # what was just seen is later
        found = self._facts(now, (mine.analyzer,))
        same = (mine.kind, _key(facts))
        cases = [f for f in found if (f.finding.kind, _key(f)) == same]
        # A window may show several stretches of a workload: the case's own, else the last.
        return max(
            cases, key=lambda f: (f.finding.id == mine.id, f.finding.window.end), default=None
        )

    def recheck(self, facts: Facts, now: datetime) -> "Recheck":
        """Read every signal of an idle workload at this moment, and judge the last readings."""
        from actions.loop import recheck  # noqa: PLC0415
        from actions.loop.awake import awake  # noqa: PLC0415

        if facts.finding.verdict != "idle":
            return recheck.Recheck()
        read_at = self._looked or now
        self._reread(facts, now)
        idle, cluster = self._settings.idle, facts.finding.subject.cluster
        every_s = self._settings.service.collect_every.total_seconds()
        limits = recheck.Limits(idle.threshold, idle.host_cpu_cores, idle.min_duration, every_s)
        said = recheck.readings(self._warehouse, facts, self._clock(), limits)
        found = recheck.judged(said, facts, read_at, limits)
        woke = awake(
            self._warehouse, facts.finding, now, idle=idle.threshold, interval_s=facts.interval_s
        )
        away = recheck.unanswered(
            self._warehouse, said, read_at, cluster=cluster, servers=self._servers(facts)
        )
        active = dict.fromkeys((*((woke,) if woke else ()), *found.active))
        return recheck.Recheck(tuple(active), (*away, *found.stale))

    def _servers(self, facts: Facts) -> list[str]:
        """Return the addresses of the notebook servers that run in the pods of a case."""
        from collectors.jupyter import parse_server  # noqa: PLC0415

        space, pods = facts.finding.subject.namespace, {p.pod for p in facts.pods or ()}
        servers = [parse_server(text) for text in self._settings.jupyter.servers]
        return [s.url for s in servers if s.namespace == space and s.pod in pods]

    def fleet(self, now: datetime) -> "Spent":
        """Return the size of the fleet."""
        from actions.facts import fleet  # noqa: PLC0415

        return fleet(self._warehouse, now)

    def incident(self, now: datetime) -> str | None:
        """Say why telemetry as a whole is not to be trusted."""
        from actions.loop.breaker import tripped  # noqa: PLC0415

        settings = self._settings
        return tripped(
            self._warehouse,
            settings.actions.breaker,
            now,
            idle=settings.ledger.idle_threshold,
            cluster=settings.cluster,
        )

    def review(self, action: Action, now: datetime) -> tuple[Reason, ...] | None:
        """Ask the executor of an action whether stored rows show that it did harm."""
        from actions.executors import for_  # noqa: PLC0415

        executor = for_(action.decision)
        if not isinstance(executor, Reviewing):
            return None
        return executor.review(action, self._warehouse, now)

    def _facts(self, now: datetime, names: Sequence[str] = ()) -> list[Facts]:
        try:
            return planned.cases(
                self._warehouse, self._settings, at=now, cluster=self._settings.cluster, names=names
            )[0]
        except UsageError:
            return []  # no telemetry: nothing is a case


def refresher(warehouse: "Warehouse", settings: Settings) -> Refresh:
    """Return what looks once at every configured source and does the books.

    Raises:
        UsageError: nothing is configured to look at, so no evidence can be fresh.
    """
    from runtime.collecting import configured, cursors, since  # noqa: PLC0415

    if not configured(settings, done={}):
        raise UsageError(
            "no source is configured: evidence cannot be read again before acting",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )

    def refresh(now: datetime) -> None:
        done = cursors(warehouse)
        collectors = configured(settings, None, done, lambda: now)
        window = Window(since(collectors.get("prometheus"), done, now), now)
        pipeline.ingest(warehouse, pipeline.collect(collectors.values(), window))
        pipeline.account(warehouse, Window(now - BOOKS, now))

    return refresh


def rereader(warehouse: "Warehouse", settings: Settings) -> Reread:
    """Return what reads the hosts of one case's pods at this moment, from Prometheus."""
    from collectors.prometheus.latest import latest  # noqa: PLC0415

    def reread(facts: Facts, now: datetime) -> None:
        space = facts.finding.subject.namespace
        pods = [(space, pod.pod) for pod in facts.pods or ()]
        if settings.prometheus.url and pods:
            pipeline.ingest(warehouse, latest(settings.prometheus, settings.cluster, pods, now))

    return reread


def journal_path(settings: Settings) -> Path:
    """Return where the journal lies."""
    return planned.journal_of(settings)


def who(settings: Settings) -> str:
    """Return who acts, for the journal: the setting, else the user of the system."""
    if settings.actions.actor:
        return settings.actions.actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


@contextmanager
def journal(
    settings: Settings, clock: Callable[[], datetime], *, write: bool = True, actor: str = ""
) -> "Iterator[Journal]":
    """Open the journal of these settings."""
    from actions.journal import Journal  # noqa: PLC0415

    path = journal_path(settings)
    with Journal.open(path, clock, write=write, actor=actor or who(settings)) as opened:
        yield opened


@contextmanager
def empty_journal(clock: Callable[[], datetime]) -> "Iterator[Journal]":
    """Open a journal without rows, for a dry run where there is none; it is gone afterwards."""
    import tempfile  # noqa: PLC0415

    from actions.journal import Journal  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "journal.sqlite", clock) as opened,
    ):
        yield opened


def freeze(settings: Settings, record: "Record | None", door: "Door | None") -> "Freeze":
    """Return the kill switch of these settings."""
    from actions.loop.freeze import Freeze  # noqa: PLC0415

    return Freeze(
        record,
        door,
        file=settings.actions.freeze_file or settings.home / "FREEZE",
        namespace=settings.actions.lease.namespace,
        configmap=settings.actions.freeze_configmap,
    )


def door(settings: Settings) -> "Door":
    """Open the cluster to act in; see `actions.cluster.door.connect`."""
    from actions.cluster.door import connect  # noqa: PLC0415

    return connect(settings)


def actor(
    settings: Settings,
    record: "Record",
    evidence: Any,
    *,
    door: "Door",
    policies: "Sequence[Policy]",
    clock: Callable[[], datetime],
    identity: str = "",
    notifier: Any = None,
) -> "Actor":
    """Return an actor over an open door, journal and warehouse; no notifier = the settings'."""
    from actions.executors import for_  # noqa: PLC0415
    from actions.loop.actor import Actor  # noqa: PLC0415
    from actions.loop.lease import Lease  # noqa: PLC0415
    from actions.notices.channels import Channels  # noqa: PLC0415

    acting = settings.actions
    me = identity or acting.lease.identity or f"{socket.gethostname()}-{os.getpid()}"
    return Actor(
        policies=policies,
        door=door,
        record=record,
        lease=Lease(door, acting.lease, me, clock),
        freeze=freeze(settings, record, door),
        evidence=evidence,
        notifier=notifier or Channels(settings.notices),
        choose=for_,
        clock=clock,
        settings=acting,
        snapshotter=_snapshotter(settings, door, clock),
        ways=ways(settings),
        link=settings.notices.link,
        reviewer=getattr(evidence, "review", lambda _action, _now: None),
    )


def ways(settings: Settings) -> "dict[str, Way]":
    """Return the doors beside Kubernetes: changes name them."""
    from actions.cluster.hub import Hub  # noqa: PLC0415
    from actions.nodes.eks import EksDoor  # noqa: PLC0415

    hub = settings.actions.hub
    return {"aws": EksDoor(), **({"jupyterhub": Hub(hub)} if hub.url else {})}


@contextmanager
def standing(
    settings: Settings,
    warehouse: "Warehouse",
    clock: Callable[[], datetime],
    told: "Callable[[TurnReport], None]",
    *,
    saved: "Callable[[Sequence[LedgerEntry]], None]" = lambda _entries: None,
    noticed: "Callable[[Sequence[Proof]], None]" = lambda _proofs: None,
    ran: "Callable[[Iterable[PluginRun]], None]" = lambda _runs: None,
) -> Iterator[Callable[[], None]]:
    """Give a job that does one turn; journal and cluster stay open, the lease is given up after.

    Once an hour it measures what was saved, too (the noun `saving`); `saved` is told.
    `noticed` hears what came of every notice, `ran` of every executor that was called.

    Raises:
        UsageError: a policy is not legal, or no source is configured.
        RefusedError: the cluster does not let us in.
        TemporaryError: the cluster cannot be reached.
    """
    from actions.journal import Record  # noqa: PLC0415
    from actions.journal.copying import copy  # noqa: PLC0415
    from actions.notices.channels import Channels  # noqa: PLC0415
    from actions.savings.keeping import hourly  # noqa: PLC0415

    refresh, reread = refresher(warehouse, settings), rereader(warehouse, settings)
    evidence = LiveEvidence(warehouse, settings, refresh, clock, reread)
    with journal(settings, clock) as opened:
        acting = actor(
            settings,
            Record(opened).catch_up(),
            evidence,
            door=door(settings),
            policies=planned.policies(settings),
            clock=clock,
            notifier=_Heard(Channels(settings.notices), noticed),
        )

        watched = settings.actions.watch
        measure = hourly(warehouse, acting.record, settings.cluster, watched, saved)
        telling = Telling(warehouse, settings)
        runs = PluginRuns(warehouse, ran)

        def turn() -> None:
            report = acting.turn(dry_run=False)
            told(report)
            runs.keep(executor_runs(report), report.at)
            for reason in report.halted:
                log.warning("nothing acts", extra={"gate": reason.gate, "why": reason.text})
            for taken in report.taken:
                _log(taken)
            for outcome in report.closed:
                why = "; ".join(reason.text for reason in outcome.reasons)
                said = {"action": outcome.action, "result": outcome.result, "why": why}
                log.info("an action is over", extra=said)
            copy(opened, warehouse, settings.cluster)
            if report.plan is not None:
                telling.tell(report.plan, evidence.judged, acting.policies, report.at)
            measure(clock())

        try:
            yield turn
        finally:
            with suppress(FallowError):  # its duration ends it anyway
                acting.lease.give_up()


def executor_runs(report: "TurnReport") -> "Iterator[PluginRun]":
    """Yield what came of the executors that a turn called."""
    from actions.executors import for_, name_of  # noqa: PLC0415

    for taken in report.taken:
        if taken.run is not None:
            yield taken.run
        elif taken.result in CALLED:
            yield PluginRun("executor", name_of(for_(taken.decision)), "done")


class _Heard:
    """A notifier that also says what came of notices."""

    def __init__(self, notifier: "Notifier", heard: "Callable[[Sequence[Proof]], None]") -> None:
        self._notifier, self._heard = notifier, heard

    def tell(self, notices: "Sequence[Notice]", now: datetime) -> "list[Proof]":
        proofs = self._notifier.tell(notices, now)
        self._heard(proofs)
        return proofs


def _log(taken: "Taken") -> None:
    said = {
        "policy": taken.decision.policy,
        "workload": "/".join(filter(None, taken.decision.subject)),
        "result": taken.result,
        "action": taken.action,
        "why": "; ".join(reason.text for reason in taken.reasons),
    }
    log.info("a step", extra=said)


def _snapshotter(settings: Settings, door: "Door", clock: Callable[[], datetime]) -> Any:
    from actions.snapshots import Snapshotter  # noqa: PLC0415
    from actions.snapshots.containers import KubernetesShell  # noqa: PLC0415
    from actions.snapshots.store import opened  # noqa: PLC0415

    kept = settings.snapshots
    shell = KubernetesShell(door.client, timeout_s=kept.timeout.total_seconds())
    store = opened(kept, settings.home)
    return Snapshotter(door, shell, store, kept, clock=clock)


class NoCluster:
    """Evidence for what needs none: settling, undoing."""

    def look(self, now: datetime) -> None:
        """Look at nothing."""

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return no case."""
        del now
        return ()

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Return no case."""
        del facts, now
        return None

    def recheck(self, facts: Facts, now: datetime) -> "Recheck":
        """Say nothing."""
        from actions.loop.recheck import Recheck  # noqa: PLC0415

        del facts, now
        return Recheck()

    def fleet(self, now: datetime) -> "Spent":
        """Return a fleet of unknown size."""
        from actions.policy.budgets import Spent  # noqa: PLC0415

        del now
        return Spent()

    def incident(self, now: datetime) -> str | None:
        """Say nothing."""
        del now
        return None


def keep(settings: Settings, record: "Record", door: "Door", whom: str, until: datetime) -> str:
    """Annotate a workload so that nothing stops it until a moment, and write that down.

    It is written as the caller: who may not annotate the workload may not keep it.

    Raises:
        UsageError: `whom` is no Kind/namespace/name, or there is no such workload.
        RefusedError: the API does not let the caller.
        TemporaryError: no answer.
    """
    from actions.journal import words  # noqa: PLC0415
    from actions.journal.record import workload_key  # noqa: PLC0415
    from actions.loop.telling import KEPT_UNTIL  # noqa: PLC0415
    from actions.reclaim.kinds import kinds  # noqa: PLC0415
    from fallow.acting import Change, Target  # noqa: PLC0415

    parts = whom.split("/")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004
        raise UsageError(
            f"{whom!r} is no workload", hint="write Kind/namespace/name: Notebook/team-a/nb-1"
        )
    kind, space, name = parts
    known = kinds().get(kind)
    api_kind, group = (known.api_kind, known.group) if known else (kind, None)
    path = door.collection(api_kind, group, space)
    found = door.get(f"{path}/{name}") if path else None
    if path is None or found is None:
        raise UsageError(
            f"there is no {whom} in {door.name}",
            hint="`fallow actions` and `fallow plan` list them",
        )
    said = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = found.get("metadata") or {}
    target = Target(
        door.name, str(found.get("apiVersion")), api_kind, space, name, str(meta.get("uid"))
    )
    body = {"metadata": {"uid": target.uid, "annotations": {KEPT_UNTIL: said}}}
    change = Change(target, "PATCH", f"{path}/{name}", body, guarded=False)
    answer = door.send(change, dry_run=False)
    if not answer.ok:
        raise RefusedError(f"{whom} is not kept: {answer.reason}")
    key = workload_key((settings.cluster, kind, space, name))
    record.append(words.KEPT, key, {"until": until.isoformat()})
    return said


def _key(facts: Facts) -> tuple[str, ...]:
    whom = facts.finding.subject
    return whom.cluster, whom.namespace, whom.workload_kind, whom.workload
