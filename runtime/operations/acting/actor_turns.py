"""The job `act`: one turn of the actor after another; what each did is stored and measured."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from actions.canary import Canary, CanaryResult
from actions.executors import choose_executor, get_name
from actions.journal import JournalState
from actions.journal.warehouse_copy import copy_journal
from actions.loop.other_clusters import CatalogActors
from actions.savings.storage import store_hourly
from fallow.action_models import LedgerEntry, Reason
from fallow.errors import FallowError
from fallow.plugin_runs import PluginRun
from fallow.settings import Settings
from fallow.system.clock_steps import ClockSteps
from fallow.system.daemon_threads import TaskRunner
from runtime.operations.acting import plans
from runtime.operations.acting.live_actor import (
    build_actor,
    connect_cluster,
    open_journal,
    open_notifier,
)
from runtime.operations.acting.live_evidence import LiveEvidence
from runtime.operations.acting.plan_rows import PlanWriter
from runtime.operations.ingestion.last_readings import open_last_readings
from runtime.operations.ingestion.plugin_runs import PluginRuns

if TYPE_CHECKING:
    from actions.loop.actor import Actor
    from actions.loop.protocols import (
        Notice,
        NoticeProof,
        Notifier,
        StepResult,
        TurnReport,
    )
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.acting")


EXECUTED = frozenset({"acted", "would act", "kept a snapshot"})
"""The results of a turn that mean that a decision's executor was called successfully."""


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
    steps: ClockSteps | None = None,
    writer: TaskRunner | None = None,
    stop: Event | None = None,
) -> Iterator[Callable[[], None]]:
    """Yield a job that runs one turn; journal and cluster stay open, the lease is released.

    Once an hour it also measures savings (the table `saving`); `on_savings` gets them. `on_notices`
    gets the result of every notice, `on_plugin_runs` of every executor call, `on_canary` of every
    run of the canary (and its state at the start). By `steps`, a step of the clock while the job is
    open shortens no grace period. Rows are written by `writer`; none = a thread of the job's own.

    Raises:
        UsageError: a policy is not legal, or no source is configured.
        RefusedError: the cluster refuses access.
        TemporaryError: the cluster cannot be reached.
    """
    steps = steps or ClockSteps()
    clock = steps.watch(clock)
    with (
        open_last_readings(warehouse, settings, writer=writer, stop=stop) as readings,
        open_journal(settings, clock) as opened,
    ):
        actors = CatalogActors(
            warehouse,
            settings,
            lambda: readings.write(lambda: copy_journal(opened, warehouse, settings.cluster)),
        )
        evidence = LiveEvidence(warehouse, settings, readings.refresh, clock, readings.reread)
        acting = build_actor(
            settings,
            JournalState(opened, steps).catch_up(),
            evidence,
            cluster=connect_cluster(settings),
            policies=plans.load_policies(settings),
            clock=clock,
            notifier=_ObservedNotifier(open_notifier(settings, opened), on_notices),
            others=actors,
        )

        watched = settings.actions.watch
        measure = store_hourly(warehouse, acting.record, settings.cluster, watched, on_savings)
        plan_writer = PlanWriter(warehouse, settings)
        runs = PluginRuns(warehouse, on_plugin_runs)
        step_canary = _build_canary_steps(acting, on_canary)

        def store(report: "TurnReport") -> None:
            runs.keep(list_executor_runs(report), report.at)
            if report.plan is not None:
                plan_writer.write(report.plan, evidence.judged, acting.policies, report.at)
            measure(clock())

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
            if any(reason.gate == "lease" for reason in report.halted):
                readings.write(lambda: copy_journal(opened, warehouse, settings.cluster))
            else:
                actors.copied()
            readings.write(lambda: store(report))

        try:
            yield turn
        finally:
            with suppress(FallowError):  # its duration ends it in any case
                acting.lease.give_up()
            with suppress(FallowError):  # else the others wait for the journal's copy
                actors.end()


class CanaryStatus(NamedTuple):
    """The canary's period, when it last passed (else: the process's start), and a run's result."""

    every: timedelta
    last_success: datetime
    result: CanaryResult | None = None


def _build_canary_steps(
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


def list_executor_runs(report: "TurnReport") -> "Iterator[PluginRun]":
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
