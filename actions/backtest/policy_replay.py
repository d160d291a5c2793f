"""Replay one policy: each evaluation calls the same `decide` as live, on the data known then.

The replay makes assumptions where history has no data: notices are delivered at once, approvers
approve, snapshots succeed, actions stick, and no more actions are under way than the policy allows.
Owners behave as they did in fact: a stopped workload comes back at the time of its next real use,
and the replay does not act on it before then.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import msgspec
import polars as pl

from actions.backtest import unresolved
from actions.backtest.budget_tracker import BudgetTracker
from actions.backtest.case_rows import CaseRows
from actions.backtest.fleet_sizes import FleetSizes
from actions.backtest.result import (
    DAY_HOURS,
    AbortedEvaluation,
    Backtest,
    BacktestStop,
    count_blocked,
)
from actions.decide import decide
from actions.facts.case_facts import LatestSamples, build_facts, has_sample_times
from actions.facts.coverage import PastCoverage, find_partly_seen, find_shortest
from actions.facts.quotas import Quotas
from actions.plan import ACT_STEPS, CAPACITY_GATES, Subject, is_ready, rank_case
from actions.policy.budgets import (
    BudgetUsage,
    CountedAction,
    count_action,
    find_excesses,
    get_horizon,
)
from actions.policy.matching import is_any_match
from actions.policy.model import Approvals, Policy
from actions.recommend import recommend
from capacity.placement.fleet_state import (
    FleetState,
    WorkloadKey,
    convert_micros,
    get_workload_key,
    to_micros,
)
from capacity.placement.pending_queue import PendingWorkloads
from fallow.action_models import CaseHistory, Decision, Facts, Reason
from fallow.models import Finding, Recommendation
from fallow.protocols import PastFindings, Views
from fallow.window import Window
from warehouse.steps import SERVING_LOAD, compose_query
from warehouse.workload_gpus import WorkloadGpus

HOUR_US = 3600 * 1_000_000
_EARLIER_STAGES = frozenset({"first-sight", "notice", "grace"})
_FLEETING = frozenset(
    {"first-sight", "notice", "pressure", "benefit", "open", "frozen", "concurrent"}
)
"""Gates that may open at the next evaluation although nothing about the case changes."""


class _Surroundings(NamedTuple):
    """Pending workloads, quotas and device samples at one time; None = not needed."""

    line: PendingWorkloads | None
    quotas: Quotas | None
    seen: LatestSamples | None


class _CaseProgress:
    """The state of one case so far."""

    def __init__(self) -> None:
        self.first_seen: datetime | None = None
        self.notified_at: datetime | None = None
        self.announced: dict[str, datetime] = {}
        self.snapshot_at: datetime | None = None


class _WorkloadProgress:
    """The state of one workload so far."""

    def __init__(self) -> None:
        self.last_action_at: datetime | None = None
        self.restored: list[datetime] = []
        self.stopped_until: float = 0.0


def build_enforced_policy(policy: Policy) -> Policy:
    """Return a policy in its enforcing form: the back-test evaluates that form."""
    return msgspec.structs.replace(policy, mode="enforce")


def replay_policy(  # noqa: PLR0917  (what it replays, over what, how)
    policy: Policy,
    past: PastFindings,
    views: Views,
    window: Window,
    turns: Sequence[datetime],
    within: timedelta | None = None,
    *,
    cluster: str | None = None,
    exact: bool = False,
) -> Backtest:
    """Replay a policy over what an analyzer found at each time; see the module's docstring.

    `within`: a use this soon after a stop counts as a reversal; None = the policy's own value.
    `cluster`: only its findings; None = those of all clusters.
    """
    return _Replay(policy, past, views, window, turns, within, cluster).run(exact=exact)


ACT_TIME_GATES = ("evidence", "awake", "away", "identity", "snapshot", "keep", "fights", "pressure")
"""Gates that are evaluated at the time of an act: they read the sources, the objects, their
protections and the pending pods again. History has no answers for that time."""


def list_unknown_gates(policy: Policy) -> tuple[str, ...]:
    """Return the gates of an act that history cannot evaluate under this policy.

    People answer some of them: the approvers, and owners whose workload was never really stopped in
    this history. The others are evaluated at the act itself.
    """
    approval = ("approval",) if policy.approvals.when != "none" else ()
    return (*approval, *ACT_TIME_GATES, "reverted", "demoted") if policy.stage("act") else ()


class _Replay:
    def __init__(  # noqa: PLR0917  (one caller)
        self,
        policy: Policy,
        past: PastFindings,
        views: Views,
        window: Window,
        turn_times: Sequence[datetime],
        within: timedelta | None,
        cluster: str | None,
    ) -> None:
        self._original = policy
        policy = policy if cluster is None else _narrow_to_cluster(policy, cluster)
        self._policy = msgspec.structs.replace(build_enforced_policy(policy), approvals=Approvals())
        self._past, self._views, self._window = past, views, window
        self._turn_times, self._at = turn_times, [to_micros(m) for m in turn_times]
        self._within = within or policy.reversals.within
        self._case_rows = CaseRows(past.rows, policy, len(turn_times))
        lasts = self._case_rows.lasts()
        self._candidates = unresolved.find_candidates(past.rows, policy.match)
        keys = [*lasts.select(_KEY).unique(maintain_order=True).iter_rows()]
        keys = [*dict.fromkeys((*keys, *unresolved.list_workloads(self._candidates)))]
        self._fleet_state = FleetState(views, window.start, window.end, keys)
        spans = self._case_rows.spans()
        partly_seen = find_partly_seen(
            views, find_shortest(spans, self._at), window.start, window.end
        )
        self._coverage = PastCoverage(views, spans, partly_seen, self._at)
        self._used = _read_next_use(views, lasts, window, self._at)
        self._fleets = FleetSizes(views, self._fleet_state, self._policy, turn_times)
        self._horizon = get_horizon([self._policy])
        # Who is over its nominal quota changes without a change in any row of a case.
        self._fleeting = _FLEETING | ({"match"} if policy.match.over_quota else set())
        self._due = self._case_rows.at
        self._cases: dict[int, _CaseProgress] = defaultdict(_CaseProgress)
        self._workloads: dict[Subject, _WorkloadProgress] = defaultdict(_WorkloadProgress)
        # The cluster of each case that waits for a budget.
        self._ready: dict[int, str] = {}
        self._counted: list[CountedAction] = []
        self._stops: list[tuple[int, BacktestStop]] = []
        self._blocked: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._aborted: list[AbortedEvaluation] = []
        self._notified = 0

    def run(self, *, exact: bool) -> Backtest:
        for k in range(len(self._turn_times)):
            self._turn(k)
        return Backtest(
            policy=self._original.name,
            fingerprint=build_enforced_policy(self._original).fingerprint,
            window=Window(self._turn_times[0], self._turn_times[-1])
            if len(self._turn_times) > 1
            else self._window,
            step=self._turn_times[1] - self._turn_times[0]
            if len(self._turn_times) > 1
            else timedelta(0),
            evaluations=len(self._turn_times),
            cases=self._case_rows.count,
            notified=self._notified,
            stops=tuple(stop for _, stop in self._stops),
            blocked=count_blocked(self._blocked, [case for case, _ in self._stops]),
            aborted=tuple(self._aborted),
            within=self._within,
            declared=self._original.reversals.rate,
            exact=exact,
            unresolved=unresolved.find_unresolved(self._views, self._fleet_state, self._candidates),
            unknown=list_unknown_gates(self._original),
        )

    def _turn(self, k: int) -> None:
        now = self._turn_times[k]
        case_findings = []
        for case in sorted(set(self._due[k])):
            row = self._case_rows.row_at(case, k)
            self._ready.pop(case, None)
            if row is None:
                continue
            finding = self._past.finding(row)
            until = self._workloads[_get_subject(finding)].stopped_until
            if until > self._at[k]:
                self._wake(case, until)
                continue
            self._cases[case].first_seen = self._cases[case].first_seen or now
            case_findings.append((case, finding, self._coverage.get(row, k)))
        waiting = {
            case: cluster
            for case, cluster in self._ready.items()
            if self._case_rows.row_at(case, k) is not None
        }
        self._ready = waiting
        if case_findings:
            self._decide(k, now, case_findings, Counter(waiting.values()))

    def _decide(
        self,
        k: int,
        now: datetime,
        cases_found: Sequence[tuple[int, Finding, WorkloadGpus | None]],
        waiting: Counter[str],
    ) -> None:
        usage_before = self._fleets.at(k)
        self._counted = [u for u in self._counted if u.at > now - self._horizon]
        clusters = {case: finding.subject.cluster for case, finding, _ in cases_found}
        waiting = Counter({c: n for c, n in waiting.items() if c in clusters.values()})
        aborted = find_excesses(self._policy, waiting, usage_before)
        self._abort(k, now, aborted, clusters)
        cases_found = [each for each in cases_found if each[1].subject.cluster not in aborted]
        usage = msgspec.structs.replace(usage_before, trusted=frozenset({self._policy.name}))
        decided = self._decide_cases(cases_found, usage, now)
        ready = {case: d.subject[0] for case, d, _ in decided if is_ready(d)}
        counts = waiting + Counter(ready.values())
        aborted = {
            cluster: reason
            for cluster, reason in find_excesses(self._policy, counts, usage_before).items()
            if cluster not in aborted
        }
        self._ready |= {case: cluster for case, cluster in ready.items() if cluster in aborted}
        self._abort(k, now, aborted, {case: d.subject[0] for case, d, _ in decided})
        tracker = BudgetTracker(self._policy, usage, self._counted, now)
        admitted = [
            (case, tracker.admit(d, facts) if _is_allowed_act(d) else d, facts)
            for case, d, facts in decided
            if d.subject[0] not in aborted
        ]
        for case, decision, facts in admitted:
            self._apply(k, now, case, facts, decision)

    def _decide_cases(
        self,
        cases_found: Sequence[tuple[int, Finding, WorkloadGpus | None]],
        usage: BudgetUsage,
        now: datetime,
    ) -> list[tuple[int, Decision, Facts]]:
        """Decide each case with full budgets, in the order in which they take from them."""
        surroundings = self._around(now, [finding for _, finding, _ in cases_found])
        cases = [
            (self._facts(case, finding, advice[0], now, surroundings, held_gpus=held_gpus), case)
            for case, finding, held_gpus in cases_found
            if (advice := recommend(finding))
        ]
        cases.sort(key=lambda each: rank_case(each[0]))
        return [(case, *self._decided(case, facts, usage, now)) for facts, case in cases]

    def _decided(
        self, case: int, facts: Facts, free: BudgetUsage, now: datetime
    ) -> tuple[Decision, Facts]:
        """Decide with full budgets. A snapshot that comes next is taken, and is kept."""
        decision = decide(self._policy, facts, free, now)
        if decision.step != "snapshot" or decision.ruling != "allow":
            return decision, facts
        self._cases[case].snapshot_at = now
        history = msgspec.structs.replace(facts.history, snapshot_at=now)
        case_facts = msgspec.structs.replace(facts, history=history)
        return decide(self._policy, case_facts, free, now), case_facts

    def _abort(
        self, k: int, now: datetime, reasons: Mapping[str, Reason], clusters: Mapping[int, str]
    ) -> None:
        """Abort the evaluation of the clusters with a reason, as each one's actor does.

        The others go on. `clusters`: the cluster of each case.
        """
        self._aborted += [AbortedEvaluation(now, why, c) for c, why in reasons.items()]
        aborted = [case for case, cluster in clusters.items() if cluster in reasons]
        self._later(k, [case for case in aborted if case not in self._ready])

    def _later(self, k: int, cases: Sequence[int]) -> None:
        if k + 1 < len(self._due):
            self._due[k + 1] += cases

    def _apply(self, k: int, now: datetime, case: int, facts: Facts, decision: Decision) -> None:
        if decision.ruling == "allow":
            if decision.step == "notify":
                progress = self._cases[case]
                progress.notified_at = progress.notified_at or now
                if decision.verb not in progress.announced:
                    progress.announced = {decision.verb: now}
                self._notified += 1
                # Nothing changes before the grace period ends; wait for at least one evaluation.
                grace = self._policy.stage("grace")
                wait = _to_microseconds(grace.wait) if grace else 0
                self._wake(case, self._at[k] + max(wait, 1))
            elif decision.step in ACT_STEPS:
                self._stop(now, case, facts, decision)
            return
        self._hold(k, case, facts, decision)

    def _hold(self, k: int, case: int, facts: Facts, decision: Decision) -> None:
        """Record what holds a case, and when to evaluate it again."""
        ready = is_ready(decision)
        for reason in decision.reasons:
            if reason.gate not in _EARLIER_STAGES and (ready or reason.gate not in CAPACITY_GATES):
                self._blocked[reason.gate, _get_rule(reason)].add(case)
        if ready:
            self._ready[case] = decision.subject[0]
        if decision.ruling == "hold" and decision.next_at is not None:
            self._wake(case, to_micros(decision.next_at))
        elif self._may_open(facts.finding, decision):
            self._again(k, case)
        edge = self._fleet_state.next_edge(get_workload_key(facts.finding.subject), self._at[k])
        if edge is not None:
            # Strictly after: a change at an evaluation's own time is known only at the next
            # evaluation.
            self._wake(case, edge + 1)

    def _may_open(self, finding: Finding, decision: Decision) -> bool:
        """Return whether a step may be allowed at the next evaluation with the same row.

        A finding's vetoes refuse every step, and another row of its case is due by itself.
        """
        if finding.details.get("vetoes"):
            return False
        return any(r.gate in self._fleeting for r in decision.reasons)

    def _stop(self, now: datetime, case: int, facts: Facts, decision: Decision) -> None:
        self._counted.append(count_action(decision, now))
        at, finding = to_micros(now), facts.finding
        used = self._used.get(case)
        used = None if used is None else max(used, at)
        free_until, gpu_hours = self._freed(get_workload_key(finding.subject), at, used)
        is_known = used is not None or to_micros(self._window.end) - at >= _to_microseconds(
            self._within
        )
        is_reversed = used is not None and used - at <= _to_microseconds(self._within)
        rate = decision.usd_per_day
        share = gpu_hours / (facts.gpus * DAY_HOURS) if facts.gpus else 0.0
        usd = None if rate is None else (rate * Decimal(repr(round(share, 9)))).quantize(_CENT)
        progress = self._workloads[decision.subject]
        progress.last_action_at = now
        progress.stopped_until = float("inf") if used is None else used
        if used is not None:
            progress.restored.append(convert_micros(used))
        stop = BacktestStop(
            at=now,
            finding=finding.id,
            subject=decision.subject,
            verb=decision.verb,
            owner=decision.owner,
            gpus=decision.gpus,
            usd_per_day=rate,
            idle_since=finding.window.start,
            notified_at=self._cases[case].announced.get(decision.verb),
            used_at=None if used is None else convert_micros(used),
            back_at=convert_micros(free_until),
            gpu_hours=gpu_hours,
            usd=usd,
            is_reversed=is_reversed if is_known else None,
        )
        self._stops.append((case, stop))

    def _freed(self, key: WorkloadKey, at: int, used: int | None) -> tuple[int, float]:
        """Return until when a workload's GPUs would be free, and the GPU-hours until then."""
        end = to_micros(self._window.end) if used is None else used
        stretches = [
            (min(h.end, end) - max(h.start, at), min(h.end, end), h.share * h.weight)
            for h in self._fleet_state.all_allocations(key)
            if h.end > at and h.start < end
        ]
        hours = sum(length * gpus for length, _, gpus in stretches) / HOUR_US
        return max((until for _, until, _ in stretches), default=at), round(hours, 6)

    def _around(self, now: datetime, findings: Sequence[Finding]) -> "_Surroundings":
        """Return what facts need besides the fleet state, where this policy or a case needs it."""
        needs_queue = self._policy.on_pressure or self._policy.on_benefit
        quiet = [finding for finding in findings if not has_sample_times(finding)]
        return _Surroundings(
            PendingWorkloads(self._fleet_state, now) if needs_queue else None,
            Quotas(self._views, now) if self._policy.match.over_quota else None,
            LatestSamples(self._views, self._fleet_state, quiet, now) if quiet else None,
        )

    def _facts(
        self,
        case: int,
        finding: Finding,
        advice: Recommendation,
        now: datetime,
        surroundings: "_Surroundings",
        *,
        held_gpus: WorkloadGpus | None,
    ) -> Facts:
        facts = build_facts(
            self._fleet_state,
            finding,
            advice,
            now,
            pending=surroundings.line,
            quotas=surroundings.quotas,
            samples=surroundings.seen,
            held_gpus=held_gpus,
        )
        progress, workload = self._cases[case], self._workloads[_get_subject(finding)]
        history = CaseHistory(
            first_seen=progress.first_seen,
            notified_at=progress.notified_at,
            announced=dict(progress.announced),
            snapshot_at=progress.snapshot_at,
            last_action_at=workload.last_action_at,
            restored_at=tuple(workload.restored),
        )
        return msgspec.structs.replace(facts, history=history)

    def _again(self, k: int, case: int) -> None:
        if k + 1 < len(self._due):
            self._due[k + 1].append(case)

    def _wake(self, case: int, at: float) -> None:
        """Schedule the next evaluation at the first time that is not before `at`."""
        k = bisect_left(self._at, at)
        if k < len(self._at):
            self._due[k].append(case)


