"""Evictions and disruption budgets."""

from typing import Any

import pytest

from tests.simulator.kube.conftest import MERGE, Answer, Space

POLICY = "policy/v1"


def evict(space: Space, name: str = "p", **options: Any) -> Answer:
    body = {"apiVersion": POLICY, "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return space.ask("POST", space.path("pods", name, "eviction"), body)


def budget(
    space: Space, name: str = "b", *, allowed: int | None = 0, healthy: int = 1, desired: int = 1
) -> None:
    """Create a budget for the pods of the test; None = no controller has looked at it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    item = {"metadata": {"name": name}, "spec": spec}
    made = space.create("poddisruptionbudgets", item, POLICY).body
    if allowed is None:
        return
    status = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
    }
    path = space.path("poddisruptionbudgets", name, "status", POLICY)
    assert space.ask("PATCH", path, {"status": status}, media=MERGE).code == 200


def status(space: Space) -> dict[str, Any]:
    found = space.get("poddisruptionbudgets", "b", group=POLICY).body
    return dict(found["status"])


@pytest.fixture
def running(space: Space) -> Space:
    """A running, ready pod `p`."""
    space.pod(running=True, nodeName="n0")
    return space


def test_an_evicted_pod_is_told_to_end_and_says_why(running: Space) -> None:
    answer = evict(running)
    assert (answer.code, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    left = running.get("pods", "p").body
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    marks = {c["type"]: c.get("reason") for c in left["status"]["conditions"]}
    assert marks["DisruptionTarget"] == "EvictionByEvictionAPI"
    assert marks.keys() >= {"Ready"}


def test_a_pod_that_is_not_there_cannot_be_evicted(space: Space) -> None:
    answer = evict(space, "nobody")
    assert (answer.code, answer.body["reason"]) == (404, "NotFound")


def test_a_budget_that_nobody_has_looked_at_asks_to_wait(running: Space) -> None:
    budget(running, allowed=None)
    answer = evict(running)
    assert (answer.code, answer.body["reason"]) == (429, "TooManyRequests")
    assert answer.headers["Retry-After"] == "10"
    assert "still being processed" in answer.body["details"]["causes"][0]["message"]


def test_a_budget_that_is_spent_refuses_and_names_no_time(running: Space) -> None:
    budget(running, allowed=0)
    answer = evict(running)
    assert (answer.code, answer.body["reason"]) == (429, "TooManyRequests")
    assert "Retry-After" not in answer.headers
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"].endswith("needs 1 healthy pods and has 1 currently")
    assert "deletionTimestamp" not in running.get("pods", "p").body["metadata"]


def test_a_budget_that_allows_is_spent(running: Space) -> None:
    budget(running, allowed=1, healthy=2)
    assert evict(running).code == 201
    after = status(running)
    assert after.get("disruptionsAllowed", 0) == 0
    assert list(after["disruptedPods"]) == ["p"]


@pytest.mark.parametrize(("allowed", "code"), [(0, 429), (1, 201)])
def test_a_dry_eviction_tells_the_truth_and_does_nothing(
    running: Space, allowed: int, code: int
) -> None:
    budget(running, allowed=allowed)
    before = running.get("pods", "p").version
    assert evict(running, dryRun=["All"]).code == code
    assert running.get("pods", "p").version == before
    assert status(running).get("disruptionsAllowed", 0) == allowed


def test_two_budgets_are_an_error(running: Space) -> None:
    budget(running, allowed=1)
    budget(running, "c", allowed=1)
    answer = evict(running)
    assert (answer.code, answer.body.get("reason")) == (500, None)
    assert "more than one PodDisruptionBudget" in answer.body["message"]


def test_a_failed_precondition_spends_the_budget_all_the_same(running: Space) -> None:
    budget(running, allowed=1, healthy=2)
    wrong = evict(running, preconditions={"uid": "another"})
    assert (wrong.code, wrong.body["reason"]) == (409, "Conflict")
    assert list(status(running)["disruptedPods"]) == ["p"]
    assert evict(running).code == 429


def test_a_pod_that_has_not_started_is_not_guarded(space: Space) -> None:
    space.pod()
    budget(space, allowed=0)
    assert evict(space).code == 201
    assert space.get("pods", "p").code == 404
