"""Cohorts: what may be borrowed through trees with limits on lending and borrowing."""

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.quota.cohorts import CohortTree, build_trees

INF = np.inf
Doubles = npt.NDArray[np.float64]


def hours(*values: float) -> Doubles:
    return np.array([values], dtype=np.float64)


@pytest.mark.parametrize(
    ("own", "limit", "room"),
    [
        # b keeps 4 of its 6 to itself: of its 5 unused only 2 can be borrowed
        ({}, (INF, INF), (2, 5)),
        ({"A": (0, 1, INF)}, (INF, INF), (1, 5)),
        ({"A": (0, 1, INF)}, (4.5, INF), (0.5, 5)),
        ({"B": (0, INF, 0)}, (INF, INF), (0, 5)),
        ({"R": (3, INF, INF)}, (INF, INF), (5, 8)),
        ({"R": (3, INF, INF)}, (INF, 6), (5, 5)),
    ],
    ids=["lends 2", "A borrows 1", "a borrows half", "B lends nothing", "R adds 3", "b capped"],
)
def test_a_queue_has_what_kueue_would_let_it_have(
    own: dict[str, tuple[float, float, float]],
    limit: tuple[float, float],
    room: tuple[float, float],
) -> None:
    """Queue a (nominal 4, all used) in A, b (nominal 6, 1 used, lends 2) in B, both under R."""
    amounts = {n: (np.array([a]), np.array([b]), np.array([c])) for n, (a, b, c) in own.items()}
    tree = CohortTree(
        ("A", "B"), {"A": "R", "B": "R"}, amounts, hours(4, 6), hours(*limit), hours(INF, 2)
    )
    assert tree.room(hours(4, 1)).tolist() == [list(room)]


quantities = st.lists(st.floats(0, 16), min_size=3, max_size=3)


@given(quantities, quantities, st.floats(0, 16))
def test_no_queue_can_have_more_than_the_tree_or_less_for_lending_more(
    nominal: list[float], used: list[float], lending: float
) -> None:
    def room(most: float) -> Doubles:
        lends = np.full((1, 3), most)
        parents, up = ("A", "A", "B"), {"A": "R", "B": "R"}
        tree = CohortTree(parents, up, {}, hours(*nominal), hours(INF, INF, INF), lends)
        found: Doubles = tree.room(hours(*used))[0]
        return found

    whole = max(sum(nominal) - sum(used), 0)
    assert room(INF) == pytest.approx([whole] * 3)
    if all(u <= n for u, n in zip(used, nominal, strict=True)):
        assert (room(lending) <= room(INF) + 1e-9).all()
        assert room(0) == pytest.approx(np.subtract(nominal, used))


def test_queues_of_one_tree_are_one_group_and_a_circle_ends() -> None:
    rows = pl.DataFrame(
        {
            "cluster": "c", "name": ["A", "B", "x", "y"], "parent": ["R", "R", "y", "x"],
            "hour": 0, "resource": "cohorts", "flavor": "",
        }
    )  # fmt: skip
    queues = pl.DataFrame(
        {
            "cluster": "c", "kind": ["ClusterQueue"] * 4 + ["Queue.kai"],
            "parent": ["A", "B", None, "x", "A"],
        }
    )  # fmt: skip
    found = build_trees(rows).rooted(queues)
    assert found["parent"].to_list() == ["R", "R", None, "y", "A"]
    assert found["cohort"].to_list() == ["A", "B", None, "x", "A"]
