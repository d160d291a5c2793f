"""Replay a service: the same `plan` as live, over a journal in memory, with the data known then.

    pasts of analyzers ─► findings of an evaluation ─► cases (warehouse.case_parts, case_identity)
      ─► facts, as of the evaluation ─► `plan` ─► steps ─► rows of the journal
      ─► what the next evaluation knows of each case

`ReplayAnswers` supplies what is not in history. Where it has no answer, a step is expected only
under the gates that it names. The rows are those of a service that acted: what it stopped is
stopped in them. With `owners` they are those of a service that did not act: then the owners say
when each stopped workload would have been in use again, and it is left alone until then.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from actions.backtest.as_of import AsOf
from actions.backtest.case_rows import CaseRows
from actions.backtest.due_workloads import DueWorkloads
from actions.backtest.fleet_sizes import FleetSizes
from actions.backtest.replay_journal import OWNER, ReplayJournal
from actions.facts.case_facts import LatestSamples, build_facts
from actions.facts.coverage import PastCoverage, WorkloadCoverage, find_partly_seen, find_shortest
from actions.facts.incidents import JobIncidents
from actions.facts.quotas import Quotas
from actions.journal.action_state import ActionState
from actions.journal.trust import add_trust
from actions.loop.context import record_reversal
from actions.loop.drift import demote_policies
from actions.plan import ACT_STEPS, ActionPlan, Subject, plan
from actions.policy.budgets import BudgetUsage, CountedAction, count_action, get_horizon
from actions.policy.model import Policy
from actions.recommend import recommend
from capacity.placement.fleet_state import (
    FleetState,
    WorkloadKey,
    convert_micros,
    get_workload_key,
    to_micros,
)
from capacity.placement.pending_queue import PendingWorkloads
from fallow import case_identity
from fallow.action_models import Decision, Facts, Step, compute_decision_id
from fallow.case_identity import CaseKin, StoredCase, get_kin, to_stored_case
from fallow.idle_details import is_idle
from fallow.models import STALLED_JOB, Finding
from fallow.protocols import PastFindings, Views
from fallow.settings.actions import ActionsSettings
from fallow.window import Window
from warehouse.case_parts import match_objects, merge_over_silence
from warehouse.disruption_budgets import BudgetHistory

APPROVAL = "approval"
ACT_TIME_GATES = ("evidence", "awake", "away", "identity", "snapshot", "keep", "fights", "pressure")
"""Gates that are evaluated at the time of an act: they read the sources, the objects, their
protections and the pending pods again. History has no answers for that time."""


class PromisedStep(msgspec.Struct, frozen=True):
    """A step that a replay expects the service to take, and the evaluation at which it does."""

    at: datetime
    step: Step
    subject: Subject
    finding: str
    depends: tuple[str, ...] = ()
    """Gates that history cannot evaluate: the service takes the step only if they open."""
    policy: str = ""

    @property
    def met(self) -> bool:
        """Return whether history evaluates every gate; a gate without an answer is not met."""
        return not self.depends


class ReplayAnswers(msgspec.Struct, frozen=True):
    """The known answers to the questions that history cannot answer."""

    approves: bool = False
    """True: approvers approve between the evaluation that requests it and the next; False: unknown.
    """
    shut: Callable[[Decision], tuple[str, ...] | None] = lambda _decision: None
    """Return which gates of `ACT_TIME_GATES` refused an act; empty = none did; None = unknown."""


class ServiceTurns(msgspec.Struct, frozen=True):
    """The evaluations of a service, and their conditions besides their times."""

    times: Sequence[datetime]
    settings: ActionsSettings
    incident: Callable[[datetime], str | None] = lambda _at: None
    """Returns why telemetry as a whole is unreliable at an evaluation, which then takes no action.
    """
    lag: timedelta = timedelta(0)
    """The time from an evaluation to its acts: the evidence is read again in between."""
    answers: ReplayAnswers = ReplayAnswers()


class ReplayedCase(NamedTuple):
    """A case at one evaluation, and the row of its finding."""

    row: int
    facts: Facts


class ReplayedOwners(Protocol):
    """The owners of a history without acts: they use their workloads when they did in fact."""

    def stop(self, now: datetime, case: ReplayedCase, decision: Decision) -> datetime | None:
        """Take note of an act; return when the workload is in use again, None = not in the data."""
        ...


class ServiceReplay(msgspec.Struct, frozen=True):
    """What a service would have done, and the text of all its plans."""

    promises: tuple[PromisedStep, ...]
    plans: tuple[tuple[datetime, ActionPlan], ...]


def replay(
    policies: Sequence[Policy],
    pasts: Mapping[str, PastFindings],
    views: Views,
    window: Window,
    turns: ServiceTurns,
) -> ServiceReplay:
    """Return every notice and act of a service with these policies, evaluation by evaluation.

    `pasts`: what each analyzer found at each evaluation, by analyzer name. The rows are those of a
    service that acted: owners who restored a workload made new pods of it.
    """
    plans: list[tuple[datetime, ActionPlan]] = []
    rows = CaseRows(pasts, policies, len(turns.times), sparse=False)
    service = Service(
        policies, rows, views, window, turns, observe=lambda *evaluation: plans.append(evaluation)
    )
    service.run()
    return ServiceReplay(tuple(service.promises), tuple(plans))


class _Surroundings(NamedTuple):
    """What the facts of one evaluation need; None = no policy or case needs it."""

    pending: PendingWorkloads | None
    quotas: Quotas | None
    samples: LatestSamples | None
    incidents: JobIncidents | None


class Service:
    """A service with its policies, from evaluation to evaluation."""

    def __init__(
        self,
        policies: Sequence[Policy],
        rows: CaseRows,
        views: Views,
        window: Window,
        turns: ServiceTurns,
        *,
        observe: Callable[[datetime, ActionPlan], None],
        owners: ReplayedOwners | None = None,
        sparse: bool = False,
        more_workloads: Iterable[WorkloadKey] = (),
    ) -> None:
        """`more_workloads`: whose pods `fleet_state` holds besides those of the rows."""
        self._turns, self._views, self._rows = turns, views, rows
        self._observe, self._owners = observe, owners
        self._policies = {policy.name: policy for policy in policies}
        self._at = [to_micros(time) for time in turns.times]
        keys = dict.fromkeys((*rows.workloads, *more_workloads))
        self.fleet_state = FleetState(views, window.start, window.end, [*keys])
        spans = rows.spans()
        self._partly_seen = find_partly_seen(
            views, find_shortest(spans, self._at), window.start, window.end
        )
        self._coverage = PastCoverage(views, spans, self._partly_seen, self._at)
        self._budgets = BudgetHistory(views, window.end, is_polled=False)
        priced = [p for p in policies if any(b.usd_per_hour for b in p.budgets)]
        self._fleets = FleetSizes(views, self.fleet_state, [*priced, *policies][0], turns.times)
        self._horizon = get_horizon([*policies])
        self._stored: dict[CaseKin, dict[str, StoredCase]] = defaultdict(dict)
        self.record = ReplayJournal(window.start)
        self.record.trust(policies)
        self._uses: list[CountedAction] = []
        self._acted: Counter[str] = Counter()
        self._away: dict[WorkloadKey, tuple[ActionState, datetime | None]] = {}
        """The act that stopped each workload, and with owners when it is in use again."""
        self.due = DueWorkloads(rows, self.fleet_state, self._at, policies, sparse=sparse)
        self.promises: list[PromisedStep] = []

    def run(self) -> None:
        """Evaluate at every time."""
        for k, now in enumerate(self._turns.times):
            self._turn(k, now)

    def _turn(self, k: int, now: datetime) -> None:
        self._take_back(now)
        self.record.now = now
        if self._owners is None:
            demote_policies(self.record, tuple(self._policies.values()), now)
        if self._turns.answers.approves:
            self.record.approve_all()
        usage = self._usage_at(k, now)
        due = self.due.select(k, now, usage)
        cases = self._cases(k, now, [w for w in due if self._rows.workloads[w] not in self._away])
        if self._turns.incident(now) is not None or not cases:
            return  # without planning, until a person thaws the service
        facts = [case.facts for case in cases]
        findings = [case.finding for case in facts]
        histories = self.record.histories(self._policies, findings)
        self.record.extend(self.record.sightings(facts))
        policies = [*self._policies.values()]
        plan_now = plan(policies, facts, usage, now, histories, waiting=self.due.waiting)
        self._observe(now, plan_now)
        self.due.plan_again(k, now, plan_now, facts)
        self._take(now, plan_now, {case.facts.finding.id: case for case in cases})

    # What an evaluation knows.

    def _cases(self, k: int, now: datetime, due: Sequence[int]) -> list[ReplayedCase]:
        """Return the cases of workloads, with the facts of all findings with a recommendation."""
        rows = [row for number in due for row in self._rows.rows_at(number, k)]
        pairs = [(row, self._rows.finding(row)) for row in rows]
        joined = self._join([(row, f) for row, f in pairs if f.window.start < now], now)
        facts = self._facts(k, now, joined)
        uids = {n: case.facts.uid for n, case in enumerate(facts) if case.facts.uid is not None}
        findings = [case.facts.finding for case in facts]
        stored = {kin: [*self._stored[kin].values()] for kin in map(get_kin, findings)}
        resolved = []
        for case, finding in zip(facts, case_identity.resolve(findings, stored, uids), strict=True):
            self._stored[get_kin(finding)][finding.id] = to_stored_case(finding, case.facts.uid)
            resolved.append(msgspec.structs.replace(case.facts, finding=finding))
        same = self.record.continue_cases(resolved)
        return [ReplayedCase(c.row, f) for c, f in zip(facts, same, strict=True)]

    def _join(
        self, pairs: Sequence[tuple[int, Finding]], now: datetime
    ) -> list[tuple[int, Finding, bool]]:
        """Return findings with those that only silence separates joined, and whether one was."""
        kins = Counter(get_kin(finding) for _, finding in pairs)
        several = [pair for pair in pairs if kins[get_kin(pair[1])] > 1]
        if not several:
            return [(row, finding, False) for row, finding in pairs]
        views = AsOf(self._views, now)
        findings = [finding for _, finding in several]
        uids, parts = match_objects(views, findings)
        merged, _ = merge_over_silence(views, parts, uids)
        rows = {several[n][0]: finding for n, finding in merged.items()}
        joined_rows = {row for row, _ in several} - rows.keys()
        return [
            (row, rows.get(row, finding), row in rows and rows[row] is not finding)
            for row, finding in pairs
            if row not in joined_rows
        ]

    def _facts(
        self, k: int, now: datetime, pairs: Sequence[tuple[int, Finding, bool]]
    ) -> list[ReplayedCase]:
        advised = [(*each, several[0]) for each in pairs if (several := recommend(each[1]))]
        if not advised:
            return []
        findings = [finding for _, finding, _, _ in advised]
        around = self._around(now, findings)
        joined = [
            finding
            for _, finding, is_joined, _ in advised
            if is_joined and get_workload_key(finding.subject) in self._partly_seen
        ]
        covered = WorkloadCoverage(self._views, joined, now) if joined else None
        budgets = self._budgets.find(to_micros(now))
        cases = []
        for row, finding, is_joined, advice in advised:
            held_gpus = self._coverage.get(row, k)
            if is_joined:
                held_gpus = covered.of(finding) if covered is not None else None
            facts = build_facts(
                self.fleet_state, finding, advice, now, pending=around.pending,
                samples=around.samples, quotas=around.quotas, held_gpus=held_gpus,
                budgets=budgets,
                incidents=around.incidents if finding.kind == STALLED_JOB else None,
            )  # fmt: skip
            cases.append(ReplayedCase(row, facts))
        return cases

    def _around(self, now: datetime, findings: Sequence[Finding]) -> _Surroundings:
        """Return what facts need besides the fleet state, where a policy or a case needs it."""
        policies = self._policies.values()
        quiet = [finding for finding in findings if not is_idle(finding)]
        stalls = [finding for finding in findings if finding.kind == STALLED_JOB]
        pending = (
            PendingWorkloads(self.fleet_state, now)
            if stalls or any(p.on_pressure or p.on_benefit for p in policies)
            else None
        )
        return _Surroundings(
            pending,
            Quotas(self._views, now) if any(p.match.over_quota for p in policies) else None,
            LatestSamples(self._views, self.fleet_state, quiet, now) if quiet else None,
            JobIncidents(self._views, stalls, now, pending) if stalls and pending else None,
        )

    def _usage_at(self, k: int, now: datetime) -> BudgetUsage:
        self._uses = [use for use in self._uses if use.at >= now - self._horizon]
        usage = msgspec.structs.replace(
            self._fleets.at(k), uses=tuple(self._uses), acted=dict(self._acted)
        )
        return add_trust(usage, self.record, [*self._policies.values()])

    def _take_back(self, now: datetime) -> None:
        """Detect which owners have a stopped workload back, as the service does first."""
        for key, (state, used_at) in [*self._away.items()]:
            if self._owners is None:
                next_pod = self.fleet_state.next_pod(key, to_micros(state.action.at))
                is_back = next_pod is not None and convert_micros(next_pod) <= now
                back_at = now if is_back else None
            else:
                back_at = used_at
            if back_at is not None and back_at <= now:
                del self._away[key]
                self.record.now = back_at
                record_reversal(self.record, state, OWNER, self._turns.settings.back_off, back_at)

    # What an evaluation does.

    def _take(self, now: datetime, plan_now: ActionPlan, cases: Mapping[str, ReplayedCase]) -> None:
        decisions = [d for d in plan_now.decisions if d.subject[0] not in plan_now.aborted]
        for decision in decisions:
            if decision.step in ACT_STEPS and any(r.gate == APPROVAL for r in decision.reasons):
                key = compute_decision_id(decision.policy, decision.finding, "act")
                self.record.request_approval(decision, key)
            if decision.ruling == "allow" and decision.step == "notify":
                self.record.notify(decision)
                self._promise(now, decision, ())
        under_way: Counter[str] = Counter()
        for decision in decisions:
            if decision.step not in ACT_STEPS:
                continue
            is_allowed, depends = self._judge_act(decision)
            cluster = decision.subject[0]
            is_busy = under_way[cluster] >= self._turns.settings.concurrent
            if not is_allowed or (is_busy and self._owners is None):
                continue
            closed_gates = self._turns.answers.shut(decision)
            if closed_gates:
                continue
            self._promise(
                now, decision, (*depends, *(ACT_TIME_GATES if closed_gates is None else ()))
            )
            under_way[cluster] += 1
            self._act(now, decision, cases[decision.finding])

    def _act(self, now: datetime, decision: Decision, case: ReplayedCase) -> None:
        at = now + self._turns.lag
        state = self.record.act(decision, at)
        self.record.now = now
        self._uses.append(count_action(decision, at))
        self._acted[decision.policy] += 1
        used_at = self._owners.stop(now, case, decision) if self._owners is not None else None
        key = get_workload_key(case.facts.finding.subject)
        self._away[key] = state, used_at
        self.due.leave(key, used_at)

    def _judge_act(self, decision: Decision) -> tuple[bool, tuple[str, ...]]:
        """Return whether an act is allowed, and the gates on the way that only people open."""
        if decision.ruling == "allow":
            return True, ()
        needs_approval = {reason.gate for reason in decision.reasons} == {APPROVAL}
        return needs_approval and not self._turns.answers.approves, (APPROVAL,)

    def _promise(self, now: datetime, decision: Decision, depends: tuple[str, ...]) -> None:
        step: Step = "act" if decision.step in ACT_STEPS else decision.step
        self.promises.append(
            PromisedStep(now, step, decision.subject, decision.finding, depends, decision.policy)
        )
