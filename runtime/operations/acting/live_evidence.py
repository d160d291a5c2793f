"""The evidence of an actor: current cases, and their last readings, from the warehouse."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from actions.executors import choose_executor
from actions.facts import read_fleet
from actions.loop import recheck, recheck_stalled
from actions.loop.breaker import find_incident
from actions.loop.recent_activity import find_active_device
from actions.loop.recheck import Recheck, find_unanswered
from actions.policy.budgets import BudgetUsage
from collectors.jupyter import parse_server
from fallow.action_models import Action, Facts, Reason
from fallow.errors import UsageError
from fallow.models import STALLED_JOB
from fallow.protocols import ReviewsEffects
from fallow.settings import Settings
from fallow.system.clock_steps import Ticks, read_ticks
from runtime.operations.acting import plans

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

Refresh = Callable[[datetime], None]
"""Reads every telemetry source again and stores the rows."""
Reread = Callable[[Facts, datetime], None]
"""Reads the current pods of one case, from a source that can be queried for them alone."""


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
        self._current: dict[str, list[Facts]] = {}
        """The cases by analyzer, judged again since the sources were last read in this turn."""
        self._fleet: BudgetUsage | None = None
        """The size of the fleet since then."""

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
        self._forget()

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the facts of every current finding."""
        self._forget()
        self.judged = self._facts(now)
        return self.judged

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Read the sources again, and run the case's own analyzer again.

        One run judges every workload: it serves all actions of a turn until the sources are read
        again. What changed since for one workload, `recheck` reads before each action.
        """
        self.read_sources(now)
        mine = facts.finding
        if mine.analyzer not in self._current:
            now = self._clock()  # a later time, because of the new samples
            self._current[mine.analyzer] = self._facts(now, (mine.analyzer,))
        same = (mine.kind, _build_key(facts))
        current = self._current[mine.analyzer]
        cases = [f for f in current if (f.finding.kind, _build_key(f)) == same]
        # A window may have several stretches of a workload: use the case's own, else the last one.
        return max(
            cases, key=lambda f: (f.finding.id == mine.id, f.finding.window.end), default=None
        )

    def recheck(self, facts: Facts, now: datetime) -> "Recheck":
        """Read every signal of a workload now, and judge the last readings.

        For an idle workload: whether anything is active. For a stalled job: whether anything
        changed.
        """
        if facts.finding.kind == STALLED_JOB:
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
        readings = recheck_stalled.read_stalled_readings(
            self._warehouse, facts, self._clock(), burst_bps=self._settings.reliability.burst_bps
        )
        judged = recheck_stalled.judge_stalled(readings, facts, read_at)
        away = find_unanswered(
            self._warehouse,
            recheck_stalled.convert_device_readings(readings),
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
        """Return the size of the fleet: read once, until the sources are read again."""
        if self._fleet is None:
            self._fleet = read_fleet(self._warehouse, now)
        return self._fleet

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

    def _forget(self) -> None:
        """Forget what was read of the rows before: a new turn, or new rows."""
        self._current, self._fleet = {}, None

    def _facts(self, now: datetime, names: Sequence[str] = ()) -> list[Facts]:
        try:
            return plans.gather_cases(
                self._warehouse, self._settings, at=now, cluster=self._settings.cluster, names=names
            )[0]
        except UsageError:
            return []  # no telemetry: there are no cases


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


def _build_key(facts: Facts) -> tuple[str, ...]:
    subject = facts.finding.subject
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload
