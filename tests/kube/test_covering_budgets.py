"""The budgets of a case by what its cluster's poll read: none, some, or not known."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from actions.facts import gather_facts
from fallow.disruptions import CoveringBudget
from tests.actions.cases import finding
from tests.analyzers.conftest import Memory
from tests.kube.conftest import Cluster, Look
from tests.kube.objects import meta, node, pod

GPU = {"nvidia.com/gpu": "1"}


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


Budgets = tuple[tuple[CoveringBudget, ...] | None, bool]


@pytest.fixture
def read_budgets(
    cluster: Cluster, look: Look, views: Memory, now: datetime
) -> Callable[[], Budgets]:
    """Return what reads the budgets of an idle Deployment, and whether the poll lacks some."""
    cluster.put("Namespace", {"metadata": {"name": "ml"}})
    cluster.put("Node", node(capacity={"nvidia.com/gpu": "2"}))
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {}, "spec": {}}}
    deployment = {
        "apiVersion": "apps/v1",
        "metadata": {"name": "web", "namespace": "ml"},
        "spec": spec,
    }
    cluster.put("Deployment", deployment)
    for name in ("web-1", "web-2"):
        item = pod(name, limits=GPU, owner=("apps/v1", "Deployment/web"))
        item["metadata"]["labels"] = {"app": "web"}
        cluster.put("Pod", item)
    return lambda: _read(look(), views, now)


def _read(rows: dict[str, Any], views: Memory, now: datetime) -> Budgets:
    for table in ("pod", "scrape", "disruption_budget"):
        zone = [
            {k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in row.items()}
            for row in rows.get(table, [])
        ]
        views.rows(table, zone)
    subject = type(finding().subject)("c", "ml", "Deployment", "web")
    later = now + timedelta(minutes=1)
    (facts,) = gather_facts(views, [finding("Deployment", "ml", subject=subject)], later)
    return facts.budgets, facts.budgets_unread


def test_a_poll_that_found_no_budget_is_known_to_have_none(
    read_budgets: Callable[[], Budgets],
) -> None:
    assert read_budgets() == ((), False)


def test_a_poll_that_was_forbidden_leaves_the_budgets_unknown(
    cluster: Cluster, read_budgets: Callable[[], Budgets]
) -> None:
    cluster.forbid("poddisruptionbudgets")
    assert read_budgets() == (None, True)


def test_a_budget_is_counted_with_the_pods_that_it_covers(
    cluster: Cluster, read_budgets: Callable[[], Budgets]
) -> None:
    selector = {"matchLabels": {"app": "web"}}
    status = {"disruptionsAllowed": 1, "expectedPods": 2}
    item = {**meta("keep"), "spec": {"selector": selector}, "status": status}
    cluster.put("PodDisruptionBudget", item)
    assert read_budgets() == ((CoveringBudget("ml/keep", 1, 2),), False)


@pytest.mark.parametrize(("seen", "allowed"), [(1, None), (2, 1)])
def test_a_count_of_an_earlier_spec_is_none(
    cluster: Cluster, read_budgets: Callable[[], Budgets], seen: int, allowed: int | None
) -> None:
    status = {"disruptionsAllowed": 1, "expectedPods": 2, "observedGeneration": seen}
    selector = {"matchLabels": {"app": "web"}}
    metadata = {"name": "keep", "namespace": "ml", "generation": 2}
    item = {"metadata": metadata, "spec": {"selector": selector}, "status": status}
    cluster.put("PodDisruptionBudget", item)
    assert read_budgets() == ((CoveringBudget("ml/keep", allowed, 2),), False)
