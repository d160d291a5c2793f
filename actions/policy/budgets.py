"""Compute how much may still be done: the most restrictive of all budgets in force counts.

A budget counts the actions of the last `per`, whatever their outcome. An action fits if the total
with it is within the limit, so no stretch of that length ever holds more. Where a figure is unknown
(a price, the size of the fleet, another cluster's actions), nothing fits.

A percentage above 0 always allows at least the smallest unit, or a small fleet could do nothing at
all: one workload, one owner; for GPUs and dollars one node where nodes are the subjects, and what
the largest node has where workloads are.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from itertools import accumulate
from typing import Self

import msgspec

from actions.policy.model import ActionBudget, Policy, PolicyAmount
from actions.policy.schedule import get_closing, is_open
from fallow.action_models import Decision, Facts, Reason
from fallow.window import format_duration

HOURS_PER_DAY = 24
MIN_CASES = 10
"""The minimum number of cases of a share in `max_resources` above 0. At night most of a small fleet
may be idle together, and a share of it would then stop every evaluation. Budgets and
`concurrent` bound the acts."""
NODE = "Node"
"""Kind of the subject where nodes are acted upon."""


class CountedAction(msgspec.Struct, frozen=True):
    """One action that counts against budgets."""

    at: datetime
    policy: str
    workload: tuple[str, str, str, str]
    """cluster, kind, namespace, name"""
    gpus: Decimal | None
    owner: str | None
    usd_per_hour: Decimal | None
    """GPUs and dollars: None = unknown."""


class FleetSize(msgspec.Struct, frozen=True):
    """The size of a cluster, or of all: the base of percentages. None = unknown."""

    gpus: float | None = None
    workloads: int | None = None
    owners: int | None = None
    usd_per_hour: Decimal | None = None
    largest_node_gpus: float | None = None
    largest_node_usd_per_hour: Decimal | None = None
    """GPUs and dollars per hour of the largest node: the least that a percentage above 0 allows."""


class BudgetUsage(msgspec.Struct, frozen=True):
    """The actions so far, and the size of the fleet. None = unknown."""

    uses: tuple[CountedAction, ...] = ()
    elsewhere: tuple[CountedAction, ...] | None = None
    """The actions in other clusters, which budgets of the whole fleet count."""
    elsewhere_unknown: str = "they were not read"
    """Why `elsewhere` is None."""
    fleet_gpus: float | None = None
    fleet_workloads: int | None = None
    fleet_owners: int | None = None
    fleet_usd_per_hour: Decimal | None = None
    largest_node_gpus: float | None = None
    largest_node_usd_per_hour: Decimal | None = None
    clusters: Mapping[str, FleetSize] = {}
    """The size of each cluster. Empty: there is one, and its size is the fleet's (as in records of
    the journal from before this field)."""
    concurrent: int = 0
    """Actions under way."""
    frozen: str | None = None
    """Why nothing at all may be done."""
    demoted: frozenset[str] = frozenset()
    """Policies whose owners reversed too many actions."""
    trusted: frozenset[str] = frozenset()
    """Policies whose back-test proved the declared rate, or that a person trusts by hand."""
    by_hand: Mapping[str, str] = {}
    """Those of `trusted` that a person trusts without a proof: who, when and why."""
    unproved: Mapping[str, str] = {}
    """Why a policy is not trusted: the result of its last back-test, and what is missing."""
    acted: Mapping[str, int] = {}
    """Number of actions that a policy ever took; a missing policy took none."""

    def get_size(self, scope: str, cluster: str) -> FleetSize:
        """Return what percentages are of: all clusters with `scope: fleet`, else this cluster."""
        if scope != "fleet" and self.clusters:
            return self.clusters.get(cluster, FleetSize())
        return FleetSize(
            gpus=self.fleet_gpus,
            workloads=self.fleet_workloads,
            owners=self.fleet_owners,
            usd_per_hour=self.fleet_usd_per_hour,
            largest_node_gpus=self.largest_node_gpus,
            largest_node_usd_per_hour=self.largest_node_usd_per_hour,
        )


def build_usage(fleet: FleetSize, clusters: Mapping[str, FleetSize]) -> BudgetUsage:
    """Return the usage of a fleet in which nothing was done yet."""
    return BudgetUsage(
        fleet_gpus=fleet.gpus,
        fleet_workloads=fleet.workloads,
        fleet_owners=fleet.owners,
        fleet_usd_per_hour=fleet.usd_per_hour,
        largest_node_gpus=fleet.largest_node_gpus,
        largest_node_usd_per_hour=fleet.largest_node_usd_per_hour,
        clusters=clusters,
    )


class BudgetBlock(msgspec.Struct, frozen=True):
    """A budget with nothing left for a case: why, and when its window closes or a use ages out."""

    reason: Reason
    until: datetime | None


def count_action(decision: Decision, at: datetime) -> CountedAction:
    """Return how an action by a decision counts against budgets."""
    return CountedAction(
        at=at,
        policy=decision.policy,
        workload=decision.subject,
        gpus=to_exact(decision.gpus),
        owner=decision.owner,
        usd_per_hour=_compute_hourly(decision.usd_per_day),
    )


def get_horizon(policies: Sequence[Policy]) -> timedelta:
    """Return the longest lookback of all budgets of these policies."""
    return max((b.per for p in policies for b in p.budgets), default=timedelta(0))


def has_fleet_budget(policies: Sequence[Policy]) -> bool:
    """Return whether a budget of these policies counts the actions in other clusters too."""
    return any(b.scope == "fleet" for p in policies for b in p.budgets)


def find_blocks(
    policy: Policy, facts: Facts, usage: BudgetUsage, now: datetime
) -> tuple[BudgetBlock, ...]:
    """Return every budget in force that has nothing left for a case; empty = the case fits."""
    subject = facts.finding.subject
    case = CountedAction(
        at=now,
        policy=policy.name,
        workload=(subject.cluster, subject.workload_kind, subject.namespace, subject.workload),
        gpus=to_exact(facts.gpus),
        owner=facts.owner,
        usd_per_hour=_compute_hourly(facts.usd_per_day),
    )
    blocks = []
    for budget in policy.budgets:
        if is_in_force(budget, now):
            size = usage.get_size(budget.scope, subject.cluster)
            floor = BudgetFloor.of_case(facts, case, size)
            base = _BudgetBase(size, floor, _explain_elsewhere(budget, usage))
            uses = _count_uses(budget, usage, now, case)
            exhausted = [m for m in _list_meters(budget, uses, 0, case, base) if not m.fits]
            until = _get_free_time(budget, uses, case, base, now) if exhausted else None
            blocks += [
                BudgetBlock(Reason("budget", _describe(budget, m)), until) for m in exhausted
            ]
    return tuple(blocks)


def to_exact(value: float | Decimal | None) -> Decimal | None:
    """Return a number as an exact decimal; None = unknown: missing, not finite, or below zero."""
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return value if isinstance(value, Decimal) else Decimal(str(value))


def is_in_force(budget: ActionBudget, now: datetime) -> bool:
    """Return whether a budget is in force at a given time."""
    return budget.window is None or is_open(budget.window, now)


def find_excesses(
    policy: Policy, cases: Mapping[str, int], usage: BudgetUsage
) -> dict[str, Reason]:
    """Return the clusters with more cases ready for an act than the policy allows, and why."""
    reasons = {c: _explain_many(policy, c, cases[c], usage) for c in sorted(cases)}
    return {cluster: reason for cluster, reason in reasons.items() if reason is not None}


def _explain_many(policy: Policy, cluster: str, cases: int, usage: BudgetUsage) -> Reason | None:
    size = usage.get_size("cluster", cluster)
    of_several = len(usage.clusters) > 1
    limit = _limit(policy.max_resources, size.workloads, is_whole=True)
    if limit is None:
        named = f"size of cluster {cluster}" if of_several else "cluster's size"
        text = f"the {named} is unknown: {policy.max_resources} of it cannot be counted"
        return Reason("max-resources", f"{policy.name}: {text}")
    if policy.max_resources.share and limit > 0:
        limit = max(limit, Decimal(MIN_CASES))
    if cases > limit:
        named = f" of cluster {cluster}" if of_several else ""
        where = " in this cluster" if of_several else ""
        text = f"{cases} cases{named} are more than max_resources"
        limits = f"({policy.max_resources} = {limit:f}); nothing at all is done{where}"
        return Reason("max-resources", f"{policy.name}: {text} {limits}")
    return None


class BudgetFloor(msgspec.Struct, frozen=True):
    """The least that a percentage above 0 allows. None = no more than the percentage itself."""

    gpus: Decimal | None
    usd_per_hour: Decimal | None
    why: str = ""
    """Why there is no such minimum, where the reason matters."""

    @classmethod
    def of_fleet(cls, size: FleetSize) -> Self:
        """Return the minimum for workloads: what the largest node has."""
        return cls(to_exact(size.largest_node_gpus), to_exact(size.largest_node_usd_per_hour))

    @classmethod
    def of_case(cls, facts: Facts, case: CountedAction, size: FleetSize) -> Self:
        """Return the minimum for a case: a node's own size, unless it is the last of its pool."""
        if facts.finding.subject.workload_kind != NODE:
            return cls.of_fleet(size)
        if facts.pool_others is None:
            return cls(None, None, "whether its pool has another schedulable node is unknown")
        if facts.pool_others < 1:
            return cls(None, None, "it is the last schedulable node of its pool")
        return cls(case.gpus, case.usd_per_hour)


