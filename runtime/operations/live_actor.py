"""Build an actor from the settings: it runs in `fallow apply` and in the service's job `act`.

warehouse ─► evidence (findings now, facts, new samples) ──┐
kubeconfig ─► client, lease, kill switch ──────────────────┼─► actions.loop.actor.Actor
journal, policies, channels, snapshots ────────────────────┘
"""

import getpass
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actions.canary import Canary, CanaryResult
from actions.cluster.client import connect
from actions.cluster.jupyterhub import JupyterHubClient
from actions.executors import choose_executor, get_name
from actions.facts import read_fleet
from actions.journal import Journal, JournalState, event_types
from actions.journal.state import format_subject_key
from actions.journal.warehouse_copy import copy_journal
from actions.loop import recheck, recheck_stalled
from actions.loop.actor import Actor
from actions.loop.annotate import KEPT_UNTIL
from actions.loop.breaker import find_incident
from actions.loop.freeze import Freeze
from actions.loop.lease import Lease
from actions.loop.recent_activity import find_active_device
from actions.loop.recheck import Recheck, find_unanswered
from actions.nodes.eks import EksClient
from actions.notices.channels import ChannelNotifier
from actions.policy.budgets import BudgetUsage
from actions.reclaim.kinds import kinds
from actions.recommend import STALLED
from actions.savings.storage import store_hourly
from actions.snapshots import Snapshotter
from actions.snapshots.containers import KubernetesRunner
from actions.snapshots.store import open_store
from collectors.jupyter import parse_server
from collectors.prometheus.latest import latest
from fallow.action_models import Action, Change, Facts, LedgerEntry, Reason, Target
from fallow.clock_steps import ClockSteps, Ticks, read_ticks
from fallow.errors import FallowError, RefusedError, UsageError
from fallow.plugin_runs import PluginRun
from fallow.protocols import ReviewsEffects
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations import pipeline, plans
from runtime.operations.collection import load_collectors, next_start, read_cursors
from runtime.operations.journal_anchor import describe_anchor
from runtime.operations.plan_rows import PlanWriter
from runtime.operations.plugin_runs import PluginRuns

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient
    from actions.loop.protocols import (
        Notice,
        NoticeProof,
        Notifier,
        StepResult,
        Transport,
        TurnReport,
    )
    from actions.policy.model import Policy
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.acting")

Refresh = Callable[[datetime], None]
"""Reads every telemetry source again and stores the rows."""
Reread = Callable[[Facts, datetime], None]
"""Reads the current pods of one case, from a source that can be queried for them alone."""


EXECUTED = frozenset({"acted", "would act", "kept a snapshot"})
"""The results of a turn that mean that a decision's executor was called successfully."""


