"""Fair shares, Jain's index and dominant resource fairness: published examples, then laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.quota.fair import (
    compute_dominant_shares,
    compute_drf,
    compute_fair_share,
    compute_jain,
)

SLIDE = np.array([[4.0, 6.0]]), np.array([[6.0, 8.0]])
"""Two elastic quotas of 10 GPUs: A (min 4, max 6), B (min 6, max 8)."""


@pytest.mark.parametrize(
    ("demand", "share"),
    [
        ((4, 3), (4, 3)),
        ((6, 3), (6, 3)),  # A borrows two
        ((6, 6), (4, 6)),  # B wants its own: A's two borrowed are evicted
        ((10, 0), (6, 0)),  # never above max
        ((0, 10), (0, 8)),
    ],
)
def test_the_elastic_quota_of_the_slide(
    demand: tuple[float, float], share: tuple[float, float]
) -> None:
    nominal, limit = SLIDE
    wanted = np.array([demand], dtype=np.float64)
    got = compute_fair_share(np.array([10.0]), nominal, limit, wanted, nominal)
    assert got[0].tolist() == pytest.approx(share)


def test_what_is_left_goes_by_weight() -> None:
    nominal, weight = np.array([[2.0, 2.0]]), np.array([[3.0, 1.0]])
    limit, demand = np.full((1, 2), np.inf), np.full((1, 2), 100.0)
    got = compute_fair_share(np.array([12.0]), nominal, limit, demand, weight)
    assert got[0].tolist() == pytest.approx((8, 4))


def test_drf_of_the_papers_example() -> None:
    # 9 CPUs, 18 GB; A's tasks take 1 CPU, 4 GB, B's 3 CPUs, 1 GB (Ghodsi et al., NSDI 2011).
    totals, task = np.array([9.0, 18.0]), np.array([[1.0, 4.0], [3.0, 1.0]])
    tasks = compute_drf(totals, task * 100) * 100
    assert tasks.tolist() == pytest.approx((3, 2))
    assert compute_dominant_shares(totals, task * tasks[:, None]).tolist() == pytest.approx(
        (2 / 3, 2 / 3)
    )


def test_who_weighs_nothing_is_granted_nothing() -> None:
    granted = compute_drf(np.array([4.0]), np.array([[2.0], [9.0]]), np.array([0.0, 1.0]))
    assert granted.tolist() == pytest.approx((0, 4 / 9))


@pytest.mark.parametrize(
    ("x", "index"), [((1, 1, 1), 1.0), ((1, 0, 0, 0), 0.25), ((), None), ((0, 0), None)]
)
def test_jain(x: tuple[float, ...], index: float | None) -> None:
    assert compute_jain(np.array(x, dtype=np.float64)) == index


amounts = st.floats(0, 1000, allow_subnormal=False)


@given(st.lists(amounts, min_size=1, max_size=9))
def test_jain_lies_between_one_nth_and_one(x: list[float]) -> None:
    index = compute_jain(np.array(x))
    if index is not None:
        assert 1 / len(x) - 1e-9 <= index <= 1


@given(
    st.lists(st.tuples(amounts, amounts, amounts), min_size=1, max_size=6),
    st.floats(0, 2000, allow_subnormal=False),
)
def test_fair_shares_fit_and_leave_nothing_that_is_wanted(
    queues: list[tuple[float, float, float]], capacity: float
) -> None:
    nominal, extra, demand = (np.array([column]) for column in zip(*queues, strict=True))
    limit = nominal + extra
    weight = np.where(nominal.sum() > 0, nominal, 1.0)
    share = compute_fair_share(np.array([capacity]), nominal, limit, demand, weight)[0]
    want = np.minimum(demand, limit)[0]
    assert share.sum() <= capacity + 1e-6
    assert (share <= want + 1e-6).all()
    if nominal.sum() <= capacity:
        assert (share >= np.minimum(nominal[0], want) - 1e-6).all()
    left = capacity - share.sum()
    wants_more = (want - share > 1e-6) & (weight[0] > 0)
    assert left <= 1e-6 * max(1, capacity) or not wants_more.any()


@given(st.lists(st.tuples(amounts, amounts, amounts), min_size=1, max_size=6))
def test_drf_grants_fit_every_resource(rows: list[tuple[float, float, float]]) -> None:
    totals, wanted = np.array([100.0, 500.0, 900.0]), np.array(rows)
    granted = compute_drf(totals, wanted)
    assert ((granted >= 0) & (granted <= 1)).all()
    assert ((wanted * granted[:, None]).sum(axis=0) <= totals * (1 + 1e-6)).all()
    full = (wanted * granted[:, None]).sum(axis=0) >= totals * (1 - 1e-6)
    cut = granted < 1 - 1e-6
    assert (wanted[cut][:, full] > 0).any(axis=1).all()