class _Meter(msgspec.Struct, frozen=True):
    """One limit of a budget, the amount used and the amount that a case needs. None = unknown."""

    name: str
    limit: Decimal | None
    used: Decimal | None
    requested: Decimal | None
    why: str = ""
    """Why a percentage allows no whole node."""
    unknown: str = ""
    """Why the amount used is unknown."""

    @property
    def fits(self) -> bool:
        is_known = self.limit is not None and self.used is not None and self.requested is not None
        return is_known and self.requested <= self.limit - self.used  # type: ignore[operator]


class _BudgetBase(msgspec.Struct, frozen=True):
    """What a budget is a share of, the least that a share allows, and why its use is unknown."""

    size: FleetSize
    floor: BudgetFloor
    unknown: str


def _explain_elsewhere(budget: ActionBudget, usage: BudgetUsage) -> str:
    """Return why the actions in other clusters, which a budget counts, are unknown."""
    if budget.scope != "fleet" or usage.elsewhere is not None:
        return ""
    return f"the actions in other clusters are unknown: {usage.elsewhere_unknown}"


class _CountedUses:
    """The actions that count against a budget, the oldest first, and sums of the newest of them.

    A list's item k is of all but the k oldest; None = one of them is unknown.
    """

    def __init__(self, uses: Sequence[CountedAction]) -> None:
        ordered = sorted(uses, key=lambda u: u.at)
        self.times = [u.at for u in ordered]
        self.gpus = _sum_newest([u.gpus for u in ordered])
        self.usd_per_hour = _sum_newest([u.usd_per_hour for u in ordered])
        self.newest_of = {u.owner: place for place, u in enumerate(ordered)}
        """The place of each owner's newest use. An unknown owner counts as another one."""
        firsts = [u.owner is None or self.newest_of[u.owner] == n for n, u in enumerate(ordered)]
        self.owners = [*accumulate(map(int, reversed(firsts)), initial=0)][::-1]

    def has_owner(self, owner: str | None, expired: int) -> bool:
        """Return whether a known owner has one of all but the oldest uses."""
        return owner is not None and self.newest_of.get(owner, -1) >= expired


