"""Replay a service: all its policies at its own evaluations, planned as its actor plans them.

    pasts of analyzers ─► findings of an evaluation ─► cases (fallow.case_identity)
      ─► facts, as of the evaluation ─► `plan`, the same as live ─► expected steps
      ─► what the next evaluation knows of each case

A back-test of one policy does not know which policy acts first on an object, nor that too many
cases of one policy abort the evaluation for all. This replay does. `ReplayAnswers` supplies the
answers that are not in history. Where it has no answer, the step is expected only under the gates
that it names.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import polars as pl

from actions.backtest.fleet_sizes import FleetSizes
from actions.backtest.policy_replay import ACT_TIME_GATES
from actions.facts.case_facts import LatestSamples, build_facts, has_sample_times
from actions.facts.coverage import WorkloadCoverage, find_partly_seen, find_shortest
from actions.facts.incidents import JobIncidents
from actions.facts.quotas import Quotas
from actions.plan import ACT_STEPS, ActionPlan, Subject, get_subject, plan
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
from fallow.action_models import CaseHistory, Decision, Facts, Step
from fallow.action_settings import ActionsSettings
from fallow.case_identity import CaseKin, StoredCase, get_kin, to_stored_case
from fallow.models import STALLED_JOB, Finding
from fallow.protocols import PastFindings, Views
from fallow.window import Window

APPROVAL = "approval"
ASSUMED_APPROVER = "somebody"
CaseKey = tuple[str, str]
"""policy, finding"""


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


class ServiceReplay(msgspec.Struct, frozen=True):
    """What a service would have done, and the text of all its plans."""

    promises: tuple[PromisedStep, ...]
    plans: tuple[tuple[datetime, ActionPlan], ...]


class _Act(msgspec.Struct):
    """One act of the replay."""

    at: datetime
    decision: Decision
    key: WorkloadKey
    back_at: datetime | None = None
    """The evaluation at which the service detected that the owner restored the workload."""


class _Row(NamedTuple):
    past: PastFindings
    number: int


def replay(
    policies: Sequence[Policy],
    pasts: Mapping[str, PastFindings],
    views: Views,
    window: Window,
    turns: ServiceTurns,
) -> ServiceReplay:
    """Return every notice and act of a service with these policies, evaluation by evaluation.

    `pasts`: what each analyzer found at each evaluation, by analyzer name. The rows are those of a
    service that acted: what it stopped is stopped in them, and owners who restored a workload made
    new pods of it.
    """
    service = _Service(policies, pasts, views, window, turns)
    for k in range(len(turns.times)):
        service.turn(k)
    return ServiceReplay(tuple(service.promises), tuple(service.plans))


class _Service:
    def __init__(
        self,
        policies: Sequence[Policy],
        pasts: Mapping[str, PastFindings],
        views: Views,
        window: Window,
        turns: ServiceTurns,
    ) -> None:
        self._turns, self._views = turns, views
        self._policies = {policy.name: policy for policy in policies}
        self._rows: dict[int, list[_Row]] = defaultdict(list)
        shortest: dict[WorkloadKey, int] = {}
        keys: set[WorkloadKey] = set()
        at = [to_micros(time) for time in turns.times]
        for past in pasts.values():
            frame: pl.DataFrame = pl.DataFrame(past.rows)
            for number, k in enumerate(frame["k"].to_list()):
                self._rows[k].append(_Row(past, number))
            keys.update(frame.select(_KEY).unique().iter_rows())
            for key, length in find_shortest(frame, at).items():
                shortest[key] = min(length, shortest.get(key, length))
        sorted_keys = sorted(keys, key=str)
        self._fleet_state = FleetState(views, window.start, window.end, sorted_keys)
        self._partly_seen_keys = find_partly_seen(views, shortest, window.start, window.end)
        priced = [p for p in policies if any(b.usd_per_hour for b in p.budgets)]
        self._fleets = FleetSizes(views, self._fleet_state, [*priced, *policies][0], turns.times)
        self._stretches: dict[CaseKin, dict[str, StoredCase]] = defaultdict(dict)
        self._first_seen: dict[str, datetime] = {}
        self._noticed: dict[CaseKey, dict[str, datetime]] = defaultdict(dict)
        self._requested: dict[CaseKey, int] = {}
        self._acts: list[_Act] = []
        self._demoted: set[str] = set()
        self.promises: list[PromisedStep] = []
        self.plans: list[tuple[datetime, ActionPlan]] = []

    def turn(self, k: int) -> None:
        now = self._turns.times[k]
        self._take_back(now)
        self._demote()
        if self._turns.incident(now) is not None:
            return  # no planning at all until a person thaws the service
        facts = self._cases(self._facts(now, self._findings_at(k)))
        histories = {
            (name, f.finding.id): self._history(name, f.finding, get_subject(f), k)
            for name in self._policies
            for f in facts
        }
        for case in facts:
            self._first_seen.setdefault(case.finding.id, now)
        plan_now = plan([*self._policies.values()], facts, self._usage_at(k, now), now, histories)
        self.plans.append((now, plan_now))
        self._take(k, now, plan_now, {f.finding.id: f for f in facts})

    # What an evaluation knows.

    def _findings_at(self, k: int) -> list[Finding]:
        """Return the findings of an evaluation.

        A stopped workload has none until it is restored.
        """
        away = {act.key for act in self._acts if act.back_at is None}
        findings = [row.past.finding(row.number) for row in self._rows[k]]
        return [finding for finding in findings if get_workload_key(finding.subject) not in away]

    def _facts(self, now: datetime, findings: Sequence[Finding]) -> list[Facts]:
        """Return the facts of all findings with a recommendation, as `gather` does live."""
        advised = [(f, r[0]) for f in findings if f.window.start < now and (r := recommend(f))]
        if not advised:
            return []
        findings_with_advice = [f for f, _ in advised]
        quiet = [f for f in findings_with_advice if not has_sample_times(f)]
        unseen = [
            f for f in findings_with_advice if get_workload_key(f.subject) in self._partly_seen_keys
        ]
        queue, quotas = PendingWorkloads(self._fleet_state, now), Quotas(self._views, now)
        seen = LatestSamples(self._views, self._fleet_state, quiet, now) if quiet else None
        covered = WorkloadCoverage(self._views, unseen, now) if unseen else None
        stalls = [f for f in findings_with_advice if f.kind == STALLED_JOB]
        incidents = JobIncidents(self._views, stalls, now, queue)
        return [
            build_facts(
                self._fleet_state, finding, advice, now, pending=queue, samples=seen, quotas=quotas,
                held_gpus=covered.of(finding) if covered else None,
                incidents=incidents if finding.kind == STALLED_JOB else None,
            )
            for finding, advice in advised
        ]  # fmt: skip

    def _cases(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return facts whose findings carry the case that they continue."""
        findings = [f.finding for f in facts]
        uids = {n: f.uid for n, f in enumerate(facts) if f.uid is not None}
        stored = {kin: [*self._stretches[kin].values()] for kin in map(get_kin, findings)}
        cases = case_identity.resolve(findings, stored, uids)
        for case, case_facts in zip(cases, facts, strict=True):
            self._stretches[get_kin(case)][case.id] = to_stored_case(case, case_facts.uid)
        return [
            msgspec.structs.replace(f, finding=case) for f, case in zip(facts, cases, strict=True)
        ]

    def _history(self, policy: str, finding: Finding, subject: Subject, k: int) -> CaseHistory:
        case = policy, finding.id
        begin = finding.window.start
        announced = {verb: at for verb, at in self._noticed.get(case, {}).items() if at >= begin}
        acts = [act for act in self._acts if act.decision.subject == subject]
        returns = tuple(act.back_at for act in acts if act.back_at is not None)
        requested_turn = self._requested.get(case)
        approved = requested_turn is not None and requested_turn < k
        return CaseHistory(
            first_seen=self._first_seen.get(finding.id),
            notified_at=min(announced.values(), default=None),
            announced=announced,
            # Two approvers, where a policy requires two people.
            approved_by=(ASSUMED_APPROVER, f"{ASSUMED_APPROVER} else") if approved else (),
            last_action_at=max((act.at for act in acts), default=None),
            restored_at=returns,
            contested_until=self._contested(returns),
        )

    def _contested(self, returns: Sequence[datetime]) -> datetime | None:
        """Return until when a workload is left alone after its owner reversed an action."""
        if not returns:
            return None
        back_off = self._turns.settings.back_off
        length: timedelta = min(back_off.reverted * 2 ** min(len(returns) - 1, 10), back_off.most)
        return max(returns) + length

    def _usage_at(self, k: int, now: datetime) -> BudgetUsage:
        since = now - get_horizon([*self._policies.values()])
        acted: dict[str, int] = defaultdict(int)
        for act in self._acts:
            acted[act.decision.policy] += 1
        return msgspec.structs.replace(
            self._fleets.at(k),
            uses=tuple(self._use(act) for act in self._acts if act.at >= since),
            trusted=frozenset(self._policies),
            demoted=frozenset(self._demoted),
            acted=dict(acted),
        )

    def _use(self, act: _Act) -> CountedAction:
        return count_action(act.decision, act.at)

    def _take_back(self, now: datetime) -> None:
        """Detect which owners made new pods of a stopped workload, as the service does first."""
        for act in self._acts:
            if act.back_at is None:
                next_pod = self._fleet_state.next_pod(act.key, to_micros(act.at))
                if next_pod is not None and convert_micros(next_pod) <= now:
                    act.back_at = now

    def _demote(self) -> None:
        """Demote policies by the rule of `actions.loop.drift.demote_policies`.

        If a policy declares that any reversal may happen, a single one does not demote it.
        """
        for name, policy in self._policies.items():
            own = [act for act in self._acts if act.decision.policy == name]
            reversed_acts = [
                a for a in own if a.back_at and a.back_at - a.at <= policy.reversals.within
            ]
            rate = policy.reversals.rate
            if len(reversed_acts) > max(1 if rate else 0, rate * len(own)):
                self._demoted.add(name)

    # What an evaluation does.

    def _take(self, k: int, now: datetime, plan: ActionPlan, facts: Mapping[str, Facts]) -> None:
        decisions = [d for d in plan.decisions if d.subject[0] not in plan.aborted]
        for decision in decisions:
            if decision.step in ACT_STEPS and any(r.gate == APPROVAL for r in decision.reasons):
                self._requested.setdefault((decision.policy, decision.finding), k)
            if decision.ruling == "allow" and decision.step == "notify":
                case = decision.policy, decision.finding
                if decision.verb not in self._noticed[case]:
                    self._noticed[case] = {decision.verb: now}
                self._promise(now, decision, ())
        under_way: Counter[str] = Counter()
        for decision in decisions:
            if decision.step not in ACT_STEPS:
                continue
            allowed, depends = self._opened(decision)
            cluster = decision.subject[0]
            if not allowed or under_way[cluster] >= self._turns.settings.concurrent:
                continue
            closed_gates = self._turns.answers.shut(decision)
            if closed_gates:
                continue
            self._promise(
                now, decision, (*depends, *(ACT_TIME_GATES if closed_gates is None else ()))
            )
            under_way[cluster] += 1
            key = get_workload_key(facts[decision.finding].finding.subject)
            self._acts.append(_Act(now + self._turns.lag, decision, key))

    def _opened(self, decision: Decision) -> tuple[bool, tuple[str, ...]]:
        """Return whether an act is allowed, and the gates on the way that only people open."""
        if decision.ruling == "allow":
            return True, ()
        needs_approval = {reason.gate for reason in decision.reasons} == {APPROVAL}
        return needs_approval and not self._turns.answers.approves, (APPROVAL,)

    def _promise(self, now: datetime, decision: Decision, depends: tuple[str, ...]) -> None:
        step = "act" if decision.step in ACT_STEPS else decision.step
        self.promises.append(
            PromisedStep(now, step, decision.subject, decision.finding, depends, decision.policy)
        )


_KEY = ("cluster", "namespace", "workload_kind", "workload")