_KEY = ("cluster", "namespace", "workload_kind", "workload")
_CENT = Decimal("0.01")


def _get_subject(finding: Finding) -> Subject:
    subject = finding.subject
    return subject.cluster, subject.workload_kind, subject.namespace, subject.workload


def _narrow_to_cluster(policy: Policy, cluster: str) -> Policy:
    """Return a policy that matches the findings of one cluster only, or none."""
    is_possible = not policy.match.cluster or is_any_match(policy.match.cluster, cluster)
    match = msgspec.structs.replace(policy.match, cluster=(cluster if is_possible else "",))
    return msgspec.structs.replace(policy, match=match)


def _is_allowed_act(decision: Decision) -> bool:
    return decision.ruling == "allow" and decision.step in ACT_STEPS


def _get_rule(reason: Reason) -> str:
    """Return a budget's rule, or an empty text: the cases of other gates are counted per gate."""
    return reason.text.partition(": ")[0] if reason.gate in {"budget", "blackout"} else ""


def _to_microseconds(length: timedelta) -> int:
    return round(length.total_seconds() * 1_000_000)


def _read_next_use(
    views: Views, lasts: pl.DataFrame, window: Window, at: Sequence[int]
) -> dict[int, int]:
    """Return when each case's workload was next in use after its idle stretch."""
    if lasts.is_empty():
        return {}
    hourly = all(time_us % HOUR_US == 0 for time_us in at)
    sql = compose_query((SERVING_LOAD, "used"), "actions.backtest")
    parameters = {"cases": lasts.write_json(), "since": window.start, "until": window.end}
    rows = views.query(sql, {**parameters, "hourly": hourly}).to_pylist()
    return {r["case_id"]: r["used_us"] for r in rows if r["used_us"] is not None}