def _sum_newest(values: Sequence[Decimal | None]) -> list[Decimal | None]:
    """Return the sums of all but the k oldest values, for each k; None from an unknown one on."""
    sums: list[Decimal | None] = [Decimal(0)]
    for value in reversed(values):
        last = sums[-1]
        sums.append(None if last is None or value is None else last + value)
    return sums[::-1]


def _list_meters(
    budget: ActionBudget, uses: _CountedUses, expired: int, case: CountedAction, base: _BudgetBase
) -> Iterator[_Meter]:
    """Yield the limits of a budget when so many of its oldest uses are too old."""
    for meter in _list_known_meters(budget, uses, expired, case, base):
        if base.unknown:
            yield msgspec.structs.replace(meter, used=None, unknown=base.unknown)
        else:
            yield meter


def _list_known_meters(
    budget: ActionBudget, uses: _CountedUses, expired: int, case: CountedAction, base: _BudgetBase
) -> Iterator[_Meter]:
    size, floor = base.size, base.floor
    if budget.workloads is not None:
        limit = _limit(budget.workloads, size.workloads, is_whole=True)
        yield _Meter("workloads", limit, Decimal(len(uses.times) - expired), Decimal(1))
    if budget.gpus is not None:
        limit = _limit(budget.gpus, size.gpus, floor=floor.gpus)
        why = floor.why if budget.gpus.share else ""
        yield _Meter("gpus", limit, uses.gpus[expired], case.gpus, why)
    if budget.owners is not None:
        limit = _limit(budget.owners, size.owners, is_whole=True)
        requested = Decimal(not uses.has_owner(case.owner, expired))
        yield _Meter("owners", limit, Decimal(uses.owners[expired]), requested)
    if budget.usd_per_hour is not None:
        limit = _limit(budget.usd_per_hour, size.usd_per_hour, floor=floor.usd_per_hour)
        why = floor.why if budget.usd_per_hour.share else ""
        yield _Meter("usd_per_hour", limit, uses.usd_per_hour[expired], case.usd_per_hour, why)


class _CountMemo:
    """What was counted of the same uses at the same time: a plan has as many cases as refusals."""

    def __init__(self, usage: BudgetUsage, now: datetime) -> None:
        self._of = (usage.uses, usage.elsewhere, usage.clusters, now)
        self.counted: dict[tuple[ActionBudget, str, str, str | None], _CountedUses] = {}

    def is_of(self, usage: BudgetUsage, now: datetime) -> bool:
        """Return whether the uses are the very same ones."""
        uses, elsewhere, clusters, at = self._of
        return (
            uses is usage.uses
            and elsewhere is usage.elsewhere
            and clusters is usage.clusters
            and at == now
        )


