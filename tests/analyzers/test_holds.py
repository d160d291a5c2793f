"""What holds a pod although it is idle: budgets that allow none, standbys, elections."""

import json
from typing import Any

import pytest

from analyzers.holds import PodMarks, find_holds
from warehouse.disruption_budgets import BudgetObject, DisruptionBudgets

MINE = json.dumps({"matchLabels": {"app": "a"}})


def budget(allowed: int = 0, *, counted: bool = True, **changes: Any) -> BudgetObject:
    row = {"cluster": "c", "namespace": "ml", "name": "keep", "selector": MINE, **changes}
    return BudgetObject(
        **row, min_available="1", max_unavailable=None, allowed=allowed, counted=counted
    )


def find(
    *budgets: BudgetObject, labels: dict[str, str] | None = None, containers: str | None = None
) -> list[tuple[str, str]]:
    pod = PodMarks("c", "ml", json.dumps({"app": "a", **(labels or {})}), containers)
    return [(h.name, h.why.partition(":")[0]) for h in find_holds(pod, DisruptionBudgets(budgets))]


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (budget(0), [("ml/keep", "held by PDB ml/keep")]),
        (budget(1), []),
        (budget(0, counted=False), [("", "PDB ml/keep")]),
        (budget(0, namespace="other"), []),
        (budget(0, cluster="d"), []),
        (budget(0, selector='{"matchLabels": {"app": "b"}}'), []),
        (budget(0, selector="{}"), [("ml/keep", "held by PDB ml/keep")]),
    ],
)
def test_a_budget_holds_what_it_covers_and_allows_no_disruption_of(
    row: BudgetObject, holds: list[tuple[str, str]]
) -> None:
    assert find(row) == holds


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({"role": "standby"}, ["role=standby"]),
        ({"role": "Standby"}, ["role=Standby"]),
        ({"role": "hot-standby"}, ["role=hot-standby"]),
        ({"role": "follower"}, ["role=follower"]),
        ({"app.kubernetes.io/component": "standby"}, ["app.kubernetes.io/component=standby"]),
        ({"role": "leader"}, []),
        ({"role": "standby-exporter"}, []),
        ({"tier": "standby"}, []),
    ],
)
def test_a_standby_has_its_role_in_a_label(labels: dict[str, str], names: list[str]) -> None:
    assert [name for name, _ in find(labels=labels)] == names


@pytest.mark.parametrize(
    ("name", "is_held"), [("leader-elector", True), ("leader", False), ("c", False)]
)
def test_a_container_that_elects_a_leader_holds(name: str, is_held: bool) -> None:
    containers = json.dumps([{"name": "c", "gpu": 1}, {"name": name}])
    assert bool(find(containers=containers)) is is_held
    assert find() == []