class LiveEvidence:
    """Cases of a warehouse that can be refreshed; see `actions.loop.protocols.EvidenceSource`."""

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        refresh: Refresh,
        clock: Callable[[], datetime],
        reread: Reread = lambda _facts, _now: None,
        *,
        ticks: Ticks = read_ticks,
    ) -> None:
        self._warehouse, self._settings, self._ticks = warehouse, settings, ticks
        self._refresh, self._clock, self._reread = refresh, clock, reread
        self._sampled_at: datetime | None = None
        self._sampled_ticks = 0.0
        self.judged: Sequence[Facts] = ()
        """The cases of the last plan."""

    def read_sources(self, now: datetime) -> None:
        """Read the sources again; a reading is valid for a sixth of the age that evidence may have.

        Judging takes time too, and policies allow at most two sample intervals of the devices.
        """
        stale, ticks = self._settings.actions.evidence_age / 6, self._ticks()
        if self._sampled_at is not None and now >= self._sampled_at:
            # By the monotonic clock too: after the wall clock was set back, an old reading is new.
            ticked = timedelta(seconds=ticks - self._sampled_ticks)
            if max(now - self._sampled_at, ticked) <= stale:
                return
        self._refresh(now)
        self._sampled_at, self._sampled_ticks = now, ticks

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the facts of every current finding."""
        self.judged = self._facts(now)
        return self.judged

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Read the sources again, and run the case's own analyzer again."""
        self.read_sources(now)
        mine = facts.finding
        now = self._clock()  # a later time, because of the new samples
        current_facts = self._facts(now, (mine.analyzer,))
        same = (mine.kind, _key(facts))
        cases = [f for f in current_facts if (f.finding.kind, _key(f)) == same]
        # A window may have several stretches of a workload: use the case's own, else the last one.
        return max(
            cases, key=lambda f: (f.finding.id == mine.id, f.finding.window.end), default=None
        )

    def recheck(self, facts: Facts, now: datetime) -> "Recheck":
        """Read every signal of a workload now, and judge the last readings.

        For an idle workload: whether anything is active. For a stalled job: whether anything
        changed.
        """
        if facts.finding.kind == STALLED:
            return self._recheck_stalled(facts, now)
        if facts.finding.verdict != "idle":
            return recheck.Recheck()
        read_at = self._sampled_at or now
        self._reread(facts, now)
        idle, cluster = self._settings.idle, facts.finding.subject.cluster
        every_s = self._settings.service.collect_every.total_seconds()
        limits = recheck.ActivityLimits(
            idle.threshold, idle.host_cpu_cores, idle.min_duration, every_s
        )
        readings = recheck.read_signals(self._warehouse, facts, self._clock(), limits)
        judgement = recheck.judge_readings(readings, facts, read_at, limits)
        woke = find_active_device(
            self._warehouse, facts.finding, now, idle=idle.threshold, interval_s=facts.interval_s
        )
        away = recheck.find_unanswered(
            self._warehouse, readings, read_at, cluster=cluster, servers=self._servers(facts)
        )
        active = dict.fromkeys((*((woke,) if woke else ()), *judgement.active))
        return recheck.Recheck(tuple(active), (*away, *judgement.stale))

    def _recheck_stalled(self, facts: Facts, now: datetime) -> "Recheck":
        read_at = self._sampled_at or now
        self._reread(facts, now)
        readings = recheck_stalled.stalled_readings(
            self._warehouse, facts, self._clock(), burst_bps=self._settings.reliability.burst_bps
        )
        judged = recheck_stalled.judge_stalled(readings, facts, read_at)
        away = find_unanswered(
            self._warehouse,
            recheck_stalled.device_readings(readings),
            read_at,
            cluster=facts.finding.subject.cluster,
        )
        return Recheck(judged.active, (*away, *judged.stale))

    def _servers(self, facts: Facts) -> list[str]:
        """Return the addresses of the notebook servers in the pods of a case."""
        space, pods = facts.finding.subject.namespace, {p.pod for p in facts.pods or ()}
        servers = [parse_server(text) for text in self._settings.jupyter.servers]
        return [s.url for s in servers if s.namespace == space and s.pod in pods]

    def fleet(self, now: datetime) -> "BudgetUsage":
        """Return the size of the fleet."""
        return read_fleet(self._warehouse, now)

    def incident(self, now: datetime) -> str | None:
        """Return why telemetry as a whole must not be used; None = it may be used."""
        settings = self._settings
        return find_incident(
            self._warehouse,
            settings.actions.breaker,
            now,
            idle=settings.ledger.idle_threshold,
            cluster=settings.cluster,
        )

    def review(self, action: Action, now: datetime) -> tuple[Reason, ...] | None:
        """Call the executor of an action for its review: whether stored rows show harm."""
        executor = choose_executor(action.decision)
        if not isinstance(executor, ReviewsEffects):
            return None
        return executor.review(action, self._warehouse, now)

    def _facts(self, now: datetime, names: Sequence[str] = ()) -> list[Facts]:
        try:
            return plans.gather_cases(
                self._warehouse, self._settings, at=now, cluster=self._settings.cluster, names=names
            )[0]
        except UsageError:
            return []  # no telemetry: there are no cases


