"""Kueue's cohorts as they were polled."""

import polars as pl

from analyzers.quota.cohorts import build_trees


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
