"""Decide about all cases now, the most expensive first, within the policies' budgets."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

import msgspec

from actions.decide import decide
from actions.gates import list_gates
from actions.policy.budgets import BudgetUsage, count_action, find_excesses
from actions.policy.matching import explain_mismatch
from actions.policy.model import Policy
from fallow.action_models import CaseHistory, Decision, Facts, Reason

STEPS = ("observe", "notify", "grace", "snapshot", "act")
STRENGTHS = ("deny", "hold", "notice", "approval", "allow")
ACT_STEPS = frozenset({"snapshot", "act"})
CAPACITY_GATES = frozenset({"budget", "concurrent"})
"""Gates that only state that other cases come first."""
PERSONS_GATES = frozenset({"trusted", "demoted", "approval"})
"""Gates that hold an act until a person answers."""
NONE: Mapping[tuple[str, str], CaseHistory] = MappingProxyType({})
Waiting = Mapping[str, Mapping[str, int]]
NO_WAITING: Waiting = MappingProxyType({})
Subject = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""


class RefusedCase(msgspec.Struct, frozen=True):
    """A case for which no policy takes a step, with every reason."""

    finding: str
    subject: Subject
    policy: str
    """Empty = no policy matches it."""
    reasons: tuple[Reason, ...]


class ActionPlan(msgspec.Struct, frozen=True):
    """What may be done or is held now, the most expensive first, and all that is refused."""

    decisions: tuple[Decision, ...]
    refused: tuple[RefusedCase, ...]
    aborted: Mapping[str, Reason] = {}
    """Why nothing at all is done in a cluster: more cases than a policy's max_resources. The actors
    of the other clusters go on."""

    def list_clusters(self) -> list[str]:
        """Return the clusters of all cases."""
        decided, refused = (d.subject for d in self.decisions), (r.subject for r in self.refused)
        return sorted({subject[0] for subject in (*decided, *refused)})


def plan(
    policies: Sequence[Policy],
    facts: Sequence[Facts],
    usage: BudgetUsage,
    now: datetime,
    histories: Mapping[tuple[str, str], CaseHistory] = NONE,
    *,
    under_way: Mapping[str, int] | None = None,
    waiting: Waiting = NO_WAITING,
) -> ActionPlan:
    """Decide about all cases: one decision per object, by the policy that goes furthest.

    Cases are in the order of dollars per day over the disruption (`rank_case`). An allowed act is
    charged to the budgets before the next case is decided. `histories` are by policy and finding;
    `under_way` are the actions under way by cluster, None = those of `usage` are in each. `waiting`
    counts further cases that would be acted upon if their budgets had room, by policy and cluster.
    """
    whole = _decide_all(policies, facts, usage, now, histories, under_way, waiting)
    if not whole.aborted or len(whole.list_clusters()) == 1:
        return whole
    # Nothing is done in an aborted cluster, so its acts use up no budget of the whole fleet.
    uncharged = frozenset(whole.aborted)
    return _decide_all(policies, facts, usage, now, histories, under_way, waiting, uncharged)


def _decide_all(  # noqa: PLR0917  (a plan's inputs, and the clusters whose acts are not charged)
    policies: Sequence[Policy],
    facts: Sequence[Facts],
    usage: BudgetUsage,
    now: datetime,
    histories: Mapping[tuple[str, str], CaseHistory],
    under_way: Mapping[str, int] | None,
    waiting: Waiting,
    uncharged: frozenset[str] = frozenset(),
) -> ActionPlan:
    by_object: dict[Subject, list[Facts]] = {}
    for case in sorted(facts, key=rank_case):
        by_object.setdefault(get_subject(case), []).append(case)
    decisions: list[Decision] = []
    refused: list[RefusedCase] = []
    ready: dict[str, Counter[str]] = defaultdict(Counter)
    ready.update({name: Counter(counts) for name, counts in waiting.items()})
    charged: Counter[str] = Counter()
    for subject, cases in by_object.items():
        matches = [
            (policy, _add_history(case, policy, histories))
            for case in cases
            for policy in policies
            if not explain_mismatch(policy, case)
        ]
        if not matches:
            refused.append(_build_unmatched(policies, cases[0], subject))
            continue
        # Each cluster has an actor of its own: actions under way in another one are not its own.
        cluster = subject[0]
        begun = usage.concurrent if under_way is None else under_way.get(cluster, 0)
        here = msgspec.structs.replace(usage, concurrent=begun + charged[cluster])
        decided = [(decide(policy, case, here, now), policy) for policy, case in matches]
        best, _ = max(decided, key=lambda pair: _rank_strength(*pair))
        for name in {decision.policy for decision, _ in decided if is_ready(decision)}:
            ready[name][cluster] += 1
        if best.ruling == "deny":
            refused.append(RefusedCase(best.finding, subject, best.policy, best.reasons))
            continue
        decisions.append(best)
        if best.ruling == "allow" and best.step in ACT_STEPS:
            charged[cluster] += 1
            if cluster not in uncharged:
                counted = (*usage.uses, count_action(best, now))
                usage = msgspec.structs.replace(usage, uses=counted)
    return ActionPlan(tuple(decisions), tuple(refused), _find_aborted(policies, ready, usage))


def rank_case(facts: Facts) -> tuple[Decimal, float, str]:
    """Order cases: most dollars per day over the disruption first, then GPU-hours.

    The disruption of a case is 1, plus 1 for each reversal by its owner.
    """
    disruption = 1 + len(facts.history.restored_at)
    dollars = (facts.usd_per_day or Decimal(0)) / disruption
    hours = (facts.recommendation.gpu_hours_per_day or 0.0) / disruption
    return -dollars, -hours, facts.finding.id


def get_subject(facts: Facts) -> Subject:
    """Return the subject of a case in the form of decisions."""
    subject = facts.finding.subject
    return subject.cluster, subject.workload_kind, subject.namespace, subject.workload


def is_ready(decision: Decision) -> bool:
    """Return whether a case would be acted upon if its budgets had room."""
    return decision.step in ACT_STEPS and all(r.gate in CAPACITY_GATES for r in decision.reasons)


def _rank_strength(decision: Decision, policy: Policy) -> tuple[bool, int, int]:
    """Order decisions: a policy that only observes does not hide what another policy holds.

    Nor does the notice of a policy that does not act upon the case by itself hide an act that waits
    for nothing but approval: its owner was notified of that.
    """
    does = decision.step != "observe" and decision.ruling != "deny"
    strength: str = decision.ruling
    if decision.step in ACT_STEPS and {r.gate for r in decision.reasons} == {"approval"}:
        strength = "approval"
    elif decision.step == "notify" and decision.ruling == "allow":
        strength = "allow" if _can_act_alone(policy, decision) else "notice"
    return does, STRENGTHS.index(strength), STEPS.index(decision.step)


def _can_act_alone(policy: Policy, notice: Decision) -> bool:
    """Return whether a policy would act without a person, once the grace of its notice is over.

    The reasons of a notice are what would block the act now.
    """
    closed = {gate.gate for gate in list_gates() if gate.ruling == "deny"} | PERSONS_GATES
    return (
        policy.approvals.when != "always"
        and policy.stage("act") is not None
        and closed.isdisjoint(reason.gate for reason in notice.reasons)
    )


def _add_history(
    case: Facts, policy: Policy, histories: Mapping[tuple[str, str], CaseHistory]
) -> Facts:
    history = histories.get((policy.name, case.finding.id))
    return case if history is None else msgspec.structs.replace(case, history=history)


def _build_unmatched(policies: Sequence[Policy], case: Facts, subject: Subject) -> RefusedCase:
    if not policies:
        none = Reason("match", "there are no policies")
        return RefusedCase(case.finding.id, subject, "", (none,))
    reasons = [
        Reason(
            "match", f"{policy.name}: {'; '.join(r.text for r in explain_mismatch(policy, case))}"
        )
        for policy in policies
    ]
    return RefusedCase(case.finding.id, subject, "", tuple(reasons))


def _find_aborted(
    policies: Sequence[Policy], ready: Mapping[str, Mapping[str, int]], usage: BudgetUsage
) -> dict[str, Reason]:
    """Return the clusters in which a policy has too many cases, with the first such policy's."""
    aborted: dict[str, Reason] = {}
    for policy in policies:
        if policy.name in ready:
            aborted = find_excesses(policy, ready[policy.name], usage) | aborted
    return dict(sorted(aborted.items()))
