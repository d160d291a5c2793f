"""Decide about one case: a pure function of stored rows, a policy, what was done, and when.

    observe ─► notify ─► grace ─► snapshot ─► act        the next rung, never one further

Every gate is asked, so that whoever wants to know why reads all reasons at once. A no that guards
everything leaves nothing but watching; a no that guards the act leaves the notice. The same rows,
policy and moment give the same decision, byte for byte.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from actions.gates import Case, Closed, closed, notice_at
from actions.policy.budgets import Spent
from actions.policy.model import Policy
from fallow.acting import Decision, Facts, Ruling, Step, decision_id

SNAPSHOT_AGE = timedelta(hours=1)
"""A verified snapshot that is older is taken again before the act."""


def decide(policy: Policy, facts: Facts, spent: Spent, now: datetime) -> Decision:
    """Return the next rung for a case, whether it may be taken now, and every reason.

    An allowed notice tells in its reasons what would keep the act away now; any other allowed
    step has none.
    """
    shut = closed(Case(policy, facts, spent, now))
    step = _next(policy, facts, shut, now)
    telling = step == "notify" and notice_at(facts) is None
    ruling, next_at = _ruled([c for c in shut if c.gate.guards == "notify" or not telling])
    if step == "observe":
        shut = tuple(c for c in shut if c.gate.gate == "match")
        ruling, next_at = _ruled(shut)
    subject, advice = facts.finding.subject, facts.recommendation
    return Decision(
        id=decision_id(policy.name, facts.finding.id, step),
        policy=policy.name,
        finding=facts.finding.id,
        subject=(subject.cluster, subject.workload_kind, subject.namespace, subject.workload),
        verb=advice.verb,
        step=step,
        ruling=ruling,
        reasons=tuple(c.reason for c in shut),
        at=now,
        next_at=next_at,
        gpus=facts.gpus,
        owner=facts.owner,
        gpu_hours_per_day=advice.gpu_hours_per_day,
        usd_per_day=facts.usd_per_day,
        uid=facts.uid,
        generation=facts.generation,
        seen_until=facts.seen_until,
        parameters=_parameters(policy, facts),
    )


def _next(policy: Policy, facts: Facts, shut: Sequence[Closed], now: datetime) -> Step:
    """Return the rung that comes next: the last where the ladder ends before an act."""
    rungs = [rung.step for rung in policy.ladder]
    if not {"notify", "act"} & set(rungs):
        return "observe"
    if "notify" in rungs and notice_at(facts) is None:
        return "notify"
    if any(c.gate.gate == "grace" for c in shut):
        return "grace"
    if "act" not in rungs:
        return rungs[-1]
    rung = policy.rung("snapshot")
    if rung is not None and rung.required and not _snapshot(facts, now):
        return "snapshot"
    return "act"


def _snapshot(facts: Facts, now: datetime) -> bool:
    """Say whether a verified snapshot of this case is fresh, and later than any act on it."""
    taken, acted = facts.history.snapshot_at, facts.history.last_action_at
    if taken is None or now - taken > SNAPSHOT_AGE:
        return False
    return acted is None or taken > acted


def _ruled(shut: Sequence[Closed]) -> tuple[Ruling, datetime | None]:
    """Return the strictest ruling, and when time alone opens what holds."""
    if not shut:
        return "allow", None
    if any(c.gate.ruling == "deny" for c in shut):
        return "deny", None
    moments = [c.until for c in shut if c.until is not None]
    return "hold", max(moments) if len(moments) == len(shut) else None


def _parameters(policy: Policy, facts: Facts) -> dict[str, Any]:
    """Return what the executor is told: the finding's figures, its advice's, the rung's own."""
    rung = policy.rung("act")
    if rung is None:
        return {}
    return {
        **facts.finding.details,
        **facts.recommendation.parameters,
        **rung.parameters,
        "capabilities": list(rung.do),
        "allowed_namespaces": list(policy.allow.namespaces),
    }