def refresher(warehouse: "Warehouse", settings: Settings) -> Refresh:
    """Return a function that reads every configured source once and accounts for the rows.

    Raises:
        UsageError: no source is configured, so no evidence can be fresh.
    """
    if not load_collectors(settings, cursors={}):
        raise UsageError(
            "no source is configured: evidence cannot be read again before acting",
            hint="set prometheus.url, exporters.targets or kubernetes.enabled in fallow.yaml",
        )

    def refresh(now: datetime) -> None:
        cursors = read_cursors(warehouse)
        collectors = load_collectors(settings, None, cursors, lambda: now, warehouse)
        window = Window(next_start(collectors.get("prometheus"), cursors, now), now)
        pipeline.ingest(warehouse, pipeline.collect(collectors.values(), window))
        pipeline.account(warehouse, Window(now - pipeline.LEDGER_LOOKBACK, now))

    return refresh


def rereader(warehouse: "Warehouse", settings: Settings) -> Reread:
    """Return a function that reads the hosts of one case's pods now, from Prometheus."""

    def reread(facts: Facts, now: datetime) -> None:
        space = facts.finding.subject.namespace
        pods = [(space, pod.pod) for pod in facts.pods or ()]
        if settings.prometheus.url and pods:
            pipeline.ingest(warehouse, latest(settings.prometheus, settings.cluster, pods, now))

    return reread


def journal_path(settings: Settings) -> Path:
    """Return the path of the journal."""
    return plans.journal_path(settings)


def freeze_file(settings: Settings) -> Path:
    """Return the path of the file whose existence freezes everything."""
    return settings.actions.freeze_file or settings.home / "FREEZE"


def actor_name(settings: Settings) -> str:
    """Return the actor's name for the journal: the setting, else the system's user name."""
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
    path = journal_path(settings)
    with Journal.open(path, clock, write=write, actor=actor or actor_name(settings)) as opened:
        yield opened


@contextmanager
def empty_journal(clock: Callable[[], datetime]) -> "Iterator[Journal]":
    """Open an empty journal for a dry run without one; it is deleted afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "journal.sqlite", clock) as opened,
    ):
        yield opened


def kill_switch(
    settings: Settings, record: "JournalState | None", cluster: "KubeClient | None"
) -> "Freeze":
    """Return the kill switch of these settings."""
    return Freeze(
        record,
        cluster,
        file=freeze_file(settings),
        namespace=settings.actions.lease.namespace,
        configmap=settings.actions.freeze_configmap,
    )


def connect_cluster(settings: Settings) -> "KubeClient":
    """Open the cluster to act in; see `actions.cluster.client.connect`."""
    return connect(settings)


def actor(
    settings: Settings,
    record: "JournalState",
    evidence: Any,
    *,
    cluster: "KubeClient",
    policies: "Sequence[Policy]",
    clock: Callable[[], datetime],
    identity: str = "",
    notifier: Any = None,
) -> "Actor":
    """Return an actor over an open client, journal and warehouse; no notifier = the settings'."""
    acting = settings.actions
    me = identity or acting.lease.identity or f"{socket.gethostname()}-{os.getpid()}"
    return Actor(
        policies=policies,
        client=cluster,
        record=record,
        lease=Lease(cluster, acting.lease, me, clock),
        freeze=kill_switch(settings, record, cluster),
        evidence=evidence,
        notifier=notifier or open_notifier(settings, record.journal),
        choose=choose_executor,
        clock=clock,
        settings=acting,
        snapshotter=_snapshotter(settings, cluster, clock),
        ways=open_transports(settings),
        link=settings.notices.link,
        reviewer=getattr(evidence, "review", lambda _action, _now: None),
    )


def open_notifier(settings: Settings, journal: "Journal") -> ChannelNotifier:
    """Return the notifier of the settings; its messages end with the journal's anchor."""
    return ChannelNotifier(settings.notices, closing=lambda: describe_anchor(journal))


def open_transports(settings: Settings) -> "dict[str, Transport]":
    """Return the transports besides Kubernetes; changes name them."""
    hub_settings = settings.actions.jupyterhub
    return {
        "aws": EksClient(),
        **({"jupyterhub": JupyterHubClient(hub_settings)} if hub_settings.url else {}),
    }


