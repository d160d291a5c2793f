"""Decide about one case: a pure function of stored rows, a policy, past actions and the time.

    observe ─► notify ─► grace ─► snapshot ─► act        the next stage, never one further

Every gate is evaluated, so that a reader sees all reasons at once. A refusal by a gate that guards
everything leaves only observation; a refusal by a gate that guards the act leaves the notice. The
same rows, policy and time give the same decision, byte for byte.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from actions.gates import ClosedGate, GateInput, find_closed_gates, get_notice_time
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from actions.recommend import choose_restart
from fallow.action_models import Decision, Facts, Ruling, Step, compute_decision_id

SNAPSHOT_AGE = timedelta(hours=1)
"""A verified snapshot older than this is taken again before the act."""
READ_DETAILS = frozenset({
    "assumptions", "ended_exclusion", "headroom_by_hour_utc", "ranges", "same_type", "today", "why",
})  # fmt: skip
"""The details of findings that executors read; no other one may change what an executor does."""


def decide(policy: Policy, facts: Facts, usage: BudgetUsage, now: datetime) -> Decision:
    """Return the next stage for a case, whether it may be taken now, and every reason.

    The reasons of an allowed notice list what would block the act now; any other allowed step has
    no reasons.
    """
    act_stage = policy.stage("act")
    facts = choose_restart(facts, act_stage.verbs if act_stage else ())
    closed_gates = find_closed_gates(GateInput(policy, facts, usage, now))
    step = _find_next_step(policy, facts, closed_gates, now)
    is_first_notice = step == "notify" and get_notice_time(facts) is None
    ruling, next_at = _find_rule(
        [c for c in closed_gates if c.gate.guards == "notify" or not is_first_notice]
    )
    if step == "observe":
        closed_gates = tuple(c for c in closed_gates if c.gate.gate == "match")
        ruling, next_at = _find_rule(closed_gates)
    subject, advice = facts.finding.subject, facts.recommendation
    return Decision(
        id=compute_decision_id(policy.name, facts.finding.id, step),
        policy=policy.name,
        finding=facts.finding.id,
        subject=(subject.cluster, subject.workload_kind, subject.namespace, subject.workload),
        verb=advice.verb,
        step=step,
        ruling=ruling,
        reasons=tuple(c.reason for c in closed_gates),
        at=now,
        next_at=next_at,
        gpus=facts.gpus,
        owner=facts.owner,
        gpu_hours_per_day=advice.gpu_hours_per_day,
        usd_per_day=facts.usd_per_day,
        uid=facts.uid,
        generation=facts.generation,
        seen_until=facts.seen_until,
        parameters=_build_parameters(policy, facts),
    )


def drop_details(decision: Decision, facts: Facts) -> Decision:
    """Return a decision without details of its finding that no executor reads.

    Those journalled before had them all.
    """
    details = facts.finding.details
    parameters = {
        name: value
        for name, value in decision.parameters.items()
        if name in READ_DETAILS or name not in details or details[name] != value
    }
    return msgspec.structs.replace(decision, parameters=parameters)


def _find_next_step(
    policy: Policy, facts: Facts, closed_gates: Sequence[ClosedGate], now: datetime
) -> Step:
    """Return the stage that comes next; the last one where the stages end before an act."""
    steps = [stage.step for stage in policy.stages]
    if not {"notify", "act"} & set(steps):
        return "observe"
    if "notify" in steps and get_notice_time(facts) is None:
        return "notify"
    if any(c.gate.gate == "grace" for c in closed_gates):
        return "grace"
    if "act" not in steps:
        return steps[-1]
    snapshot = policy.stage("snapshot")
    if snapshot is not None and snapshot.required and not _has_fresh_snapshot(facts, now):
        return "snapshot"
    return "act"


def _has_fresh_snapshot(facts: Facts, now: datetime) -> bool:
    """Return whether a verified snapshot of this case is fresh and later than any act on it."""
    snapshot_at, acted_at = facts.history.snapshot_at, facts.history.last_action_at
    if snapshot_at is None or now - snapshot_at > SNAPSHOT_AGE:
        return False
    return acted_at is None or snapshot_at > acted_at


def _find_rule(closed_gates: Sequence[ClosedGate]) -> tuple[Ruling, datetime | None]:
    """Return the strictest ruling, and when it opens if only time has to pass."""
    if not closed_gates:
        return "allow", None
    if any(c.gate.ruling == "deny" for c in closed_gates):
        return "deny", None
    times = [c.until for c in closed_gates if c.until is not None]
    return "hold", max(times) if len(times) == len(closed_gates) else None


def _build_parameters(policy: Policy, facts: Facts) -> dict[str, Any]:
    """Return the executor's parameters: from the finding, its recommendation and the stage."""
    stage = policy.stage("act")
    if stage is None:
        return {}
    details = facts.finding.details
    return {
        **{name: details[name] for name in sorted(READ_DETAILS & details.keys())},
        **facts.recommendation.parameters,
        **stage.parameters,
        "capabilities": list(stage.do),
        "allowed_namespaces": list(policy.allow.namespaces),
    }
