"""What holds a pod although it is idle: budgets that allow none, standbys, elections."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analyzers.holds import PodMarks, find_holds
from fallow.window import Window
from warehouse.disruption_budgets import BudgetHistory, BudgetObject, DisruptionBudgets

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


def test_a_budget_holds_in_its_life_only(views: Any) -> None:
    """One was deleted at 5 o'clock, another was created at 3; pods are polled to the end."""
    start = datetime(2026, 11, 1)  # noqa: DTZ001  (as in the tables)
    hour = timedelta(hours=1)
    place = {"cluster": "c", "namespace": "ml", "selector": MINE, "min_available": "1"}
    lives = {"deleted": (0, 5), "created": (3, 9)}
    views.rows(
        "disruption_budget",
        [
            place | {"name": name, "first_seen": start + hour * a, "last_seen": start + hour * b}
            for name, (a, b) in lives.items()
        ],
    )
    views.rows("pod", [{"cluster": "c", "uid": "u", "last_seen": start + hour * 9}])
    end = (start + hour * 9).replace(tzinfo=UTC)
    history = BudgetHistory(views, end)

    def list_names(budgets: DisruptionBudgets) -> set[str]:
        return {budget.name for budget in budgets.of("c", "ml", '{"app":"a"}')}

    times = [int((start + hour * n).replace(tzinfo=UTC).timestamp() * 1e6) for n in range(10)]
    there = [list_names(history.find(at)) for at in times]
    assert there == [{"deleted"}] * 3 + [{"deleted", "created"}] * 2 + [{"created"}] * 5
    states = [*history.list_states("c", "ml")]
    assert [list_names(budgets) for _, _, budgets in states] == [
        set(), {"deleted"}, {"deleted", "created"}, {"created"}
    ]  # fmt: skip
    assert list_names(DisruptionBudgets.read(views, Window(end - hour, end))) == {"created"}
