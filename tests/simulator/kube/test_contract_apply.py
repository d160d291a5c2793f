"""Server-side apply: who owns a field, who takes it over, and what a dropped field becomes."""

import time
from typing import Any

import pytest

from tests.simulator.kube.conftest import MERGE, Answer, Space, replicated

APPS, FLOW = "apps/v1", "kubeflow.org/v1"
APPLY = "application/apply-patch+yaml"


def apply(
    space: Space, body: dict[str, Any], manager: str, name: str = "web", **query: Any
) -> Answer:
    """Apply a Deployment as a manager."""
    whole = {"apiVersion": APPS, "kind": "Deployment", **body}
    whole["metadata"] = {"name": name, **body.get("metadata", {})}
    path = space.path("deployments", name, group=APPS)
    return space.ask("PATCH", path, whole, media=APPLY, fieldManager=manager, **query)


def owners(space: Space, *parts: str) -> dict[tuple[str, str], bool]:
    """Return who holds a field, by manager and operation."""
    found = {}
    for entry in space.get("deployments", "web", group=APPS).body["metadata"]["managedFields"]:
        here: Any = entry["fieldsV1"]
        for part in parts:
            here = here.get(part) if isinstance(here, dict) else None
        if here is not None:
            found[entry["manager"], entry["operation"]] = True
    return found


@pytest.fixture
def web(space: Space) -> dict[str, Any]:
    """A Deployment of three that kubectl made."""
    made = space.create("deployments", replicated(replicas=3), APPS, fieldManager="kubectl-create")
    assert made.code == 201
    return made.body


def test_what_is_not_there_is_made_and_its_fields_are_the_managers(space: Space) -> None:
    made = apply(space, replicated(replicas=2), "one")
    assert made.code == 201
    again = apply(space, replicated(replicas=2), "one")
    assert (again.code, again.version) == (200, made.version)
    assert owners(space, "f:spec", "f:replicas") == {("one", "Apply"): True}
    main = ("f:spec", "f:template", "f:spec", "f:containers", 'k:{"name":"main"}', "f:image")
    assert owners(space, *main) == {("one", "Apply"): True}


@pytest.mark.usefixtures("web")
def test_a_field_of_another_manager_is_a_conflict_with_its_cause(space: Space) -> None:
    answer = apply(space, {"spec": {"replicas": 5}}, "one")
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    owner = 'conflict with "kubectl-create" using apps/v1'
    assert answer.body["message"] == f"Apply failed with 1 conflict: {owner}: .spec.replicas"
    cause = {"reason": "FieldManagerConflict", "message": owner, "field": ".spec.replicas"}
    assert answer.body["details"]["causes"] == [cause]
    assert space.get("deployments", "web", group=APPS).body["spec"]["replicas"] == 3


@pytest.mark.usefixtures("web")
def test_several_conflicts_are_all_named(space: Space) -> None:
    containers = [{"name": "main", "image": "other"}]
    body = {"spec": {"replicas": 5, "template": {"spec": {"containers": containers}}}}
    answer = apply(space, body, "one")
    image = '.spec.template.spec.containers[name="main"].image'
    assert answer.code == 409
    assert {c["field"] for c in answer.body["details"]["causes"]} == {".spec.replicas", image}
    assert answer.body["message"].splitlines() == [
        'Apply failed with 2 conflicts: conflicts with "kubectl-create" using apps/v1:',
        *sorted(["- .spec.replicas", f"- {image}"]),
    ]


@pytest.mark.usefixtures("web")
def test_the_same_value_is_shared_and_force_takes_over(space: Space) -> None:
    assert apply(space, {"spec": {"replicas": 3}}, "one").code == 200
    both = {("one", "Apply"): True, ("kubectl-create", "Update"): True}
    assert owners(space, "f:spec", "f:replicas") == both
    assert apply(space, {"spec": {"replicas": 5}}, "one").code == 409
    forced = apply(space, {"spec": {"replicas": 5}}, "one", force="true")
    assert (forced.code, forced.body["spec"]["replicas"]) == (200, 5)
    assert owners(space, "f:spec", "f:replicas") == {("one", "Apply"): True}


def test_a_field_that_is_dropped_is_reset_or_taken_away(space: Space) -> None:
    first = replicated(replicas=4)
    first["metadata"]["labels"] = {"team": "vision"}
    assert apply(space, first, "one").code == 201
    second = replicated()
    second["spec"]["template"]["spec"]["containers"].pop()  # the side-car
    after = apply(space, second, "one").body
    assert after["spec"]["replicas"] == 1, "an apply without replicas resets them to the default"
    assert "labels" not in after["metadata"]
    assert [c["name"] for c in after["spec"]["template"]["spec"]["containers"]] == ["main"]


