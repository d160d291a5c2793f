"""Kueue cohorts: borrowing, lending, reclaiming, and the order of admission."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster.quotas.claims import Admit, Preempt, QuotaClaim, Refuse, Verdict
from simulator.cluster.quotas.cohort import AdmittedClaim, ClusterQueue, Ledger, Quota
from simulator.cluster.quotas.kueue import Cohorts

GPU = "nvidia.com/gpu"


def queue(name: str, nominal: int, *limits: int | None, **more: object) -> ClusterQueue:
    more.setdefault("cohort", "all")
    return ClusterQueue(name, {"h100": {GPU: Quota(nominal, *limits)}}, **more)  # type: ignore[arg-type]


def claim(uid: str, queue: str, gpus: int, **more: object) -> QuotaClaim:
    return QuotaClaim(uid, queue, {GPU: gpus}, **more)  # type: ignore[arg-type]


def holding(cohorts: Cohorts, *claims: QuotaClaim) -> Cohorts:
    for nth, one in enumerate(claims):
        cohorts.hold(one, {GPU: "h100"}, float(nth))
    return cohorts


def gist(verdict: Verdict) -> object:
    if isinstance(verdict, Admit):
        return "borrows" if verdict.borrows else "fits"
    return verdict.victims if isinstance(verdict, Preempt) else verdict.message


A_TAKES: dict[str, tuple[ClusterQueue, int, object]] = {
    "its own": (queue("a", 4), 4, "fits"),
    "the lender's too": (queue("a", 4), 6, "borrows"),
    "more than anybody has": (
        queue("a", 4),
        13,
        "nvidia.com/gpu in flavor h100, request > maximum capacity (13 > 12)",
    ),
    "what somebody uses": (
        queue("a", 4),
        11,
        "insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed",
    ),
    "up to its borrowing limit": (queue("a", 4, 2), 6, "borrows"),
    "past its borrowing limit": (
        queue("a", 4, 2),
        7,
        "insufficient quota for nvidia.com/gpu in flavor h100, request > maximum capacity (7 > 6)",
    ),
    "outside the cohort": (
        queue("a", 4, cohort=""),
        5,
        "insufficient quota for nvidia.com/gpu in flavor h100, request > maximum capacity (5 > 4)",
    ),
    "of a stopped queue": (queue("a", 4, stop="Hold"), 1, "ClusterQueue a is inactive: stopped"),
}


@pytest.mark.parametrize(("taker", "gpus", "answer"), A_TAKES.values(), ids=A_TAKES)
def test_a_queue_takes(taker: ClusterQueue, gpus: int, answer: object) -> None:
    cohorts = holding(Cohorts([taker, queue("b", 8)]), claim("b1", "b", 2))
    found = gist(cohorts.admit(claim("new", "a", gpus)))
    assert found == answer or str(found).endswith(str(answer))


def test_a_lender_keeps_what_it_does_not_lend() -> None:
    cohorts = Cohorts([queue("a", 4), queue("b", 8, None, 3)])
    assert gist(cohorts.admit(claim("x", "a", 7))) == "borrows"
    assert isinstance(cohorts.admit(claim("x", "a", 8)), Refuse)


@pytest.mark.parametrize(
    ("uses", "queue_name", "message"),
    [
        ({"amd.com/gpu": 1}, "a", "resource amd.com/gpu unavailable in ClusterQueue"),
        ({GPU: 1}, "nobody", "ClusterQueue nobody doesn't exist"),
    ],
)
def test_what_no_queue_covers_is_refused(
    uses: Mapping[str, int], queue_name: str, message: str
) -> None:
    verdict = Cohorts([queue("a", 4)]).admit(QuotaClaim("x", queue_name, uses))
    assert isinstance(verdict, Refuse)
    assert verdict.message.endswith(message)


RECLAIMS: dict[str, tuple[ClusterQueue, int, int, object]] = {
    # taker, GPUs, priority, what becomes of the borrowers b1 (4, priority 5), b2 and b3 (2, 1)
    "never": (queue("a", 6), 2, 9, None),
    "any: the lowest, then the latest admitted": (queue("a", 6, reclaim="Any"), 2, 0, ("b3",)),
    "any: as many as needed": (queue("a", 6, reclaim="Any"), 4, 0, ("b3", "b2")),
    "any: who is not needed after all stays": (
        queue("a", 6, reclaim="Any"),
        6,
        0,
        ("b3", "b1"),
    ),
    "lower priority: some": (queue("a", 6, reclaim="LowerPriority"), 2, 2, ("b3",)),
    "lower priority: none": (queue("a", 6, reclaim="LowerPriority"), 2, 1, None),
    "beyond nominal": (queue("a", 5, reclaim="Any"), 6, 9, None),
    "beyond nominal, where borrowers may": (
        queue("a", 5, reclaim="Any", borrow_preempts=True),
        6,
        9,
        ("b3", "b1"),
    ),
    "beyond nominal, above the threshold": (
        queue("a", 5, reclaim="Any", borrow_preempts=True, borrow_max_priority=1),
        6,
        9,
        None,
    ),
}


@pytest.mark.parametrize(("taker", "gpus", "priority", "gone"), RECLAIMS.values(), ids=RECLAIMS)
def test_a_lender_reclaims(taker: ClusterQueue, gpus: int, priority: int, gone: object) -> None:
    lender = taker.quotas["h100"][GPU].nominal
    cohorts = holding(
        Cohorts([taker, queue("b", 8 - lender)]),
        claim("b1", "b", 4, priority=5),
        claim("b2", "b", 2, priority=1),
        claim("b3", "b", 2, priority=1),
    )
    verdict = cohorts.admit(claim("new", "a", gpus, priority=priority))
    assert gist(verdict) == gone if gone else isinstance(verdict, Refuse)


@pytest.mark.parametrize(
    ("policy", "priority", "created_s", "gone"),
    [
        ("Never", 9, 0.0, None),
        ("LowerPriority", 6, 0.0, ("old",)),
        ("LowerPriority", 5, 0.0, None),
        ("LowerOrNewerEqualPriority", 5, 3.0, ("new",)),
        ("LowerOrNewerEqualPriority", 5, 8.0, None),
    ],
)
def test_a_queue_preempts_its_own(
    policy: str, priority: int, created_s: float, gone: object
) -> None:
    low = 5
    cohorts = holding(
        Cohorts([queue("a", 4, within_queue=policy)]),
        claim("new", "a", 2, priority=low, created_s=6.0),
        claim("old", "a", 2, priority=low, created_s=1.0),
    )
    verdict = cohorts.admit(claim("x", "a", 2, priority=priority, created_s=created_s))
    assert gist(verdict) == gone if gone else isinstance(verdict, Refuse)


def test_one_that_is_leaving_already_is_the_victim_again() -> None:
    cohorts = holding(
        Cohorts([queue("a", 4, reclaim="Any"), queue("b", 0)]),
        claim("b1", "b", 2),
        claim("b2", "b", 2),
    )
    wanted = claim("x", "a", 2)
    assert gist(cohorts.admit(wanted)) == ("b2",)
    cohorts.leaving("b1")
    assert gist(cohorts.admit(wanted)) == ("b1",)
    cohorts.release("b1")
    assert gist(cohorts.admit(wanted)) == "fits"


def test_a_queue_that_lent_back_enough_is_left_in_peace() -> None:
    cohorts = holding(
        Cohorts([queue("a", 4, reclaim="Any"), queue("b", 2), queue("c", 0)]),
        claim("b1", "b", 2),
        claim("b2", "b", 1, priority=1),
        claim("c1", "c", 3, priority=5),
    )
    assert gist(cohorts.admit(claim("x", "a", 3))) == ("c1",)


def test_lowering_a_quota_evicts_nobody_but_lets_others_reclaim() -> None:
    cohorts = holding(Cohorts([queue("a", 4), queue("b", 4)]), claim("b1", "b", 4))
    cohorts.configure([queue("a", 6, reclaim="Any"), queue("b", 2)])
    assert cohorts.used("b") == {("h100", GPU): 4}
    assert gist(cohorts.admit(claim("x", "a", 6))) == ("b1",)


def test_flavors_are_tried_in_order_borrowing_before_the_next_and_preempting_last() -> None:
    def two(name: str, reserved: int, spot: int) -> ClusterQueue:
        flavors = {"reserved": {GPU: Quota(reserved)}, "spot": {GPU: Quota(spot)}}
        return ClusterQueue(name, flavors, cohort="all", reclaim="Any")

    cohorts = Cohorts([two("a", 2, 2), two("b", 2, 2)])
    got = []
    for nth in range(5):
        verdict = cohorts.admit(claim(f"a{nth}", "a", 2))
        assert not isinstance(verdict, Preempt)
        if isinstance(verdict, Admit):
            got.append((verdict.flavors[GPU], verdict.borrows))
            cohorts.hold(claim(f"a{nth}", "a", 2), verdict.flavors)
    assert got == [("reserved", False), ("reserved", True), ("spot", False), ("spot", True)]
    assert gist(cohorts.admit(claim("b", "b", 2))) in {("a0",), ("a1",)}
    picky = cohorts.admit(claim("b", "b", 2, flavors=("spot",)))
    assert isinstance(picky, Preempt)
    assert picky.flavors == {GPU: "spot"}


def test_a_cycle_admits_those_within_quota_before_borrowers() -> None:
    cohorts = Cohorts([queue("a", 2), queue("b", 2)])
    verdicts = cohorts.cycle([claim("a1", "a", 3, priority=9), claim("b1", "b", 2)])
    assert next((one.uid, gist(v)) for one, v in verdicts) == ("b1", "fits")
    assert isinstance(verdicts[1][1], Refuse)


@pytest.mark.parametrize(
    ("strategy", "admitted"), [("StrictFIFO", []), ("BestEffortFIFO", ["small"])]
)
def test_only_a_strict_queue_is_blocked_by_its_head(strategy: str, admitted: list[str]) -> None:
    cohorts = Cohorts([queue("a", 4, strategy=strategy)])
    verdicts = cohorts.cycle([claim("big", "a", 5), claim("small", "a", 1, created_s=1)])
    assert [one.uid for one, verdict in verdicts if isinstance(verdict, Admit)] == admitted


@pytest.mark.parametrize(
    ("held", "wanted"), [(3, 4), (4, 2)], ids=["what it needs", "what its victim still holds"]
)
def test_nobody_slips_into_what_a_preemptor_waits_for(held: int, wanted: int) -> None:
    cohorts = holding(
        Cohorts([queue("a", 4, reclaim="Any"), queue("b", 0), queue("c", 0)]),
        claim("b1", "b", held),
    )
    verdicts = cohorts.cycle([claim("a1", "a", wanted), claim("c1", "c", 1)])
    assert gist(verdicts[0][1]) == ("b1",)
    assert isinstance(verdicts[1][1], Refuse)
    assert "b1" in cohorts.admitted()


def test_only_queues_that_hold_and_drain_are_drained() -> None:
    queues = [queue("a", 1, stop="HoldAndDrain"), queue("b", 1, stop="Hold"), queue("c", 1)]
    cohorts = holding(Cohorts(queues), *(claim(f"{n}1", n, 1) for n in "abc"))
    assert cohorts.to_drain() == ("a1",)


limits = st.none() | st.integers(0, 4)
queues = st.lists(
    st.tuples(
        st.integers(0, 6),
        limits,
        limits,
        st.sampled_from(["Never", "LowerPriority", "Any"]),
        st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2), st.booleans()), max_size=25
)


def built(drawn: list[tuple[int, int | None, int | None, str, str, bool]]) -> list[ClusterQueue]:
    return [
        queue(
            f"q{nth}",
            nominal,
            borrow,
            None if lend is None else min(lend, nominal),
            reclaim=reclaim,
            within_queue=within,
            borrow_preempts=outbids,
        )
        for nth, (nominal, borrow, lend, reclaim, within, outbids) in enumerate(drawn)
    ]


@given(queues, steps)
def test_no_history_exceeds_a_quota_a_limit_or_the_cohort(
    drawn: list[tuple[int, int | None, int | None, str, str, bool]],
    history: list[tuple[int, int, int, bool]],
) -> None:
    made = built(drawn)
    cohorts = Cohorts(made)
    part = ("h100", GPU)
    for nth, (at, gpus, priority, leave) in enumerate(history):
        taker = made[at % len(made)]
        wanted = claim(f"w{nth}", taker.name, gpus, priority=priority, created_s=float(nth))
        used = cohorts.used(taker.name).get(part, 0)
        verdict = cohorts.admit(wanted)
        if used + gpus <= taker.quota(part).nominal and taker.reclaim == "Any":
            assert not isinstance(verdict, Refuse), "guaranteed quota is always to be had"
        if isinstance(verdict, Preempt):
            for uid in verdict.victims:
                cohorts.release(uid)
            flavors, verdict = verdict.flavors, cohorts.admit(wanted)
            assert isinstance(verdict, Admit), "the victims suffice"
            assert verdict.flavors == flavors
        if isinstance(verdict, Admit):
            cohorts.hold(wanted, verdict.flavors, float(nth))
        if leave and cohorts.admitted():
            cohorts.release(min(cohorts.admitted()))
        held = {q.name: cohorts.used(q.name).get(part, 0) for q in made}
        quotas = {q.name: q.quota(part) for q in made}
        assert sum(held.values()) <= sum(quota.nominal for quota in quotas.values())
        for name, quota in quotas.items():
            if quota.borrowing_limit is not None:
                assert held[name] <= quota.nominal + quota.borrowing_limit
        lent = sum(min(quotas[n].nominal, quotas[n].nominal - quotas[n].unlendable) for n in held)
        assert sum(max(0, held[n] - quotas[n].unlendable) for n in held) <= lent


@given(queues, steps)
def test_a_cycle_leaves_what_judging_one_by_one_allows(
    drawn: list[tuple[int, int | None, int | None, str, str, bool]],
    history: list[tuple[int, int, int, bool]],
) -> None:
    made = built(drawn)
    cohorts = Cohorts(made)
    pending = [
        claim(f"w{nth}", made[at % len(made)].name, gpus, priority=priority, created_s=float(nth))
        for nth, (at, gpus, priority, _) in enumerate(history)
    ]
    verdicts = cohorts.cycle(pending)
    admitted = {one.uid for one, verdict in verdicts if isinstance(verdict, Admit)}
    assert admitted == set(cohorts.admitted())
    assert not any(isinstance(verdict, Preempt) for _, verdict in verdicts[:1])
    total = sum(sum(cohorts.used(q.name).values()) for q in made)
    assert total <= sum(q.quota(("h100", GPU)).nominal for q in made)
    left = [one for one in pending if one.uid not in admitted]
    if not any(isinstance(verdict, Preempt) for _, verdict in verdicts):
        assert not any(isinstance(cohorts.admit(one), Admit) for one in left)


@given(queues, steps)
def test_kept_sums_are_those_over_all_queues_of_the_cohort(
    drawn: list[tuple[int, int | None, int | None, str, str, bool]],
    history: list[tuple[int, int, int, bool]],
) -> None:
    """What is available follows from every queue's use, by the formula of `cohort`."""
    made, part = built(drawn), ("h100", GPU)
    ledger = Ledger({one.name: one for one in made})
    for nth, (at, gpus, _, leave) in enumerate(history):
        wanted = claim(f"w{nth}", made[at % len(made)].name, gpus)
        ledger.add(AdmittedClaim(wanted, {GPU: "h100"}, float(nth)))
        if leave:
            ledger.drop(f"w{nth // 2}")
        pool = sum(
            one.quota(part).nominal
            - one.quota(part).unlendable
            - max(0, ledger.use.used(one.name, part) - one.quota(part).unlendable)
            for one in made
        )
        for one in made:
            quota, used = one.quota(part), ledger.use.used(one.name, part)
            held = sum(a.parts[part] for a in ledger.held_by(one.name))
            assert used == held
            room = pool
            if quota.borrowing_limit is not None:
                limit = quota.nominal + quota.borrowing_limit
                room = min(pool, limit - max(used, quota.unlendable))
            assert ledger.use.available(one, part) == max(0, quota.unlendable - used) + room
        assert ledger.use.available(made[0], part) == ledger.use.copy().available(made[0], part)
