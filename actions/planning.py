"""A plan: what policies decide about all cases now, the dearest first, within their budgets."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

import msgspec

from actions.decide import decide
from actions.policy.budgets import Spent, exceeded, spend
from actions.policy.matching import matches
from actions.policy.model import Policy
from fallow.acting import Decision, Facts, History, Reason

STEPS = ("observe", "notify", "grace", "snapshot", "act")
RULINGS = ("deny", "hold", "allow")
ACTING = frozenset({"snapshot", "act"})
ROOM = frozenset({"budget", "concurrent"})
"""Gates that only say that others come first."""
NONE: Mapping[tuple[str, str], History] = MappingProxyType({})
Subject = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""


class Refused(msgspec.Struct, frozen=True):
    """A case that no policy takes a step for, and every reason."""

    finding: str
    subject: Subject
    policy: str
    """Empty = no policy matches it."""
    reasons: tuple[Reason, ...]


class Plan(msgspec.Struct, frozen=True):
    """What may be done now or is held for now, the dearest first, and all that is refused."""

    decisions: tuple[Decision, ...]
    refused: tuple[Refused, ...]
    aborted: Reason | None = None
    """Why nothing at all is done: more cases than a policy's max_resources."""


def plan(
    policies: Sequence[Policy],
    facts: Sequence[Facts],
    spent: Spent,
    now: datetime,
    histories: Mapping[tuple[str, str], History] = NONE,
) -> Plan:
    """Decide about all cases: one decision per object, by the policy that goes furthest.

    Cases come in order of the dollars a day over the disruption (`rank`); an act that is allowed
    takes its part of the budgets before the next case is decided. `histories` are by policy and
    finding.
    """
    by_object: dict[Subject, list[Facts]] = {}
    for case in sorted(facts, key=rank):
        by_object.setdefault(subject_of(case), []).append(case)
    decisions: list[Decision] = []
    refused: list[Refused] = []
    ready: dict[str, int] = {}
    for subject, cases in by_object.items():
        found = [
            decide(policy, _known(case, policy, histories), spent, now)
            for case in cases
            for policy in policies
            if not matches(policy, case)
        ]
        if not found:
            refused.append(_unmatched(policies, cases[0], subject))
            continue
        best = max(found, key=_strength)
        for name in {d.policy for d in found if is_ready(d)}:
            ready[name] = ready.get(name, 0) + 1
        if best.ruling == "deny":
            refused.append(Refused(best.finding, subject, best.policy, best.reasons))
            continue
        decisions.append(best)
        if best.ruling == "allow" and best.step in ACTING:
            spent = spend(spent, best, now)
    return Plan(tuple(decisions), tuple(refused), _aborted(policies, ready, spent))


def rank(facts: Facts) -> tuple[Decimal, float, str]:
    """Order cases: most dollars a day over the disruption first, then GPU-hours.

    The disruption of a case is one, and one more for each time its owner took back what was
    stopped.
    """
    disruption = 1 + len(facts.history.restored_at)
    dollars = (facts.usd_per_day or Decimal(0)) / disruption
    hours = (facts.recommendation.gpu_hours_per_day or 0.0) / disruption
    return -dollars, -hours, facts.finding.id


def subject_of(facts: Facts) -> Subject:
    """Return whom a case is about, as decisions name it."""
    subject = facts.finding.subject
    return subject.cluster, subject.workload_kind, subject.namespace, subject.workload


def is_ready(decision: Decision) -> bool:
    """Say whether a case would be acted upon, if only there were room for it."""
    return decision.step in ACTING and all(r.gate in ROOM for r in decision.reasons)


def _strength(decision: Decision) -> tuple[bool, int, int]:
    """Order decisions: a policy that only watches hides nothing that another one holds."""
    does = decision.step != "observe" and decision.ruling != "deny"
    return does, RULINGS.index(decision.ruling), STEPS.index(decision.step)


def _known(case: Facts, policy: Policy, histories: Mapping[tuple[str, str], History]) -> Facts:
    history = histories.get((policy.name, case.finding.id))
    return case if history is None else msgspec.structs.replace(case, history=history)


def _unmatched(policies: Sequence[Policy], case: Facts, subject: Subject) -> Refused:
    if not policies:
        none = Reason("match", "there are no policies")
        return Refused(case.finding.id, subject, "", (none,))
    reasons = [
        Reason("match", f"{policy.name}: {'; '.join(r.text for r in matches(policy, case))}")
        for policy in policies
    ]
    return Refused(case.finding.id, subject, "", tuple(reasons))


def _aborted(policies: Sequence[Policy], ready: Mapping[str, int], spent: Spent) -> Reason | None:
    for policy in policies:
        if ready.get(policy.name):
            said = exceeded(policy, ready[policy.name], spent)
            if said is not None:
                return said
    return None
