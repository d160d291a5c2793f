"""Patches: three kinds of them, tried dry, refused when the object is not the one meant."""

from typing import Any

import pytest

from tests.simulator.kube.conftest import JSON, STRATEGIC, Space, replicated

APPS, FLOW = "apps/v1", "kubeflow.org/v1"
IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "new"}]}}}}


@pytest.fixture
def web(space: Space) -> dict[str, Any]:
    """A Deployment with a side-car."""
    return space.create("deployments", replicated(replicas=2), APPS).body


@pytest.fixture
def notebook(space: Space) -> dict[str, Any]:
    """A custom object."""
    item = {
        "apiVersion": FLOW,
        "kind": "Notebook",
        "metadata": {"name": "n"},
        "spec": {"a": 1, "items": [{"name": "x", "v": 1}]},
    }
    return space.create("notebooks", item, FLOW).body


def images(space: Space) -> dict[str, str]:
    spec = space.get("deployments", "web", group=APPS).body["spec"]["template"]["spec"]
    return {c["name"]: c.get("image", "") for c in spec["containers"]}


@pytest.mark.usefixtures("web")
def test_a_strategic_patch_keeps_the_side_car_and_a_merge_patch_loses_it(space: Space) -> None:
    assert space.patch("deployments", "web", IMAGE, group=APPS, media=STRATEGIC).code == 200
    assert images(space) == {"main": "new", "side": "b"}
    assert space.patch("deployments", "web", IMAGE, group=APPS).code == 200
    assert images(space) == {"main": "new"}


@pytest.mark.usefixtures("web")
def test_a_strategic_patch_deletes_by_name(space: Space) -> None:
    gone = [{"name": "side", "$patch": "delete"}]
    body = {"spec": {"template": {"spec": {"containers": gone}}}}
    assert space.patch("deployments", "web", body, group=APPS, media=STRATEGIC).code == 200
    assert images(space) == {"main": "a"}


@pytest.mark.usefixtures("notebook")
def test_custom_objects_take_no_strategic_patch(space: Space) -> None:
    answer = space.patch("notebooks", "n", {"spec": {"a": 2}}, group=FLOW, media=STRATEGIC)
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.usefixtures("notebook")
def test_a_json_patch_tests_and_then_replaces(space: Space) -> None:
    steps = [
        {"op": "test", "path": "/spec/items/0/name", "value": "x"},
        {"op": "test", "path": "/spec/items/0/v", "value": 1},
        {"op": "replace", "path": "/spec/items/0/v", "value": 2},
        {"op": "add", "path": "/metadata/annotations", "value": {"a~/b": "c"}},
        {"op": "add", "path": "/spec/items/-", "value": {"name": "y"}},
        {"op": "remove", "path": "/metadata/annotations/a~0~1b"},
    ]
    after = space.patch("notebooks", "n", steps, group=FLOW, media=JSON)
    assert after.code == 200, after.body
    assert after.body["spec"]["items"] == [{"name": "x", "v": 2}, {"name": "y"}]


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize(
    "step",
    [
        {"op": "test", "path": "/spec/a", "value": 9},
        {"op": "replace", "path": "/spec/no/missing", "value": 1},
        {"op": "test", "path": "/spec/no/missing", "value": None},
        {"op": "remove", "path": "/spec/missing"},
    ],
)
def test_a_json_patch_that_does_not_apply_gives_no_detail(
    space: Space, step: dict[str, Any]
) -> None:
    last = {"op": "replace", "path": "/spec/a", "value": 5}
    answer = space.patch("notebooks", "n", [step, last], group=FLOW, media=JSON)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    output = "the server rejected our request due to an error in our request"
    assert (answer.body["message"], answer.body["details"]) == (output, {})
    assert space.get("notebooks", "n", group=FLOW).body["spec"]["a"] == 1


@pytest.mark.usefixtures("notebook")
def test_a_json_patch_takes_a_missing_key_for_null_and_puts_it_there(space: Space) -> None:
    steps = [
        {"op": "test", "path": "/spec/missing", "value": None},
        {"op": "replace", "path": "/spec/missing", "value": 1},
    ]
    answer = space.patch("notebooks", "n", steps, group=FLOW, media=JSON)
    assert (answer.code, answer.body["spec"]["missing"]) == (200, 1)