_memo = _CountMemo(BudgetUsage(), datetime.min.replace(tzinfo=UTC))


def _count_uses(
    budget: ActionBudget, usage: BudgetUsage, now: datetime, case: CountedAction
) -> _CountedUses:
    """Return what counts against a budget (`_select_counted`), counted once for the same uses."""
    global _memo  # noqa: PLW0603  (threads replace it whole, and each goes on with its own)
    memo = _memo
    if not memo.is_of(usage, now):
        memo = _memo = _CountMemo(usage, now)
    policy = "" if budget.counts == "all" else case.policy
    cluster = "" if budget.scope == "fleet" else case.workload[0]
    key = (budget, policy, cluster, _group(budget, case))
    if key not in memo.counted:
        memo.counted[key] = _CountedUses(_select_counted(budget, usage, now, case))
    return memo.counted[key]


def _select_counted(
    budget: ActionBudget, usage: BudgetUsage, now: datetime, case: CountedAction
) -> list[CountedAction]:
    """Return the actions that count against a budget; one dated in the future counts too.

    Without `scope: fleet` an action in another cluster of the fleet does not count; one in a
    cluster that is not known (any more) does. A budget's `each` is that of `case`.
    """
    since, counts_all = now - budget.per, budget.counts == "all"
    if budget.scope == "fleet":
        uses = [*usage.uses, *(usage.elsewhere or ())]
    else:
        others = usage.clusters.keys() - {case.workload[0]}
        uses = [u for u in usage.uses if u.workload[0] not in others]
    counted = [u for u in uses if u.at > since and (counts_all or u.policy == case.policy)]
    if not budget.each:
        return counted
    group = _group(budget, case)
    return [u for u in counted if _group(budget, u) == group]


def _group(budget: ActionBudget, action: CountedAction) -> str | None:
    if budget.each == "namespace":
        return f"{action.workload[0]}/{action.workload[2]}"
    if budget.each == "cluster":
        return action.workload[0]
    return action.owner if budget.each == "owner" else ""


def _limit(
    amount: PolicyAmount,
    fleet: float | Decimal | None,
    *,
    is_whole: bool = False,
    floor: Decimal | None = None,
) -> Decimal | None:
    """Return a limit as a number; a share of whole things is rounded up (as in Karpenter).

    `floor`: the minimum of a share above 0; for whole things the minimum is 1.
    """
    if not amount.share:
        return amount.value
    size = to_exact(fleet)
    if size is None:
        return None
    if not amount.value:
        return amount.value
    part = amount.value * size
    if is_whole:
        return max(part.to_integral_value(ROUND_CEILING), Decimal(1))
    return part if floor is None else max(part, floor)


def _compute_hourly(usd_per_day: Decimal | None) -> Decimal | None:
    return None if usd_per_day is None else to_exact(usd_per_day / HOURS_PER_DAY)


def _get_free_time(
    budget: ActionBudget,
    uses: _CountedUses,
    case: CountedAction,
    base: _BudgetBase,
    now: datetime,
) -> datetime | None:
    """Return when a case fits without further action.

    Then enough uses are too old, or the window has closed.
    """
    closes_at = get_closing(budget.window, now) if budget.window is not None else None

    def fits(expired: int) -> bool:
        return all(m.fits for m in _list_meters(budget, uses, expired, case, base))

    # Fewer uses never leave less room, so a binary search finds how many must age out first.
    expired = bisect_left(range(len(uses.times) + 1), True, key=fits)
    if expired > len(uses.times):
        return closes_at
    free_at = uses.times[expired - 1] + budget.per if expired else now
    return free_at if closes_at is None else min(free_at, closes_at)


def _describe(budget: ActionBudget, meter: _Meter) -> str:
    amount = getattr(budget, meter.name)
    per = format_duration(budget.per.total_seconds())
    each = f" for each {budget.each}" if budget.each else ""
    scope = " of all policies" if budget.counts == "all" else ""
    scope += " in all clusters" if budget.scope == "fleet" else ""
    rule = f"{meter.name} {amount} per {per}{each}{scope}"
    if budget.window is not None:
        rule += f" while '{budget.window.schedule}' ({budget.window.timezone}) is open"
    if meter.limit is None:
        base = "fleet" if budget.scope == "fleet" else "cluster"
        return f"{rule}: the {base}'s {meter.name} are unknown"
    if meter.unknown:
        return f"{rule}: {meter.unknown}"
    if meter.used is None or meter.requested is None:
        return f"{rule}: unknown for this case or one before it"
    why = f"; {meter.why}" if meter.why else ""
    used, limit, requested = (
        f"{d.normalize():f}" for d in (meter.used, meter.limit, meter.requested)
    )
    return f"{rule}: {used} of {limit} taken, {requested} more asked{why}"
