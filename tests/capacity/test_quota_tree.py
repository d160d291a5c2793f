"""The tree of quotas against Kueue's published examples and its rule of balances."""

from collections.abc import Mapping
from math import inf

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capacity.quota.admission import REFUSED, AdmissionVerdict, QueueClaim, QuotaAdmission
from capacity.quota.tree import QuotaNode, QuotaTree
from simulator.cluster.quotas.claims import Admit, Preempt, QuotaClaim
from simulator.cluster.quotas.cohort import ClusterQueue, Quota
from simulator.cluster.quotas.kueue import Cohorts

Nodes = Mapping[str, QuotaNode]


def build_tree(nodes: Nodes, **used: float) -> QuotaTree:
    tree = QuotaTree(nodes)
    for name, amount in used.items():
        tree.use(name, amount)
    return tree


TEAM_A = QuotaNode(9, parent="team-ab")
TEAM_B = QuotaNode(12, parent="team-ab")


@pytest.mark.parametrize(
    ("team_a", "team_b", "rooms"),
    [
        (TEAM_A, TEAM_B, (21, 21)),
        (QuotaNode(9, 1, parent="team-ab"), TEAM_B, (10, 21)),
        (TEAM_A, QuotaNode(12, lending=1, parent="team-ab"), (10, 21)),
    ],
    ids=["Borrowing example", "BorrowingLimit", "LendingLimit"],
)
def test_queues_have_what_kueue_s_page_of_cluster_queues_gives_them(
    team_a: QuotaNode, team_b: QuotaNode, rooms: tuple[float, float]
) -> None:
    """Source: Kueue, docs/concepts/cluster_queue (CPUs of team-a-cq and team-b-cq)."""
    tree = build_tree({"a": team_a, "b": team_b})
    assert (tree.room("a"), tree.room("b")) == rooms


def test_a_queue_without_quota_has_the_pool_of_its_cohort() -> None:
    """Source: Kueue, docs/concepts/cohort: hello-cohort has 12, my-cluster-queue 0."""
    nodes = {"hello": QuotaNode(12), "mine": QuotaNode(0, parent="hello")}
    assert build_tree(nodes).room("mine") == 12
    assert build_tree(nodes, mine=5).room("mine") == 7


STORY_1 = {
    "production": QuotaNode(parent="company"),
    "research": QuotaNode(borrowing=0, parent="company"),
    "serving": QuotaNode(4, parent="production"),
    "vision": QuotaNode(3, parent="research"),
    "speech": QuotaNode(5, parent="research"),
}
STORY_2 = {
    "one": QuotaNode(borrowing=0, parent="top"),
    "two": QuotaNode(borrowing=0, parent="top"),
    "a": QuotaNode(4, parent="one"),
    "b": QuotaNode(6, parent="two"),
    "special": QuotaNode(0, parent="top"),
}


@pytest.mark.parametrize(
    ("nodes", "used", "rooms"),
    [
        (STORY_1, {}, {"serving": 12, "vision": 8, "speech": 8}),
        (STORY_1, {"serving": 10}, {"serving": 2, "vision": 2, "speech": 2}),
        (STORY_2, {}, {"a": 4, "b": 6, "special": 10}),
        (STORY_2, {"a": 1, "special": 7}, {"a": 2, "b": 2, "special": 2}),
    ],
)
def test_the_stories_of_hierarchical_cohorts_hold(
    nodes: Nodes, used: Mapping[str, float], rooms: Mapping[str, float]
) -> None:
    """Source: Kueue, keps/79-hierarchical-cohorts, stories 1 and 2, with quotas of our own."""
    tree = build_tree(nodes, **used)
    assert {name: tree.room(name) for name in rooms} == rooms


@pytest.mark.parametrize(
    ("limits", "rooms"),
    [
        # b keeps 4 of its 6 to itself: of its 5 unused only 2 can be borrowed
        ({}, (2, 5)),
        ({"A": QuotaNode(0, 1, parent="R")}, (1, 5)),
        ({"A": QuotaNode(0, 1, parent="R"), "a": QuotaNode(4, 0.5, parent="A")}, (0.5, 5)),
        ({"B": QuotaNode(0, lending=0, parent="R")}, (0, 5)),
        ({"R": QuotaNode(3)}, (5, 8)),
        ({"R": QuotaNode(3), "b": QuotaNode(6, 0, 2, parent="B")}, (5, 5)),
    ],
    ids=["lends 2", "A borrows 1", "a borrows half", "B lends nothing", "R adds 3", "b capped"],
)
def test_limits_hold_at_each_level(limits: Nodes, rooms: tuple[float, float]) -> None:
    """Queue a (nominal 4, all used) in A, b (nominal 6, 1 used, lends 2) in B, both under R."""
    nodes = {
        "A": QuotaNode(parent="R"), "B": QuotaNode(parent="R"),
        "a": QuotaNode(4, parent="A"), "b": QuotaNode(6, lending=2, parent="B"), **limits,
    }  # fmt: skip
    tree = build_tree(nodes, a=4, b=1)
    assert (tree.room("a"), tree.room("b")) == rooms