@contextmanager
def open_turns(
    settings: Settings,
    warehouse: "Warehouse",
    clock: Callable[[], datetime],
    on_turn: "Callable[[TurnReport], None]",
    *,
    on_savings: "Callable[[Sequence[LedgerEntry]], None]" = lambda _entries: None,
    on_notices: "Callable[[Sequence[NoticeProof]], None]" = lambda _proofs: None,
    on_plugin_runs: "Callable[[Iterable[PluginRun]], None]" = lambda _runs: None,
    on_canary: "Callable[[CanaryStatus], None]" = lambda _status: None,
    ticks: Ticks | None = None,
) -> Iterator[Callable[[], None]]:
    """Yield a job that runs one turn; journal and cluster stay open, the lease is released.

    Once an hour it also measures savings (the table `saving`); `on_savings` gets them. `on_notices`
    gets the result of every notice, `on_plugin_runs` of every executor call, `on_canary` of every
    run of the canary (and its state at the start). With `ticks`, a clock that is never set, a step
    of the clock while the job is open shortens no grace period.

    Raises:
        UsageError: a policy is not legal, or no source is configured.
        RefusedError: the cluster refuses access.
        TemporaryError: the cluster cannot be reached.
    """
    refresh, reread = refresher(warehouse, settings), rereader(warehouse, settings)
    steps = ClockSteps(ticks)
    clock = steps.watch(clock)
    evidence = LiveEvidence(warehouse, settings, refresh, clock, reread)
    with journal(settings, clock) as opened:
        acting = actor(
            settings,
            JournalState(opened, steps).catch_up(),
            evidence,
            cluster=connect_cluster(settings),
            policies=plans.load_policies(settings),
            clock=clock,
            notifier=_ObservedNotifier(open_notifier(settings, opened), on_notices),
        )

        watched = settings.actions.watch
        measure = store_hourly(warehouse, acting.record, settings.cluster, watched, on_savings)
        plan_writer = PlanWriter(warehouse, settings)
        runs = PluginRuns(warehouse, on_plugin_runs)
        step_canary = _canary_steps(acting, on_canary)

        def turn() -> None:
            report = acting.turn(dry_run=False)
            on_turn(report)
            for reason in report.halted:
                log.warning("nothing acts", extra={"gate": reason.gate, "why": reason.text})
            for step in report.steps:
                _log_step(step)
            for outcome in report.closed:
                why = "; ".join(reason.text for reason in outcome.reasons)
                fields = {"action": outcome.action, "result": outcome.result, "why": why}
                log.info("an action is over", extra=fields)
            step_canary(report.halted)
            # From here on the warehouse is needed: a catalog that is away fails the job, no action.
            runs.keep(executor_runs(report), report.at)
            copy_journal(opened, warehouse, settings.cluster)
            if report.plan is not None:
                plan_writer.write(report.plan, evidence.judged, acting.policies, report.at)
            measure(clock())

        try:
            yield turn
        finally:
            with suppress(FallowError):  # its duration ends it in any case
                acting.lease.give_up()


class CanaryStatus(NamedTuple):
    """The canary's period, when it last passed (else: the process's start), and a run's result."""

    every: timedelta
    last_success: datetime
    result: CanaryResult | None = None


def _canary_steps(
    acting: "Actor", on_canary: "Callable[[CanaryStatus], None]"
) -> "Callable[[Sequence[Reason]], None]":
    """Return the canary's step of each turn; nothing where no image is set."""
    settings = acting.settings.canary
    if not settings.image:
        return lambda _halted: None
    canary, started = Canary(acting, settings), acting.clock()
    on_canary(CanaryStatus(settings.every, canary.last_success or started))

    def step(halted: "Sequence[Reason]") -> None:
        result = canary.step(halted)
        if result is None:
            return
        on_canary(CanaryStatus(settings.every, canary.last_success or started, result))
        level = logging.INFO if result.ok else logging.ERROR
        text = "the canary passed" if result.ok else "the canary failed"
        log.log(level, text, extra={"action": result.action, "why": result.why})

    return step