@pytest.mark.usefixtures("web")
def test_a_dropped_field_that_another_manager_owns_too_stays(space: Space) -> None:
    assert apply(space, {"spec": {"replicas": 3}}, "one").code == 200
    after = apply(space, {"metadata": {"labels": {"a": "b"}}}, "one")
    assert (after.code, after.body["spec"]["replicas"]) == (200, 3)
    assert owners(space, "f:spec", "f:replicas") == {("kubectl-create", "Update"): True}


def test_a_merge_patch_takes_a_field_from_whoever_applied_it(space: Space) -> None:
    apply(space, replicated(replicas=2), "one")
    body = {"spec": {"replicas": 0}}
    space.patch("deployments", "web", body, group=APPS, media=MERGE, fieldManager="fallow")
    assert owners(space, "f:spec", "f:replicas") == {("fallow", "Update"): True}
    answer = apply(space, replicated(replicas=2), "one")
    assert answer.code == 409
    assert 'conflict with "fallow" using apps/v1' in answer.body["message"]


def test_an_apply_says_who_applies_and_no_managed_fields(space: Space) -> None:
    path = space.path("deployments", "web", group=APPS)
    whole = {"apiVersion": APPS, "kind": "Deployment", **replicated()}
    reply = space.ask("PATCH", path, whole, media=APPLY)
    assert reply.code == 422
    assert "fieldManager: Required value: is required for apply patch" in reply.body["message"]
    made = apply(space, replicated(), "one").body
    fields = {"metadata": {"managedFields": made["metadata"]["managedFields"]}}
    assert apply(space, {**replicated(), **fields}, "one").code == 400
    forced = space.patch("deployments", "web", {}, group=APPS, force="true")
    assert forced.code == 422
    assert "may not be specified for non-apply patch" in forced.body["message"]


@pytest.mark.usefixtures("web")
def test_a_dry_apply_stores_nothing_and_an_old_version_is_a_conflict(
    space: Space, web: dict[str, Any]
) -> None:
    dry = apply(space, {"spec": {"replicas": 5}}, "one", force="true", dryRun="All")
    assert dry.body["spec"]["replicas"] == 5
    assert space.get("deployments", "web", group=APPS).version == web["metadata"]["resourceVersion"]
    stale = {"metadata": {"resourceVersion": web["metadata"]["resourceVersion"]}}
    assert apply(space, {**stale, "spec": {"paused": True}}, "one").code == 200
    answer = apply(space, {**stale, "spec": {"paused": False}}, "one")
    assert answer.code == 409
    assert "the object has been modified" in answer.body["message"]


def test_lists_of_a_custom_kind_are_one_field(space: Space) -> None:
    def notebook(items: list[dict[str, Any]], manager: str, **query: Any) -> Answer:
        body = {
            "apiVersion": FLOW,
            "kind": "Notebook",
            "metadata": {"name": "n"},
            "spec": {"items": items},
        }
        path = space.path("notebooks", "n", group=FLOW)
        return space.ask("PATCH", path, body, media=APPLY, fieldManager=manager, **query)

    assert notebook([{"name": "x", "v": 1}], "one").code == 201
    answer = notebook([{"name": "y", "v": 2}], "two")
    assert answer.code == 409
    assert [c["field"] for c in answer.body["details"]["causes"]] == [".spec.items"]
    after = notebook([{"name": "y", "v": 2}], "two", force="true")
    assert after.body["spec"]["items"] == [{"name": "y", "v": 2}]


def test_the_time_of_a_manager_moves_when_it_writes_the_field_again(space: Space) -> None:
    space.create("deployments", replicated(replicas=3), APPS, fieldManager="one")

    def moment() -> str:
        meta = space.get("deployments", "web", group=APPS).body["metadata"]
        (entry,) = [e for e in meta["managedFields"] if e["manager"] == "one"]
        return str(entry["time"])

    if space.kube.name == "stand-in":
        pytest.skip("the clock of the stub stands here: test_store moves it")
    before, deadline = moment(), time.monotonic() + 5
    for replicas in range(4, 1000):
        body = {"spec": {"replicas": replicas}}
        space.patch("deployments", "web", body, group=APPS, fieldManager="one")
        if moment() != before or time.monotonic() > deadline:
            break
    assert moment() > before