def test_an_hour_has_its_own_quota_and_use() -> None:
    hours = QuotaNode(np.array([4.0, 8.0]), parent="R")
    tree = build_tree({"a": hours, "b": hours})
    tree.use("a", np.array([5.0, 5.0]))
    assert np.asarray(tree.room("b")).tolist() == [3.0, 11.0]


def test_lenders_are_the_nodes_with_unused_quota_within_reach() -> None:
    nodes = {
        "near": QuotaNode(4, parent="A"), "far": QuotaNode(4, parent="B"),
        "closed": QuotaNode(4, parent="C"), "full": QuotaNode(4, parent="A"),
        "alone": QuotaNode(4), "me": QuotaNode(0, parent="A"),
        "A": QuotaNode(parent="R"), "B": QuotaNode(parent="R"),
        "C": QuotaNode(lending=0, parent="R"), "R": QuotaNode(1),
    }  # fmt: skip
    assert build_tree(nodes, full=4).list_lenders("me") == ["R", "far", "near"]


def test_cohorts_in_a_circle_lend_nothing() -> None:
    tree = QuotaTree({"x": QuotaNode(1, parent="y"), "y": QuotaNode(2, parent="x")})
    assert (tree.room("x"), tree.room("y")) == (1, 2)


amounts = st.integers(0, 8)
limits = st.one_of(st.just(inf), amounts)
PARENTS = {"a": "A", "b": "A", "c": "B", "d": "R", "A": "R", "B": "R", "R": ""}
trees = st.fixed_dictionaries(
    {
        name: st.builds(
            QuotaNode, amounts, limits if parent else st.just(inf), limits, st.just(parent)
        )
        for name, parent in PARENTS.items()
    }
)
claims = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 6)), max_size=12)


def is_balanced(nodes: Nodes, used: Mapping[str, float]) -> bool:
    """Return whether no part of the tree owes more than it may (keps/79: T >= -borrowing)."""

    def balance(name: str) -> float:
        node = nodes[name]
        children = [child for child, parent in PARENTS.items() if parent == name]
        lent = sum(min(nodes[child].lending, balance(child)) for child in children)
        return float(node.nominal - used.get(name, 0) + lent)

    return all(
        balance(name) >= -(node.borrowing if node.parent else 0) for name, node in nodes.items()
    )


@given(trees, claims)
def test_a_claim_fits_as_far_as_the_balances_of_the_tree_hold(
    nodes: Nodes, wanted: list[tuple[str, int]]
) -> None:
    tree, used = QuotaTree(nodes), dict[str, float]()
    for queue, amount in wanted:
        after = {**used, queue: used.get(queue, 0.0) + amount}
        assert (amount <= tree.room(queue)) == is_balanced(nodes, after)
        if is_balanced(nodes, after):
            tree.use(queue, amount)
            used = after
    for queue, total in used.items():
        tree.use(queue, -total)
    assert not any(tree.used.values())


def build_eviction(*victims: str) -> AdmissionVerdict:
    return AdmissionVerdict(admits=True, victims=victims)


def hold(admission: QuotaAdmission, *claims: QueueClaim) -> QuotaAdmission:
    for nth, claim in enumerate(claims):
        admission.hold(claim, float(nth))
    return admission


def test_a_claim_reclaims_from_the_nearest_cohort_in_which_it_would_fit() -> None:
    """`left` has 8, `right` 4 and uses 8: a's 4 are within left's 8, so c returns left's quota.

    b borrows of `left` as a would: it yields to nobody who borrows, within `left` neither.
    """
    nodes = {
        "left": QuotaNode(8, parent="top"), "right": QuotaNode(4, parent="top"),
        "a": QuotaNode(0, parent="left"), "b": QuotaNode(0, parent="left"),
        "c": QuotaNode(0, parent="right"), "top": QuotaNode(),
    }  # fmt: skip
    held = [QueueClaim("b1", "b", 4), QueueClaim("c1", "c", 8)]
    admission = hold(QuotaAdmission(nodes), *held)
    assert admission.admit(QueueClaim("a1", "a", 4)) == build_eviction("c1")
    within = hold(QuotaAdmission(nodes), QueueClaim("b1", "b", 8), QueueClaim("c1", "c", 4))
    assert within.admit(QueueClaim("a1", "a", 4)) == REFUSED


