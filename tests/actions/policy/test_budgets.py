"""Budgets: never more than allowed in any stretch, whatever comes, whenever; and never less."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.decide import decide
from actions.policy.budgets import (
    BudgetUsage,
    CountedAction,
    FleetSize,
    count_action,
    find_blocks,
    find_excesses,
    get_horizon,
    to_exact,
)
from actions.policy.model import ActionBudget, Each, Policy, PolicyAmount, RecurringWindow
from actions.policy.schedule import is_open
from fallow.action_models import Facts
from tests.actions.cases import HOUR, NOW, facts, finding, policy, spent

SECOND = timedelta(seconds=1)
FLEET = {"workloads": 40, "gpus": 96.0, "owners": 7, "usd_per_hour": Decimal(250)}


def number(value: float) -> PolicyAmount:
    return PolicyAmount(Decimal(str(value)))


def percent(value: float) -> PolicyAmount:
    return PolicyAmount(Decimal(str(value)) / 100, share=True)


def limited(name: str, amount: PolicyAmount) -> ActionBudget:
    return msgspec.structs.replace(ActionBudget(), **{name: amount})


def done(at: datetime, **changes: Any) -> CountedAction:
    whom = ("c", "Notebook", "team-a", "x")
    made = CountedAction(at, "idle-notebooks", whom, Decimal(1), "team-a", Decimal(4))
    return msgspec.structs.replace(made, **changes)


def fits(
    budget: ActionBudget,
    uses: Sequence[CountedAction] = (),
    case: Facts | None = None,
    **fleet: Any,
) -> bool:
    rule = policy(budgets=(budget,))
    return not find_blocks(rule, case or facts(), spent(uses=tuple(uses), **fleet), NOW)


def test_a_budget_counts_the_last_stretch_and_not_the_calendar() -> None:
    two = ActionBudget(workloads=number(2), per=HOUR)
    assert fits(two, [done(NOW - HOUR + SECOND)])
    assert not fits(two, [done(NOW - HOUR + SECOND), done(NOW - SECOND)])
    assert fits(two, [done(NOW - HOUR), done(NOW - SECOND)])
    assert not fits(two, [done(NOW), done(NOW + SECOND)]), "one that seems to come later counts"


def test_nothing_fits_into_a_budget_of_nothing() -> None:
    for name in ("workloads", "gpus", "owners", "usd_per_hour"):
        assert not fits(limited(name, number(0))), name
        assert not fits(limited(name, percent(0))), name


def test_gpus_owners_and_dollars_are_counted_exactly() -> None:
    tenths = [done(NOW - SECOND, gpus=Decimal("0.1")) for _ in range(8)]
    assert fits(ActionBudget(gpus=number(1)), tenths, facts(gpus=0.2))
    assert not fits(ActionBudget(gpus=number(1)), tenths, facts(gpus=0.2001))
    known = [done(NOW - SECOND, owner="a"), done(NOW - SECOND, owner="b")]
    assert fits(ActionBudget(owners=number(2)), known, facts(owner="a"))
    assert not fits(ActionBudget(owners=number(2)), known, facts(owner="c"))
    assert not fits(ActionBudget(owners=number(2)), [done(NOW, owner=None)] * 2, facts(owner="a"))
    # 96 dollars a day are 4 an hour.
    assert fits(ActionBudget(usd_per_hour=number(8)), [done(NOW)])
    assert not fits(ActionBudget(usd_per_hour=number(7.999)), [done(NOW)])


def test_what_is_not_known_does_not_fit() -> None:
    dollars = ActionBudget(usd_per_hour=number(1000))
    assert not fits(dollars, case=facts(usd_per_day=None))
    assert not fits(dollars, [done(NOW, usd_per_hour=None)])
    fleets = (
        ("workloads", "fleet_workloads"),
        ("gpus", "fleet_gpus"),
        ("owners", "fleet_owners"),
        ("usd_per_hour", "fleet_usd_per_hour"),
    )
    for name, fleet in fleets:
        unknown: dict[str, Any] = {fleet: None}
        share = limited(name, percent(50))
        assert fits(share), name
        assert not fits(share, **unknown), name
        (hold,) = find_blocks(policy(budgets=(share,)), facts(), spent(**unknown), NOW)
        assert "unknown" in hold.reason.text


def test_a_percentage_of_things_is_rounded_up_and_one_of_gpus_is_not() -> None:
    five = percent(5)
    assert fits(ActionBudget(workloads=five), fleet_workloads=12)
    assert not fits(ActionBudget(workloads=five), [done(NOW)], fleet_workloads=12)
    assert fits(ActionBudget(workloads=five), [done(NOW)], fleet_workloads=21)
    assert fits(ActionBudget(workloads=five), fleet_workloads=0), "nodes of an empty fleet"
    assert not fits(ActionBudget(workloads=five), [done(NOW)], fleet_workloads=0)
    assert not fits(ActionBudget(gpus=five), case=facts(gpus=1.0), fleet_gpus=12.0)
    assert fits(ActionBudget(gpus=five), case=facts(gpus=0.6), fleet_gpus=12.0)


# What a percentage allows at least: fleets of 8 to 10,000 GPUs, of nodes of one size.

NODES = st.tuples(st.integers(1, 1250), st.sampled_from([1, 2, 4, 8])).filter(
    lambda fleet: 8 <= fleet[0] * fleet[1] <= 10_000
)
SHARES = st.decimals("0.01", "100", places=2)


def of_node(gpus: float, others: int | None, **changes: Any) -> Facts:
    """Return the case of a sick node."""
    return facts(
        finding=finding("Node", "", analyzer="reliability", kind="sick_node", verdict="wasteful"),
        gpus=gpus,
        pool_others=others,
        usd_per_day=Decimal(24) * Decimal(str(gpus)),
        **changes,
    )


def fleet_of(nodes: int, size: int) -> dict[str, Any]:
    """Return a fleet whose GPUs cost a dollar an hour."""
    return {
        "fleet_gpus": float(nodes * size),
        "fleet_usd_per_hour": Decimal(nodes * size),
        "largest_node_gpus": float(size),
        "largest_node_usd_per_hour": Decimal(size),
    }


def both(share: Decimal) -> tuple[ActionBudget, ActionBudget]:
    part = PolicyAmount(share / 100, share=True)
    return ActionBudget(gpus=part), ActionBudget(usd_per_hour=part)


@given(NODES, SHARES, st.integers(1, 10_000))
def test_a_workload_of_a_node_s_size_fits_any_percentage_and_a_larger_one_only_its_own(
    nodes: tuple[int, int], share: Decimal, gpus: int
) -> None:
    fleet = fleet_of(*nodes)
    case = facts(gpus=float(gpus), usd_per_day=Decimal(24 * gpus))
    expected = gpus <= nodes[1] or gpus <= share / 100 * nodes[0] * nodes[1]
    for budget in both(share):
        assert fits(budget, case=case, **fleet) is expected


@given(NODES, SHARES, st.one_of(st.none(), st.integers(0, 3)))
def test_one_node_fits_any_percentage_unless_its_pool_would_have_no_other(
    nodes: tuple[int, int], share: Decimal, others: int | None
) -> None:
    fleet, size = fleet_of(*nodes), nodes[1]
    within = size <= share / 100 * nodes[0] * size
    for budget in both(share):
        assert fits(budget, case=of_node(size, others), **fleet) is (within or bool(others))


@given(NODES, SHARES)
def test_the_floor_allows_one_node_and_not_a_second_in_the_same_stretch(
    nodes: tuple[int, int], share: Decimal
) -> None:
    fleet, size = fleet_of(*nodes), nodes[1]
    first = done(
        NOW, workload=("c", "Node", "", "n"), gpus=Decimal(size), usd_per_hour=Decimal(size)
    )
    for budget in both(share):
        second = fits(budget, [first], of_node(size, 3), **fleet)
        assert second is (2 * size <= share / 100 * nodes[0] * size)


@given(NODES)
def test_nothing_of_a_fleet_is_nothing(nodes: tuple[int, int]) -> None:
    for budget in both(Decimal(0)):
        assert not fits(budget, case=facts(gpus=1.0), **fleet_of(*nodes))
        assert not fits(budget, case=of_node(nodes[1], 3), **fleet_of(*nodes))


@given(st.integers(0, 2000), SHARES, st.integers(0, 40))
def test_a_percentage_of_workloads_is_never_less_than_one(
    workloads: int, share: Decimal, taken: int
) -> None:
    budget = ActionBudget(workloads=PolicyAmount(share / 100, share=True))
    most = max(1, ceil(Fraction(share) / 100 * workloads))
    uses = [done(NOW)] * taken
    assert fits(budget, uses, fleet_workloads=workloads) is (taken < most)


@pytest.mark.parametrize(
    ("gpus", "taken", "fitting"),
    [(8.0, 0, True), (8.5, 0, False), (7.5, 1, False), (7.0, 1, True), (9.0, 0, False)],
)
def test_two_percent_of_128_gpus_is_one_node_of_eight(
    gpus: float, taken: int, fitting: bool
) -> None:
    budget = ActionBudget(gpus=percent(2))
    uses = [done(NOW, gpus=Decimal(taken))] if taken else []
    fleet = fleet_of(16, 8)
    assert fits(budget, uses, facts(gpus=gpus), **fleet) is fitting


@pytest.mark.parametrize("share", [7, 6])
def test_a_larger_workload_has_to_fit_the_percentage_itself(share: int) -> None:
    # 9 GPUs of 128 are 7.03 %.
    assert not fits(ActionBudget(gpus=percent(share)), case=facts(gpus=9.0), **fleet_of(16, 8))
    assert fits(ActionBudget(gpus=percent(7.04)), case=facts(gpus=9.0), **fleet_of(16, 8))


def test_a_node_of_a_mixed_fleet_is_its_own_floor() -> None:
    budget = ActionBudget(gpus=percent(1))
    fleet = fleet_of(16, 8)
    small = done(NOW, workload=("c", "Node", "", "n"), gpus=Decimal(4))
    assert fits(budget, case=of_node(4, 1), **fleet)
    assert not fits(budget, [small], of_node(8, 1), **fleet), "4 + 8 are more than one node of 8"
    assert not fits(budget, [small], of_node(4, 1), **fleet), "its floor is its own 4"


@pytest.mark.parametrize(
    ("others", "why"),
    [
        (0, "it is the last schedulable node of its pool"),
        (None, "whether its pool has another schedulable node is unknown"),
    ],
)
def test_a_node_that_no_percentage_admits_says_why(others: int | None, why: str) -> None:
    rule = policy(budgets=(ActionBudget(gpus=percent(2)),))
    (hold,) = find_blocks(rule, of_node(8, others), spent(**fleet_of(16, 8)), NOW)
    assert hold.reason.text == f"gpus 2% per 1d: 0 of 2.56 taken, 8 more asked; {why}"


def test_where_the_largest_node_is_unknown_the_percentage_stays_what_it_is() -> None:
    fleet = {**fleet_of(16, 8), "largest_node_gpus": None}
    assert not fits(ActionBudget(gpus=percent(2)), case=facts(gpus=3.0), **fleet)
    assert fits(ActionBudget(gpus=percent(2)), case=facts(gpus=2.5), **fleet)


@pytest.mark.parametrize(
    ("each", "changes", "counted"),
    [
        ("", {"workload": ("d", "Job", "team-z", "y"), "owner": "z"}, True),
        ("namespace", {"workload": ("c", "Job", "team-a", "y"), "owner": "z"}, True),
        ("namespace", {"workload": ("c", "Job", "team-b", "y")}, False),
        ("namespace", {"workload": ("d", "Job", "team-a", "y")}, False),
        ("owner", {"owner": "team-b"}, False),
        ("owner", {"workload": ("d", "Job", "team-z", "y")}, True),
        ("cluster", {"workload": ("d", "Job", "team-a", "y")}, False),
        ("cluster", {"workload": ("c", "Job", "team-z", "y"), "owner": "z"}, True),
    ],
)
def test_each_counts_apart(each: Each, changes: dict[str, Any], *, counted: bool) -> None:
    one = ActionBudget(workloads=number(1), each=each)
    assert fits(one, [done(NOW, **changes)]) != counted


def test_a_policy_counts_its_own_actions_or_those_of_all() -> None:
    others = [done(NOW, policy="another")]
    assert fits(ActionBudget(workloads=number(1)), others)
    assert not fits(ActionBudget(workloads=number(1), counts="all"), others)


@pytest.mark.parametrize(("used_ago", "free_in"), [(20, 4), (2, 5)])
def test_a_case_fits_when_a_use_is_too_old_or_the_window_closes(
    used_ago: int, free_in: int
) -> None:
    """One act a day from 9 to 17; it is noon."""
    office = ActionBudget(workloads=number(1), window=RecurringWindow("0 9 * * mon-fri", 8 * HOUR))
    used = done(NOW - timedelta(hours=used_ago))
    (hold,) = find_blocks(policy(budgets=(office,)), facts(), spent(uses=(used,)), NOW)
    assert hold.until == NOW + timedelta(hours=free_in)


def test_the_most_restrictive_of_the_budgets_in_force_wins() -> None:
    always = ActionBudget(workloads=percent(10))
    office = ActionBudget(workloads=number(0), window=RecurringWindow("0 9 * * mon-fri", 8 * HOUR))
    rule = policy(budgets=(always, office))
    noon, night, sunday = NOW, NOW.replace(hour=22), NOW + timedelta(days=2)
    assert [h.reason.gate for h in find_blocks(rule, facts(), spent(), noon)] == ["budget"]
    assert not find_blocks(rule, facts(), spent(), night)
    assert not find_blocks(rule, facts(), spent(), sunday)
    (hold,) = find_blocks(rule, facts(), spent(), noon)
    assert hold.until == NOW.replace(hour=17)


def test_the_eleventh_of_ten_aborts_the_whole_run_and_the_tenth_does_not() -> None:
    ten = policy(max_resources=number(10))
    assert not find_excesses(ten, {"c": 10}, spent())
    reason = find_excesses(ten, {"c": 11}, spent())["c"]
    assert "11 cases are more than max_resources" in reason.text
    share = policy(max_resources=percent(20))
    assert not find_excesses(share, {"c": 20}, spent(fleet_workloads=100))
    assert find_excesses(share, {"c": 21}, spent(fleet_workloads=100))
    assert find_excesses(share, {"c": 1}, spent(fleet_workloads=None))


def test_a_share_of_a_small_fleet_is_never_fewer_than_ten_cases() -> None:
    share = policy(max_resources=percent(20))
    assert not find_excesses(share, {"c": 10}, spent(fleet_workloads=13))
    assert find_excesses(share, {"c": 11}, spent(fleet_workloads=13))
    assert find_excesses(policy(max_resources=percent(0)), {"c": 1}, spent(fleet_workloads=13))
    assert find_excesses(policy(max_resources=number(2)), {"c": 3}, spent(fleet_workloads=13))


def test_a_percentage_is_of_its_own_cluster_and_with_scope_fleet_of_all() -> None:
    # 40 workloads of 100 GPUs here, 960 of 9,900 elsewhere: 5 % are 2 workloads here, 50 of all.
    here = FleetSize(gpus=100.0, workloads=40, owners=20, usd_per_hour=Decimal(200))
    there = FleetSize(gpus=9_900.0, workloads=960, owners=80, usd_per_hour=Decimal(19_800))
    fleet: dict[str, Any] = {
        "fleet_gpus": 10_000.0, "fleet_workloads": 1_000, "fleet_owners": 100,
        "fleet_usd_per_hour": Decimal(20_000), "clusters": {"c": here, "d": there}, "elsewhere": (),
    }  # fmt: skip
    five = percent(5)
    two = [done(NOW), done(NOW)]
    assert fits(ActionBudget(workloads=five), two[:1], **fleet)
    assert not fits(ActionBudget(workloads=five), two, **fleet)
    assert fits(ActionBudget(workloads=five, scope="fleet"), two * 24, **fleet)
    assert not fits(ActionBudget(workloads=five, scope="fleet"), two * 25, **fleet)
    # 5 GPUs, 1 owner and 10 dollars an hour here.
    assert fits(ActionBudget(gpus=five), [done(NOW, gpus=Decimal(4))], facts(gpus=1.0), **fleet)
    assert not fits(ActionBudget(gpus=five), [done(NOW, gpus=Decimal(5))], facts(gpus=1), **fleet)
    assert not fits(ActionBudget(owners=five), [done(NOW, owner="b")], **fleet)
    dollars = ActionBudget(usd_per_hour=five)
    assert fits(dollars, [done(NOW, usd_per_hour=Decimal(6))], **fleet)
    assert not fits(dollars, [done(NOW, usd_per_hour=Decimal("6.01"))], **fleet)
    # An act in another cluster counts there, and with `scope: fleet`.
    away = [done(NOW, workload=("d", "Notebook", "team-a", "x"))] * 2
    assert fits(ActionBudget(workloads=five), away, **fleet)
    in_d = facts()
    subject = msgspec.structs.replace(in_d.finding.subject, cluster="d")
    finding = msgspec.structs.replace(in_d.finding, subject=subject)
    in_d = msgspec.structs.replace(in_d, finding=finding)
    rule = policy(budgets=(ActionBudget(workloads=five),))
    for count, blocked in ((47, False), (48, True)):
        usage = spent(uses=(away[0],) * count, **fleet)
        assert bool(find_blocks(rule, in_d, usage, NOW)) is blocked
    # A cluster that had another name counts on.
    renamed = [done(NOW, workload=("old", "Notebook", "team-a", "x"))] * 2
    assert not fits(ActionBudget(workloads=five), renamed, **fleet)
    # A cluster of unknown size.
    assert not fits(ActionBudget(workloads=five), **{**fleet, "clusters": {"d": there}})


def test_the_fuse_is_of_the_cluster_that_the_cases_are_in() -> None:
    share = policy(max_resources=percent(20))
    sizes = {"c": FleetSize(workloads=100), "d": FleetSize(workloads=900)}
    fleet = spent(fleet_workloads=1_000, clusters=sizes)
    assert not find_excesses(share, {"c": 20, "d": 180}, fleet)
    assert find_excesses(share, {"c": 21}, fleet)
    assert find_excesses(share, {"c": 1, "d": 181}, fleet)
    unknown = find_excesses(share, {"e": 1}, fleet)["e"]
    assert "the size of cluster e is unknown" in unknown.text


def test_an_allowed_act_is_spent_at_once() -> None:
    rule = policy(budgets=(ActionBudget(workloads=number(1)),))
    first = decide(rule, facts(), spent(), NOW)
    assert first.ruling == "allow"
    after = spent(uses=(count_action(first, NOW),))
    assert after.uses[0].usd_per_hour == Decimal(4)
    second = decide(rule, facts(), after, NOW)
    assert (second.ruling, second.next_at) == ("hold", NOW + timedelta(days=1))


def test_uses_matter_as_far_back_as_the_longest_budget() -> None:
    rules = [policy(), policy(budgets=(ActionBudget(per=HOUR), ActionBudget(per=50 * HOUR)))]
    assert get_horizon(rules) == 50 * HOUR
    assert get_horizon([]) == timedelta(0)


# Random fleets: candidates come at random moments, around clocks that jump, and ask.

STARTS = (
    datetime(2026, 3, 28, 20, tzinfo=UTC),  # Berlin's spring
    datetime(2026, 10, 24, 20, tzinfo=UTC),  # Berlin's autumn
    datetime(2026, 11, 1, 3, tzinfo=UTC),  # New York's autumn
    datetime(2026, 11, 18, tzinfo=UTC),
)
WINDOWS = st.sampled_from(
    [
        None,
        RecurringWindow("0 9 * * 1-5", 8 * HOUR, "Europe/Berlin"),
        RecurringWindow("30 2 * * *", HOUR, "Europe/Berlin"),
        RecurringWindow("0 1 * * sun", 3 * HOUR, "America/New_York"),
        RecurringWindow("*/30 * * * *", timedelta(minutes=10)),
    ]
)
AMOUNTS = st.one_of(
    st.integers(0, 12).map(number), st.sampled_from([1, 5, 12.5, 50]).map(percent), st.none()
)
BUDGETS = st.builds(
    ActionBudget,
    workloads=AMOUNTS,
    gpus=AMOUNTS,
    owners=AMOUNTS,
    usd_per_hour=AMOUNTS,
    per=st.sampled_from([timedelta(minutes=10), HOUR, 6 * HOUR]),
    counts=st.sampled_from(["policy", "all"]),
    window=WINDOWS,
).flatmap(
    lambda b: st.sampled_from(["", "namespace", "owner"] if not _shares(b) else [""]).map(
        lambda each: msgspec.structs.replace(b, each=each)
    )
)


def _shares(budget: ActionBudget) -> bool:
    amounts = (budget.workloads, budget.gpus, budget.owners, budget.usd_per_hour)
    return any(a is not None and a.share for a in amounts)


ASKS = st.tuples(
    st.integers(0, 90),  # minutes since the one before
    st.sampled_from(["p", "q"]),  # policy
    st.sampled_from(["n1", "n2"]),  # namespace
    st.sampled_from(["o1", "o2", "o3"]),  # owner
    st.sampled_from([0.25, 1.0, 2.0, 8.0]),  # GPUs
    st.sampled_from([Decimal(24), Decimal(96), None]),  # dollars a day
)


def asked(minutes: int, what: tuple[Any, ...], start: datetime) -> tuple[datetime, Facts]:
    _, _, namespace, owner, gpus, usd = what
    at = start + timedelta(minutes=minutes)
    return at, facts(
        finding=finding("Notebook", namespace), owner=owner, gpus=gpus, usd_per_day=usd, at=at
    )


def test_a_budget_of_the_fleet_counts_the_actions_in_other_clusters() -> None:
    elsewhere = (done(NOW - HOUR, workload=("west", "Notebook", "team-b", "y")),)
    own = limited("workloads", number(1))
    fleet = msgspec.structs.replace(own, scope="fleet")
    two = msgspec.structs.replace(fleet, workloads=number(2))
    assert fits(own, elsewhere=elsewhere)
    assert not fits(fleet, elsewhere=elsewhere)
    assert fits(two, elsewhere=elsewhere)
    assert not fits(two, [done(NOW - HOUR)], elsewhere=elsewhere)
    assert fits(fleet, elsewhere=(done(NOW - timedelta(days=1)),))


@pytest.mark.parametrize("name", ["workloads", "gpus", "owners", "usd_per_hour"])
def test_nothing_fits_a_budget_of_the_fleet_while_other_clusters_are_unknown(name: str) -> None:
    own = limited(name, number(1000))
    fleet = msgspec.structs.replace(own, scope="fleet")
    assert fits(own, elsewhere=None)
    assert not fits(fleet, elsewhere=None)
    assert fits(fleet, elsewhere=())
    usage = msgspec.structs.replace(spent(), elsewhere_unknown="west copied its journal 3h ago")
    (block,) = find_blocks(policy(budgets=(fleet,)), facts(), usage, NOW)
    assert block.reason.text == (
        f"{name} 1000 per 1d in all clusters: the actions in other clusters are unknown: "
        "west copied its journal 3h ago"
    )
    assert block.until is None


FLEET_SPENT = BudgetUsage(
    fleet_gpus=96.0,
    fleet_workloads=40,
    fleet_owners=7,
    fleet_usd_per_hour=Decimal(250),
)


def total(name: str, uses: Sequence[CountedAction]) -> Fraction | None:
    """Count anew, in fractions: what a limit of this name is about."""
    if name == "workloads":
        return Fraction(len(uses))
    if name == "owners":
        return Fraction(len({u.owner for u in uses}))
    values = [u.gpus if name == "gpus" else u.usd_per_hour for u in uses]
    if any(v is None for v in values):
        return None
    return sum((Fraction(str(v)) for v in values), Fraction(0))


def limit(name: str, amount: PolicyAmount) -> Fraction:
    part = Fraction(str(amount.value))
    if not amount.share:
        return part
    whole = part * Fraction(str(FLEET[name]))
    return Fraction(ceil(whole)) if name in ("workloads", "owners") else whole


def overdrawn(budget: ActionBudget, name: str, mine: str, uses: Sequence[CountedAction]) -> bool:
    """Say whether an action, allowed while the budget held, overdrew the stretch that ends with it.

    Any stretch ends with some action; one that is overdrawn is so at its last one.
    """
    amount = getattr(budget, name)
    if amount is None:
        return False
    for number_, last in enumerate(uses):
        if last.policy != mine or (budget.window and not is_open(budget.window, last.at)):
            continue
        stretch = [
            u
            for u in uses[: number_ + 1]
            if last.at - u.at < budget.per
            and (budget.counts == "all" or u.policy == mine)
            and (budget.each != "namespace" or u.workload[2] == last.workload[2])
            and (budget.each != "owner" or u.owner == last.owner)
        ]
        found = total(name, stretch)
        if found is None or found > limit(name, amount):
            return True
    return False


@settings(max_examples=150, deadline=None)
@given(
    budgets=st.dictionaries(st.sampled_from(["p", "q"]), st.lists(BUDGETS, max_size=3), min_size=1),
    start=st.sampled_from(STARTS),
    asks=st.lists(ASKS, max_size=40),
)
def test_no_stretch_ever_holds_more_than_any_budget_allows_and_no_less_is_allowed(
    budgets: dict[str, list[ActionBudget]], start: datetime, asks: list[tuple[Any, ...]]
) -> None:
    rules = {name: Policy(name, budgets=tuple(mine)) for name, mine in budgets.items()}
    uses: list[CountedAction] = []
    minutes = 0
    for what in asks:
        minutes += what[0]
        if what[1] not in rules:
            continue
        rule = rules[what[1]]
        at, case = asked(minutes, what, start)
        usd = case.usd_per_day
        candidate = CountedAction(
            at,
            rule.name,
            ("c", "Notebook", what[2], "w"),
            to_exact(case.gpus),
            case.owner,
            None if usd is None else usd / 24,
        )
        holds = find_blocks(rule, case, msgspec.structs.replace(FLEET_SPENT, uses=tuple(uses)), at)
        broken = [
            name
            for budget in rule.budgets
            for name in ("workloads", "gpus", "owners", "usd_per_hour")
            if overdrawn(budget, name, rule.name, [*uses, candidate])
        ]
        assert bool(holds) == bool(broken), (holds, broken)
        if not holds:
            uses.append(candidate)


@settings(deadline=None)
@given(
    budgets=st.lists(BUDGETS, max_size=3),
    more=BUDGETS,
    start=st.sampled_from(STARTS),
    asks=st.lists(ASKS, max_size=12),
    last=ASKS,
)
def test_one_more_budget_or_one_more_use_never_allows_more(
    budgets: list[ActionBudget],
    more: ActionBudget,
    start: datetime,
    asks: list[tuple[Any, ...]],
    last: tuple[Any, ...],
) -> None:
    uses = [
        done(start + timedelta(minutes=5 * n), policy=a[1], owner=a[3], gpus=to_exact(a[4]))
        for n, a in enumerate(asks)
    ]
    at, case = asked(5 * len(asks), last, start)
    before = msgspec.structs.replace(FLEET_SPENT, uses=tuple(uses))
    after = msgspec.structs.replace(before, uses=(*uses, done(at, policy="p")))
    fewer, all_of = Policy("p", budgets=tuple(budgets)), Policy("p", budgets=(*budgets, more))
    for allowed_least, allowed_most in ((all_of, fewer), (fewer, fewer)):
        state = after if allowed_least is allowed_most else before
        if not find_blocks(allowed_least, case, state, at):
            assert not find_blocks(allowed_most, case, before, at)


@settings(deadline=None)
@given(
    budget=BUDGETS.filter(lambda b: b.window is None),
    start=st.sampled_from(STARTS),
    asks=st.lists(ASKS, max_size=12),
    last=ASKS,
)
def test_a_case_fits_at_the_very_moment_it_is_told_and_not_before(
    budget: ActionBudget, start: datetime, asks: list[tuple[Any, ...]], last: tuple[Any, ...]
) -> None:
    rule = Policy("p", budgets=(budget,))
    uses = tuple(
        done(start + timedelta(minutes=7 * n), policy="p", owner=a[3], gpus=to_exact(a[4]))
        for n, a in enumerate(asks)
    )
    state = msgspec.structs.replace(FLEET_SPENT, uses=uses)
    at, case = asked(7 * len(asks), last, start)
    holds = find_blocks(rule, case, state, at)
    if not holds:
        return
    until = {hold.until for hold in holds}
    assert len(until) == 1
    moment = until.pop()
    if moment is None:
        assert find_blocks(rule, case, state, at + timedelta(days=400))
    else:
        assert moment > at
        assert not find_blocks(rule, case, state, moment)
        assert find_blocks(rule, case, state, moment - timedelta(microseconds=1))


@settings(max_examples=40, deadline=None)
@given(
    budgets=st.lists(BUDGETS, max_size=3),
    start=st.sampled_from(STARTS),
    gaps=st.lists(st.integers(0, 240), max_size=30),
    concurrent=st.integers(1, 4),
)
def test_a_site_that_follows_decisions_never_overdraws_and_never_does_too_much_at_once(
    budgets: list[ActionBudget], start: datetime, gaps: list[int], concurrent: int
) -> None:
    """The whole decision, turn by turn: each action is under way for an hour."""
    rule = policy(
        budgets=tuple(budgets), concurrent=concurrent, min_age=timedelta(0), stages=(LAST,)
    )
    uses: list[CountedAction] = []
    now = start
    for number_, gap in enumerate(gaps):
        now += timedelta(minutes=gap)
        under_way = sum(now - u.at < HOUR for u in uses)
        state = msgspec.structs.replace(
            FLEET_SPENT,
            uses=tuple(uses),
            concurrent=under_way,
            trusted=frozenset({rule.name}),
        )
        case = facts(
            finding=finding("Notebook", f"team-{number_ % 3}"),
            owner=f"o{number_ % 2}",
            at=now,
            seen_until=now,
            created_at=now,
            history=msgspec.structs.replace(facts().history, first_seen=now - HOUR),
        )
        decision = decide(rule, case, state, now)
        if decision.ruling == "allow":
            uses.append(count_action(decision, now))
            assert under_way < concurrent
    for budget in budgets:
        for name in ("workloads", "gpus", "owners", "usd_per_hour"):
            for number_ in range(len(uses)):
                assert not overdrawn(budget, name, rule.name, uses[: number_ + 1])


LAST = msgspec.structs.replace(policy().stages[-1])
