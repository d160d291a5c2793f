"""Say of one whole workload whether it is idle now, and whether a policy would stop it now.

One evaluation judges every workload and is kept for some seconds, so that many questions cost as
much as one. What the journal knows (freeze, keep, notices, budgets) and the kill switch in the
cluster are read at each question.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fallow.action_models import Decision, Facts
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.models import Finding, Subject
from fallow.protocols import ReportsUnjudged
from fallow.rows import Row, decode_rows
from fallow.settings import Settings
from fallow.window import Window, format_duration
from runtime.operations.acting import plans
from runtime.operations.acting.plans import AnsweredCase
from runtime.operations.analysis import analyzer_runs
from runtime.operations.queries import load_sql

if TYPE_CHECKING:
    from actions.policy.model import Policy
    from warehouse.lake import Warehouse

IDLE = "idle"
KEPT_FOR = timedelta(seconds=30)
"""How long one evaluation answers questions."""
VALID_FOR = timedelta(minutes=1)
"""How long an answer may be acted upon, from the time that it is of."""
WAIT_S = 20.0
"""How long a question waits for an evaluation that runs for another one."""
LATELY = timedelta(days=1)
"""A workload that held no device for this long is not known."""
STALE_INTERVALS = 3
"""Intervals after which samples are stale, as in `warehouse.coverage`."""

WorkloadState = Literal["busy", "idle", "partly_idle", "unknown"]
WorkloadKey = tuple[str, str, str, str]
"""Cluster, namespace, kind, name."""


class GateRefusal(msgspec.Struct, frozen=True):
    """Why a policy's gate does not let the workload be stopped now."""

    policy: str
    """Empty = whatever a policy says."""
    gate: str
    refusal: str
    until: datetime | None = None
    what_would_help: str = ""


class ExpectedRest(msgspec.Struct, frozen=True):
    """How probable it is that the workload is used again soon."""

    return_probability: float
    within: str
    exposures: int
    returns: int