def test_a_cohort_that_returned_enough_keeps_the_rest() -> None:
    """X (4 of its own) uses 6, Z 2 of L's. a's 4 are L's: 2 come from X, and then from Z."""
    nodes = {
        "L": QuotaNode(4, parent="R"), "X": QuotaNode(4, parent="R"), "Z": QuotaNode(parent="R"),
        "a": QuotaNode(parent="L"), "p": QuotaNode(parent="X"), "q": QuotaNode(parent="X"),
        "z": QuotaNode(parent="Z"),
    }  # fmt: skip
    claims = [
        QueueClaim("p1", "p", 2), QueueClaim("q1", "q", 4, 1), QueueClaim("z1", "z", 2, 2),
    ]  # fmt: skip
    admission = hold(QuotaAdmission(nodes), *claims)
    assert admission.admit(QueueClaim("a1", "a", 4)) == build_eviction("p1", "z1")


def test_a_queue_at_its_nominal_quota_evicts_only_its_own() -> None:
    """Quota was lowered below use: b holds 3 of 2, but a has all that is its own."""
    nodes = {"a": QuotaNode(2, parent="R"), "b": QuotaNode(0, parent="R")}
    admission = hold(QuotaAdmission(nodes), QueueClaim("a1", "a", 2), QueueClaim("b1", "b", 3))
    assert admission.admit(QueueClaim("a2", "a", 2, priority=1)) == REFUSED


@pytest.mark.parametrize(("preempts", "verdict"), [(True, build_eviction("b1")), (False, REFUSED)])
def test_a_claim_reclaims_only_where_its_queue_preempts(preempts: bool, verdict: object) -> None:
    nodes = {"a": QuotaNode(4, parent="R"), "b": QuotaNode(4, parent="R")}
    admission = hold(QuotaAdmission(nodes, preempts=preempts), QueueClaim("b1", "b", 8))
    assert admission.admit(QueueClaim("a1", "a", 4)) == verdict
    admission.release("b1")
    assert admission.admit(QueueClaim("a1", "a", 5)) == AdmissionVerdict(admits=True, borrows=True)


OPEN = (inf, inf)


@example([(2, *OPEN), (0, *OPEN), (0, *OPEN)], [("a", 1, 0), ("b", 1, 0), ("a", 2, 1)])
@example([(4, *OPEN), (1, *OPEN), (1, *OPEN)], [*[("a", 1, 0)] * 3, ("b", 1, 0), ("a", 3, 1)])
@given(
    st.lists(st.tuples(amounts, limits, limits), min_size=3, max_size=3),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 2)), max_size=14),
)
def test_flat_cohorts_admit_and_evict_as_the_simulator_s_own_kueue_does(
    quotas: list[tuple[int, float, float]], wanted: list[tuple[str, int, int]]
) -> None:
    def whole(limit: float) -> int | None:
        return None if limit == inf else int(limit)

    named = dict(zip("abc", quotas, strict=True))
    admission = QuotaAdmission({name: QuotaNode(*quota, "all") for name, quota in named.items()})
    simulated = Cohorts(
        ClusterQueue(
            name, {"f": {"gpu": Quota(nominal, whole(borrowing), whole(lending))}}, "all",
            within_queue="LowerPriority", reclaim="Any",
        )
        for name, (nominal, borrowing, lending) in named.items()
    )  # fmt: skip
    for nth, (queue, amount, priority) in enumerate(wanted):
        name = f"{queue}{nth:02}"
        verdict = admission.admit(QueueClaim(name, queue, amount, priority))
        other = simulated.admit(QuotaClaim(name, queue, {"gpu": amount}, priority))
        assert verdict.admits == isinstance(other, Admit | Preempt)
        assert verdict.borrows == (isinstance(other, Admit) and other.borrows)
        assert {*verdict.victims} == {*(other.victims if isinstance(other, Preempt) else ())}
        for victim in verdict.victims:
            admission.release(victim)
            simulated.release(victim)
        if not verdict.admits:
            continue
        admission.hold(QueueClaim(name, queue, amount, priority), float(nth))
        simulated.hold(QuotaClaim(name, queue, {"gpu": amount}, priority), {"gpu": "f"}, float(nth))
