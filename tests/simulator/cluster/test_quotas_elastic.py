"""ElasticQuota: min is guaranteed, max is a cap, what lies between is borrowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import UsageError
from simulator.cluster.quotas.claims import Admit, Preempt, QuotaClaim, Refuse
from simulator.cluster.quotas.elastic import ElasticQuota, ElasticQuotas

GPU = "nvidia.com/gpu"


def claim(uid: str, namespace: str, gpus: int, priority: int = 0) -> QuotaClaim:
    return QuotaClaim(uid, namespace, {GPU: gpus, "cpu": 1000}, priority)


def quotas(**bounds: tuple[int, int]) -> ElasticQuotas:
    return ElasticQuotas(
        ElasticQuota(name, {GPU: least}, {GPU: most}) for name, (least, most) in bounds.items()
    )


def borrowed() -> ElasticQuotas:
    """Return a, which borrows two of ten GPUs, and b, which uses three of its six."""
    found = quotas(a=(4, 6), b=(6, 8))
    for nth in range(6):
        found.hold(claim(f"a{nth}", "a", 1), float(nth))
    found.hold(claim("b0", "b", 3))
    return found


def test_a_lender_that_wants_its_min_back_evicts_what_was_borrowed_and_no_more() -> None:
    found = borrowed()
    assert isinstance(found.admit(claim("b1", "b", 1)), Admit)
    assert found.admit(claim("b1", "b", 3)) == Preempt(("a5", "a4"))


def test_the_guarantee_outranks_priority() -> None:
    found = quotas(a=(4, 8), b=(4, 8))
    found.hold(claim("a0", "a", 8, priority=99))
    assert found.admit(claim("b0", "b", 4)) == Preempt(("a0",))


def test_above_its_min_a_namespace_evicts_only_its_own_of_lower_priority() -> None:
    found = quotas(a=(4, 10), b=(6, 10))
    for uid, priority in (("low", 1), ("high", 9)):
        found.hold(claim(uid, "a", 2, priority))
    found.hold(claim("b0", "b", 6))
    assert found.admit(claim("x", "a", 2, priority=5)) == Preempt(("low",))
    assert isinstance(found.admit(claim("x", "a", 2, priority=1)), Refuse)


@pytest.mark.parametrize(
    ("gpus", "message"), [(1, "more than Max"), (0, None)], ids=["over max", "asks none"]
)
def test_max_is_a_cap_even_when_all_else_is_free(gpus: int, message: str | None) -> None:
    found = quotas(a=(1, 2), b=(6, 8))
    found.hold(claim("a0", "a", 2))
    verdict = found.admit(claim("a1", "a", gpus))
    assert (verdict.message if isinstance(verdict, Refuse) else None) == (
        message
        and "Pod a1 is rejected in PreFilter because ElasticQuota a is more than Max"
        " (nvidia.com/gpu: 3 > 2)"
    )


def test_a_namespace_without_quota_is_none_of_its_business() -> None:
    found = borrowed()
    assert found.admit(claim("x", "elsewhere", 99)) == Admit()
    assert found.may(claim("x", "elsewhere", 1, priority=5), "unknown", priority=1)
    assert not found.may(claim("x", "elsewhere", 1, priority=5), "a5")
    assert not found.may(claim("x", "b", 1, priority=5), "unknown", priority=1)


def test_on_a_node_the_lender_may_evict_borrowers_and_nobody_else() -> None:
    found = borrowed()
    wanted = claim("x", "b", 3)
    assert [uid for uid in ("a0", "a5", "b0") if found.may(wanted, uid)] == ["a0", "a5"]
    for uid in ("a4", "a5"):
        found.release(uid)
    assert not any(found.may(wanted, uid) for uid in ("a0", "b0"))


def test_a_min_above_its_max_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'a': min of nvidia.com/gpu is 3, max only 2"):
        quotas(a=(3, 2))


def test_the_first_quota_of_a_namespace_counts() -> None:
    found = ElasticQuotas([ElasticQuota("a", {GPU: 1}), ElasticQuota("a", {GPU: 9})])
    assert found.quotas["a"].min == {GPU: 1}


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2), st.booleans()),
        max_size=25,
    ),
)
def test_no_history_exceeds_max_or_the_sum_of_mins_and_min_is_always_to_be_had(
    bounds: list[tuple[int, int]], history: list[tuple[int, int, int, bool]]
) -> None:
    made = {f"n{i}": (least, least + more) for i, (least, more) in enumerate(bounds)}
    found = quotas(**made)
    held: list[str] = []
    for nth, (at, gpus, priority, leave) in enumerate(history):
        name = f"n{at % len(made)}"
        wanted = claim(f"w{nth}", name, gpus, priority)
        used = found.used(name).get(GPU, 0)
        verdict = found.admit(wanted)
        if used + gpus <= made[name][0]:
            assert not isinstance(verdict, Refuse), "min is guaranteed"
        if isinstance(verdict, Preempt):
            for uid in verdict.victims:
                found.release(uid)
                held.remove(uid)
            verdict = found.admit(wanted)
            assert isinstance(verdict, Admit), "the victims suffice"
        if isinstance(verdict, Admit):
            found.hold(wanted, float(nth))
            held.append(wanted.uid)
        if leave and held:
            found.release(held.pop(0))
        total = {n: found.used(n).get(GPU, 0) for n in made}
        assert all(total[n] <= most for n, (_, most) in made.items())
        assert sum(total.values()) <= sum(least for least, _ in made.values())