class Idleness(msgspec.Struct, frozen=True):
    """Whether a whole workload is idle at a time, with the evidence, and whether to act."""

    cluster: str
    namespace: str
    kind: str
    name: str
    at: datetime
    valid_until: datetime
    state: WorkloadState
    actionable: bool
    """True only if it is idle and a policy would stop it now."""
    why: str
    since: datetime | None = None
    evidence: str | None = None
    case: str | None = None
    gpus: float | None = None
    gpu_hours: float | None = None
    usd: Decimal | None = None
    expected_rest: ExpectedRest | None = None
    policy: str | None = None
    """The policy that would stop it."""
    refusals: tuple[GateRefusal, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an answer that would let a workload be stopped without a verdict of idle."""
        if self.actionable and (self.state != IDLE or self.refusals or not self.policy):
            raise ValueError(f"{self.state} with {len(self.refusals)} refusals is not actionable")


class RecentAllocation(Row, frozen=True):
    """What a workload holds now, and until when all of it was sampled."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    devices: int
    sampled: int
    seen_until: datetime | None
    interval_s: float | None


class IdlenessReader:
    """Answers questions about workloads of an open warehouse. Threads may share it."""

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        clock: Callable[[], datetime],
        switch: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`switch` returns why a kill switch stops everything that the plan does not read."""
        self._warehouse, self._settings, self._clock = warehouse, settings, clock
        self._switch = switch
        self._lock = threading.Lock()
        self._last: _Evaluation | None = None

    def read(self, cluster: str, namespace: str, kind: str, name: str) -> Idleness | None:
        """Return a workload's idleness; None = no such workload held a device in the last day.

        Raises:
            TemporaryError: the warehouse does not answer, or an evaluation takes too long.
        """
        answer = self._evaluate().answer((cluster, namespace, kind, name))
        if answer is None or not answer.actionable or (why := self._switch()) is None:
            return answer
        refusal = GateRefusal("", "frozen", why, what_would_help="fallow thaw")
        return msgspec.structs.replace(answer, actionable=False, policy=None, refusals=(refusal,))

    def _evaluate(self) -> "_Evaluation":
        if not self._lock.acquire(timeout=WAIT_S):
            raise TemporaryError(
                "the workloads are being judged for another request", hint="try again soon"
            )
        try:
            now, last = self._clock(), self._last
            if last is None or not timedelta(0) <= now - last.at < KEPT_FOR:
                self._last = last = _Evaluation(self._warehouse, self._settings, now)
            return last
        finally:
            self._lock.release()


class _Evaluation:
    """All workloads at one time: what they hold, their idle cases, and the plan."""

    def __init__(self, warehouse: "Warehouse", settings: Settings, at: datetime) -> None:
        self._warehouse, self._settings, self.at = warehouse, settings, at
        self._allocations = _read_allocations(warehouse, at)
        self._withheld = ""
        self._no_rules = ""
        self._rules = self._read_rules()
        facts = self._read_facts()
        plan, facts = plans.decide(warehouse, settings, self._rules, facts, at)
        self._aborted = plan.aborted
        self._decisions: dict[tuple[str, ...], Decision] = {d.subject: d for d in plan.decisions}
        self._facts: dict[WorkloadKey, list[Facts]] = {}
        for case in facts:
            self._facts.setdefault(_build_key(case.finding.subject), []).append(case)

    def answer(self, key: WorkloadKey) -> Idleness | None:
        allocation = self._allocations.get(key)
        if allocation is None:
            return None
        doubt = self._doubt_telemetry(allocation)
        current = [f for f in self._facts.get(key, ()) if self._lasts(f.finding, allocation)]
        if doubt or self._withheld:
            return self._without_case(key, "unknown", doubt or self._withheld)
        if not current:
            reasons = self._unjudged.get(key, ())
            if reasons:
                return self._without_case(key, "unknown", "; ".join(reasons))
            least = format_duration(self._settings.idle.min_duration.total_seconds())
            return self._without_case(key, "busy", f"it has not been idle for {least}")
        # The weaker verdict counts, then the longer stretch.
        case = min(current, key=lambda f: (f.finding.verdict == IDLE, f.finding.window.start))
        return self._with_case(key, case)

    @cached_property
    def _unjudged(self) -> dict[WorkloadKey, tuple[str, ...]]:
        """Why workloads that seem busy are not judged, over the time that a verdict needs."""
        idle = self._settings.idle
        window = Window(self.at - max(idle.min_duration, timedelta(hours=1)), self.at)
        reasons: dict[WorkloadKey, tuple[str, ...]] = {}
        analyzer = analyzer_runs.load_analyzers(self._settings, (IDLE,))[IDLE]
        if isinstance(analyzer, ReportsUnjudged):
            for item in analyzer.unjudged(self._warehouse, window):
                key = _build_key(item.subject)
                reasons[key] = tuple(dict.fromkeys((*reasons.get(key, ()), *item.reasons)))
        return reasons

    def _with_case(self, key: WorkloadKey, case: Facts) -> Idleness:
        finding = case.finding
        state: WorkloadState = "idle" if finding.verdict == IDLE else "partly_idle"
        answers = plans.answer_cases(self._warehouse, self._settings, self._rules, [case], self.at)
        policy = self._find_policy(key, finding, answers) if state == IDLE else None
        refusals = () if policy else tuple(self._list_refusals(key, state, answers))
        wanted = finding.details.get("wanted")
        return self._build(
            key,
            state,
            str(finding.details.get("why", finding.kind)),
            actionable=policy is not None,
            policy=policy,
            since=finding.window.start,
            evidence=finding.evidence,
            case=finding.id,
            gpus=case.gpus,
            gpu_hours=finding.gpu_hours,
            usd=finding.usd,
            expected_rest=None if wanted is None else _describe_rest(wanted),
            refusals=refusals,
        )

    def _find_policy(
        self, key: WorkloadKey, finding: Finding, answers: Iterable[AnsweredCase]
    ) -> str | None:
        """Return the policy that the plan stops it by, if all its gates are open still."""
        decision = self._decisions.get(_build_subject(key))
        if decision is None or key[0] in self._aborted or key[0] != self._settings.cluster:
            return None
        if (decision.finding, decision.step, decision.ruling) != (finding.id, "act", "allow"):
            return None
        is_open = any(
            policy == decision.policy and gates and all(gate.open for gate in gates)
            for _, policy, gates in answers
        )
        return decision.policy if is_open and finding.evidence == "confirmed" else None

    def _list_refusals(
        self, key: WorkloadKey, state: WorkloadState, answers: Iterable[AnsweredCase]
    ) -> Iterable[GateRefusal]:
        """Yield why nothing stops it: always at least one reason."""
        if state != IDLE:
            yield GateRefusal("", "verdict", "a part of the workload is in use")
        if key[0] != self._settings.cluster:
            yield GateRefusal("", "match", f"policies here are those of {self._settings.cluster}")
        if self._no_rules:
            yield GateRefusal("", "match", self._no_rules)
        if (aborted := self._aborted.get(key[0])) is not None:
            yield GateRefusal("", aborted.gate, aborted.text)
        decision = self._decisions.get(_build_subject(key))
        if decision is not None and (decision.step, decision.ruling) != ("act", "allow"):
            text = f"the next step is {decision.step}, not the stop ({decision.ruling})"
            yield GateRefusal(decision.policy, "stage", text, decision.next_at)
        count = 0
        for _, policy, gates in answers:
            closed = [gate for gate in gates if not gate.open]
            # A policy that is about other work has nothing else to say.
            mismatch = [gate for gate in closed if gate.gate == "match"]
            for gate in mismatch or closed:
                count += 1
                yield GateRefusal(policy, gate.gate, gate.refusal, gate.until, gate.way)
        if not count:
            yield GateRefusal("", "evidence", "the plan of this moment does not stop it")

    def _without_case(self, key: WorkloadKey, state: WorkloadState, why: str) -> Idleness:
        refusals = (GateRefusal("", "verdict", f"there is no verdict of idle: {why}"),)
        return self._build(key, state, why, refusals=refusals)

    def _build(self, key: WorkloadKey, state: WorkloadState, why: str, **fields: Any) -> Idleness:
        cluster, namespace, kind, name = key
        return Idleness(
            cluster=cluster,
            namespace=namespace,
            kind=kind,
            name=name,
            at=self.at,
            valid_until=self.at + VALID_FOR,
            state=state,
            why=why,
            actionable=fields.pop("actionable", False),
            **fields,
        )

    def _doubt_telemetry(self, allocation: RecentAllocation) -> str:
        """Return why the samples of its devices cannot be used; empty = they can."""
        if not allocation.devices:
            return "no recent telemetry shows that it holds a GPU"
        if allocation.sampled < allocation.devices or allocation.seen_until is None:
            missing = allocation.devices - allocation.sampled
            return f"{missing} of its {allocation.devices} GPUs have no samples"
        age = self.at - allocation.seen_until.replace(tzinfo=UTC)
        if age > self._limit(allocation):
            return f"its telemetry is stale: the last sample is {_format(age)} old"
        return ""

    def _limit(self, allocation: RecentAllocation) -> timedelta:
        interval = timedelta(seconds=allocation.interval_s or 0.0)
        return STALE_INTERVALS * max(interval, self._settings.service.collect_every)

    def _lasts(self, finding: Finding, allocation: RecentAllocation) -> bool:
        """Return whether a stretch lasts until now, as far as samples tell."""
        return self.at - finding.window.end <= self._limit(allocation)

    def _read_rules(self) -> "Sequence[Policy]":
        try:
            rules = plans.load_policies(self._settings)
        except UsageError as error:
            self._no_rules = error.message
            return ()
        self._no_rules = "" if rules else "there are no policies"
        return rules

    def _read_facts(self) -> list[Facts]:
        """Return the idle cases; without a judgement every state is unknown."""
        try:
            facts, notes = plans.gather_cases(
                self._warehouse, self._settings, at=self.at, cluster=None, names=(IDLE,)
            )
        except TemporaryError:
            raise
        except FallowError as error:
            self._withheld = error.message
            return []
        self._withheld = next((n for n in notes if n.startswith(f"{IDLE} is withheld")), "")
        return facts


def _read_allocations(warehouse: "Warehouse", at: datetime) -> dict[WorkloadKey, RecentAllocation]:
    service = warehouse.settings.service
    # Allocations are as new as the last accounting, which is behind the telemetry.
    behind = service.rollup_every + STALE_INTERVALS * service.collect_every
    rows = warehouse.query(
        load_sql("recent_allocations"), {"at": at, "since": at - LATELY, "ended": at - behind}
    )
    return {
        (row.cluster, row.namespace, row.workload_kind, row.workload): row
        for row in decode_rows(rows, RecentAllocation)
    }


def _describe_rest(wanted: dict[str, Any]) -> ExpectedRest:
    return ExpectedRest(
        wanted["probability"], wanted["within"], wanted["exposures"], wanted["returns"]
    )


def _build_key(subject: Subject) -> WorkloadKey:
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload


def _build_subject(key: WorkloadKey) -> WorkloadKey:
    """Return a workload as decisions name it: cluster, kind, namespace, name."""
    cluster, namespace, kind, name = key
    return cluster, kind, namespace, name


def _format(age: timedelta) -> str:
    return format_duration(age.total_seconds())