def executor_runs(report: "TurnReport") -> "Iterator[PluginRun]":
    """Yield the results of the executors that a turn called."""
    for step in report.steps:
        if step.run is not None:
            yield step.run
        elif step.result in EXECUTED:
            yield PluginRun("executor", get_name(choose_executor(step.decision)), "done")


class _ObservedNotifier:
    """A notifier that also reports the results of notices."""

    def __init__(
        self, notifier: "Notifier", observe: "Callable[[Sequence[NoticeProof]], None]"
    ) -> None:
        self._notifier, self._observe = notifier, observe

    def tell(self, notices: "Sequence[Notice]", now: datetime) -> "list[NoticeProof]":
        proofs = self._notifier.tell(notices, now)
        self._observe(proofs)
        return proofs


def _log_step(step: "StepResult") -> None:
    fields = {
        "policy": step.decision.policy,
        "workload": "/".join(filter(None, step.decision.subject)),
        "result": step.result,
        "action": step.action,
        "why": "; ".join(reason.text for reason in step.reasons),
    }
    log.info("a step", extra=fields)


def _snapshotter(settings: Settings, cluster: "KubeClient", clock: Callable[[], datetime]) -> Any:
    snapshot_settings = settings.snapshots
    shell = KubernetesRunner(cluster.client, timeout_s=snapshot_settings.timeout.total_seconds())
    store = open_store(snapshot_settings, settings.home)
    return Snapshotter(cluster, shell, store, snapshot_settings, clock=clock)


class NoEvidence:
    """Evidence for steps that need none: settling, undoing."""

    def read_sources(self, now: datetime) -> None:
        """Read nothing."""

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return no case."""
        del now
        return ()

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Return no case."""
        del facts, now
        return None

    def recheck(self, facts: Facts, now: datetime) -> "Recheck":
        """Return no reason."""
        del facts, now
        return Recheck()

    def fleet(self, now: datetime) -> "BudgetUsage":
        """Return a fleet of unknown size."""
        del now
        return BudgetUsage()

    def incident(self, now: datetime) -> str | None:
        """Return no incident."""
        del now
        return None


def keep_workload(
    settings: Settings,
    record: "JournalState",
    cluster: "KubeClient",
    workload: str,
    until: datetime,
) -> str:
    """Annotate a workload so that nothing stops it until a time, and record that in the journal.

    The write has the caller's identity: who may not annotate the workload may not keep it.

    Raises:
        UsageError: `workload` is no Kind/namespace/name, or there is no such workload.
        RefusedError: the API does not permit the caller's write.
        TemporaryError: no response.
    """
    parts = workload.split("/")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004
        raise UsageError(
            f"{workload!r} is no workload", hint="write Kind/namespace/name: Notebook/team-a/nb-1"
        )
    kind, space, name = parts
    kind_info = kinds().get(kind)
    api_kind, group = (kind_info.api_kind, kind_info.group) if kind_info else (kind, None)
    path = cluster.collection(api_kind, group, space)
    current = cluster.get(f"{path}/{name}") if path else None
    if path is None or current is None:
        raise UsageError(
            f"there is no {workload} in {cluster.name}",
            hint="`fallow actions` and `fallow plan` list them",
        )
    until_text = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = current.get("metadata") or {}
    target = Target(
        cluster.name, str(current.get("apiVersion")), api_kind, space, name, str(meta.get("uid"))
    )
    body = {"metadata": {"uid": target.uid, "annotations": {KEPT_UNTIL: until_text}}}
    change = Change(target, "PATCH", f"{path}/{name}", body, guarded=False)
    answer = cluster.send(change, dry_run=False)
    if not answer.ok:
        raise RefusedError(f"{workload} is not kept: {answer.reason}")
    key = format_subject_key((settings.cluster, kind, space, name))
    record.append(event_types.KEEP, key, {"until": until.isoformat()})
    return until_text


def _key(facts: Facts) -> tuple[str, ...]:
    subject = facts.finding.subject
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload
