"""What the server makes of what it is given: quantities, conditions, defaults, finalizers."""

from typing import Any

import pytest

from tests.simulator.kube.conftest import STRATEGIC, Space, pod, replicated

APPS, BATCH = "apps/v1", "batch/v1"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"memory": "8192Mi"}, {"memory": "8Gi"}),
        ({"memory": "7476Mi"}, {"memory": "7476Mi"}),
        ({"memory": "1.5Gi"}, {"memory": "1536Mi"}),
        ({"memory": "1073741824"}, {"memory": "1073741824"}),
        ({"cpu": "2000m"}, {"cpu": "2"}),
        ({"cpu": "2500m"}, {"cpu": "2500m"}),
        ({"cpu": "0.1"}, {"cpu": "100m"}),
        ({"cpu": "1e3"}, {"cpu": "1e3"}),
        ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}),
    ],
)
def test_quantities_are_stored_in_canonical_form(
    space: Space, given: dict[str, str], stored: dict[str, str]
) -> None:
    made = space.create("pods", pod(limits=given)).body
    assert made["spec"]["containers"][0]["resources"] == {"limits": stored, "requests": stored}
    item = replicated()
    item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": given}
    made = space.create("deployments", item, APPS).body
    (main, _) = made["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["limits"] == stored


def test_a_patch_with_another_text_of_the_same_quantity_changes_nothing(space: Space) -> None:
    spec = {"hard": {"requests.memory": "8Gi", "pods": "10"}}
    made = space.create("resourcequotas", {"metadata": {"name": "q"}, "spec": spec})
    again = {"spec": {"hard": {"requests.memory": "8192Mi"}}}
    after = space.patch("resourcequotas", "q", again)
    assert (after.body["spec"], after.version) == (spec, made.version)


def test_a_custom_kind_keeps_the_text_of_its_quantities(space: Space) -> None:
    spec = {"resources": {"limits": {"memory": "8192Mi"}}}
    flow = "kubeflow.org/v1"
    body = {"apiVersion": flow, "kind": "Notebook", "metadata": {"name": "n"}, "spec": spec}
    assert space.create("notebooks", body, flow).body["spec"] == spec


@pytest.mark.parametrize("more", [{}, {"lastTransitionTime": "2026-11-22T12:00:00Z"}])
def test_a_condition_may_lack_the_time_of_its_transition(
    space: Space, more: dict[str, Any]
) -> None:
    space.create("deployments", replicated(replicas=1), APPS)
    condition = {"type": "Available", "status": "True", **more}
    body = {"status": {"conditions": [condition]}}
    answer = space.patch("deployments", "web", body, group=APPS, part="status", media=STRATEGIC)
    assert answer.code == 200
    (stored,) = answer.body["status"]["conditions"]
    assert (stored["type"], stored["status"]) == ("Available", "True")
    assert (stored.get("lastTransitionTime") or "") == more.get("lastTransitionTime", "")


def test_replicas_that_are_taken_away_are_the_default_again(space: Space) -> None:
    space.create("deployments", replicated(replicas=3), APPS)
    after = space.patch("deployments", "web", {"spec": {"replicas": None}}, group=APPS)
    assert after.body["spec"]["replicas"] == 1


def test_a_job_deleted_as_it_is_waits_for_the_collector(space: Space) -> None:
    template = pod()["spec"] | {"restartPolicy": "Never"}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": template}}}
    assert space.create("jobs", job, BATCH).code == 201
    space.ask("DELETE", space.path("jobs", "j", group=BATCH))
    meta = space.get("jobs", "j", group=BATCH).body["metadata"]
    assert "orphan" in meta["finalizers"]
    assert "deletionTimestamp" in meta
    again = space.create("jobs", job, BATCH)
    assert (again.code, again.body["reason"]) == (409, "AlreadyExists")