def test_a_patch_of_a_version_gone_by_is_a_conflict(space: Space, web: dict[str, Any]) -> None:
    stale = web["metadata"]["resourceVersion"]
    fresh = space.patch("deployments", "web", {"spec": {"replicas": 3}}, group=APPS).version
    body = {"metadata": {"resourceVersion": stale}, "spec": {"replicas": 4}}
    answer = space.patch("deployments", "web", body, group=APPS)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["details"] == {"name": "web", "group": "apps", "kind": "deployments"}
    body["metadata"] = {"resourceVersion": fresh}
    assert space.patch("deployments", "web", body, group=APPS).code == 200


def test_a_patch_of_another_uid_is_invalid(space: Space, web: dict[str, Any]) -> None:
    body: dict[str, Any] = {"metadata": {"uid": "another"}, "spec": {"replicas": 4}}
    answer = space.patch("deployments", "web", body, group=APPS)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert "metadata.uid" in answer.body["message"]
    assert "field is immutable" in answer.body["message"]
    body["metadata"] = {"uid": web["metadata"]["uid"]}
    assert space.patch("deployments", "web", body, group=APPS).code == 200


def test_a_dry_run_checks_everything_and_stores_nothing(space: Space, web: dict[str, Any]) -> None:
    body = {"spec": {"replicas": 9}}
    tried = space.patch("deployments", "web", body, group=APPS, dryRun="All")
    assert (tried.code, tried.body["spec"]["replicas"]) == (200, 9)
    kept = space.get("deployments", "web", group=APPS)
    assert (kept.version, kept.body["spec"]["replicas"]) == (web["metadata"]["resourceVersion"], 2)
    bad = space.patch("deployments", "web", {"spec": {"replicas": -1}}, group=APPS, dryRun="All")
    assert bad.code == 422
    made = space.create("configmaps", {"metadata": {"name": "c"}}, dryRun="All")
    assert made.code == 201
    assert space.get("configmaps", "c").code == 404


@pytest.mark.usefixtures("web")
def test_a_dry_run_of_any_other_word_is_refused(space: Space) -> None:
    answer = space.patch("deployments", "web", {}, group=APPS, dryRun="Some")
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert "dryRun" in answer.body["message"]


@pytest.mark.usefixtures("web")
def test_unknown_fields_are_dropped_or_refused(space: Space) -> None:
    body = {"spec": {"replicaz": 4}}
    lax = space.patch("deployments", "web", body, group=APPS)
    assert lax.code == 200
    assert "replicaz" not in lax.body["spec"]
    strict = space.patch("deployments", "web", body, group=APPS, fieldValidation="Strict")
    assert strict.code == 422
    assert 'unknown field "spec.replicaz"' in strict.body["message"]
    item = replicated("other")
    item["spec"]["replicaz"] = 4
    made = space.create("deployments", item, APPS, fieldValidation="Strict")
    assert made.code == 400
    assert "strict decoding error" in made.body["message"]


@pytest.mark.usefixtures("web")
def test_managed_fields_say_who_wrote_what(space: Space) -> None:
    space.patch("deployments", "web", {"spec": {"replicas": 0}}, group=APPS, fieldManager="fallow")
    meta = space.get("deployments", "web", group=APPS).body["metadata"]
    owners = {
        e["manager"]
        for e in meta["managedFields"]
        if "f:replicas" in e["fieldsV1"].get("f:spec", {})
    }
    assert owners == {"fallow"}
    assert {e["operation"] for e in meta["managedFields"]} == {"Update"}


def test_the_scale_of_a_version_gone_by_is_a_conflict(space: Space, web: dict[str, Any]) -> None:
    stale = web["metadata"]["resourceVersion"]
    space.patch("deployments", "web", {"metadata": {"labels": {"a": "b"}}}, group=APPS)
    body = {"metadata": {"resourceVersion": stale}, "spec": {"replicas": 0}}
    answer = space.patch("deployments", "web", body, group=APPS, part="scale")
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
