"""Back-test one policy: what a service with it alone would have done in a history without acts.

`service_replay.Service` evaluates it, in its enforcing form. Assumptions where history has no data:
notices are delivered at once, approvers approve, snapshots succeed, actions stick, and no more
actions are under way than the policy allows. Owners behave as they did in fact: a stopped workload
comes back at the time of its next real use. Reversals demote nothing here: the back-test measures
how many there would be.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import polars as pl

from actions.backtest import unresolved
from actions.backtest.case_rows import CaseRows
from actions.backtest.result import DAY_HOURS, Backtest, BacktestStop, count_blocked
from actions.backtest.service_replay import (
    ACT_TIME_GATES,
    ReplayAnswers,
    ReplayedCase,
    Service,
    ServiceTurns,
)
from actions.plan import CAPACITY_GATES, ActionPlan, RefusedCase, is_ready
from actions.policy.matching import is_any_match
from actions.policy.model import Approvals, Policy
from capacity.placement.fleet_state import WorkloadKey, convert_micros, get_workload_key, to_micros
from fallow.action_models import Decision, Reason
from fallow.protocols import PastFindings, Views
from fallow.settings.actions import ActionsSettings
from fallow.window import Window
from warehouse.steps import SERVING_LOAD, compose_query

HOUR_US = 3600 * 1_000_000
_EARLIER_STAGES = frozenset({"first-sight", "notice", "grace"})
_CENT = Decimal("0.01")
_UNLIMITED = 2**31


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
    settings: ActionsSettings | None = None,
    cluster: str | None = None,
    exact: bool = False,
    sparse: bool = True,
) -> Backtest:
    """Replay a policy over what an analyzer found at each time; see the module's docstring.

    `within`: a use this soon after a stop counts as a reversal; None = the policy's own value.
    `cluster`: only its findings; None = those of all clusters. Without `sparse` every evaluation
    decides about every workload: slower, with the same result.
    """
    own = policy if cluster is None else _narrow_to_cluster(policy, cluster)
    own = msgspec.structs.replace(
        build_enforced_policy(own), approvals=Approvals(), concurrent=_UNLIMITED
    )
    rows = CaseRows({"": past}, [own], len(turns), sparse=sparse)
    candidates = unresolved.find_candidates(past.rows, own.match)
    history = _History(own, rows, views, window, turns, within or own.reversals.within)
    service = Service(
        [own],
        rows,
        views,
        window,
        ServiceTurns(
            turns, settings or ActionsSettings(), answers=ReplayAnswers(shut=lambda _decision: ())
        ),
        observe=history.observe,
        owners=history,
        sparse=sparse,
        more_workloads=unresolved.list_workloads(candidates),
    )
    history.service = service
    service.run()
    several = len(turns) > 1
    return Backtest(
        policy=policy.name,
        fingerprint=build_enforced_policy(policy).fingerprint,
        window=Window(turns[0], turns[-1]) if several else window,
        step=turns[1] - turns[0] if several else timedelta(0),
        evaluations=len(turns),
        cases=rows.count,
        notified=sum(promise.step == "notify" for promise in service.promises),
        stops=tuple(history.stops),
        blocked=count_blocked(history.blocked, [stop.finding for stop in history.stops]),
        aborted=tuple(service.due.aborted),
        within=history.within,
        declared=policy.reversals.rate,
        exact=exact,
        unresolved=unresolved.find_unresolved(views, service.fleet_state, candidates),
        unknown=list_unknown_gates(policy),
    )


def list_unknown_gates(policy: Policy) -> tuple[str, ...]:
    """Return the gates of an act that history cannot evaluate under this policy.

    People answer some of them: the approvers, and owners whose workload was never really stopped in
    this history. The others are evaluated at the act itself.
    """
    approval = ("approval",) if policy.approvals.when != "none" else ()
    return (*approval, *ACT_TIME_GATES, "reverted", "demoted") if policy.stage("act") else ()


class _History:
    """What owners did in fact, and what the policy would have stopped."""

    service: Service

    def __init__(  # noqa: PLR0917  (one caller)
        self,
        policy: Policy,
        rows: CaseRows,
        views: Views,
        window: Window,
        turns: Sequence[datetime],
        within: timedelta,
    ) -> None:
        self._policy, self._rows, self._window, self.within = policy, rows, window, within
        at = [to_micros(time) for time in turns]
        self._used = _read_next_use(views, rows.lasts(), window, at)
        self.stops: list[BacktestStop] = []
        self.blocked: dict[tuple[str, str], set[str]] = defaultdict(set)

    def observe(self, _now: datetime, plan_now: ActionPlan) -> None:
        """Count what holds each case, but for the clusters in which nothing is done at all."""
        answers: tuple[Decision | RefusedCase, ...] = (*plan_now.decisions, *plan_now.refused)
        for answer in answers:
            if answer.subject[0] not in plan_now.aborted and not _is_allowed(answer):
                self._count_blocked(answer)

    def _count_blocked(self, answer: Decision | RefusedCase) -> None:
        ready = isinstance(answer, Decision) and is_ready(answer)
        for reason in answer.reasons:
            if reason.gate not in _EARLIER_STAGES and (ready or reason.gate not in CAPACITY_GATES):
                self.blocked[reason.gate, _get_rule(reason)].add(answer.finding)

    def stop(self, now: datetime, case: ReplayedCase, decision: Decision) -> datetime | None:
        """Record a stop; return when the workload was next in use in fact."""
        at, facts = to_micros(now), case.facts
        used = self._used.get(self._rows.case(case.row))
        used = None if used is None else max(used, at)
        key = get_workload_key(facts.finding.subject)
        free_until, gpu_hours = self._freed(key, at, used)
        within_us = self.within // timedelta(microseconds=1)
        is_known = used is not None or to_micros(self._window.end) - at >= within_us
        is_reversed = used is not None and used - at <= within_us
        rate = decision.usd_per_day
        share = gpu_hours / (facts.gpus * DAY_HOURS) if facts.gpus else 0.0
        announced = self.service.record.announced(decision.policy, facts.finding)
        stop = BacktestStop(
            at=now,
            finding=decision.finding,
            subject=decision.subject,
            verb=decision.verb,
            owner=decision.owner,
            gpus=decision.gpus,
            usd_per_day=rate,
            idle_since=facts.finding.window.start,
            notified_at=announced.get(decision.verb),
            used_at=None if used is None else convert_micros(used),
            back_at=convert_micros(free_until),
            gpu_hours=gpu_hours,
            usd=None if rate is None else (rate * Decimal(repr(round(share, 9)))).quantize(_CENT),
            is_reversed=is_reversed if is_known else None,
            is_marked_later=any(
                (pod.marks or at) > at for pod in self.service.fleet_state.pods(key, at)
            ),
        )
        self.stops.append(stop)
        return stop.used_at

    def _freed(self, key: WorkloadKey, at: int, used: int | None) -> tuple[int, float]:
        """Return until when a workload's GPUs would be free, and the GPU-hours until then."""
        end = to_micros(self._window.end) if used is None else used
        stretches = [
            (min(h.end, end) - max(h.start, at), min(h.end, end), h.share * h.weight)
            for h in self.service.fleet_state.all_allocations(key)
            if h.end > at and h.start < end
        ]
        hours = sum(length * gpus for length, _, gpus in stretches) / HOUR_US
        return max((until for _, until, _ in stretches), default=at), round(hours, 6)


def _narrow_to_cluster(policy: Policy, cluster: str) -> Policy:
    """Return a policy that matches the findings of one cluster only, or none."""
    is_possible = not policy.match.cluster or is_any_match(policy.match.cluster, cluster)
    match = msgspec.structs.replace(policy.match, cluster=(cluster if is_possible else "",))
    return msgspec.structs.replace(policy, match=match)


def _is_allowed(answer: Decision | RefusedCase) -> bool:
    return isinstance(answer, Decision) and answer.ruling == "allow"


def _get_rule(reason: Reason) -> str:
    """Return a budget's rule, or an empty text: the cases of other gates are counted per gate."""
    return reason.text.partition(": ")[0] if reason.gate in {"budget", "blackout"} else ""


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
