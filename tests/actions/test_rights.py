"""Roles are what the code declares, never more; the API itself is asked what is granted."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from actions import executors
from actions.rights import build_rules, check_rights, list_roles
from fallow.errors import UsageError
from fallow.protocols import Right
from fallow.settings import load
from runtime.operations.acting.access_review import review_access
from tests.actions.places import Place
from tools.rbac import render_pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(render_pages()))
def test_the_files_are_what_the_code_declares(name: str) -> None:
    written = (ROOT / "deploy" / "rbac" / name).read_text()
    assert written == render_pages()[name], "run: python -m tools.rbac deploy/rbac"


def test_no_role_may_delete_update_or_do_anything_to_everything() -> None:
    documents = [d for text in render_pages().values() for d in yaml.safe_load_all(text)]
    answer = [rule for d in documents for rule in d["rules"]]
    assert {v for r in answer for v in r["verbs"]} <= {"get", "list", "watch", "create", "patch"}
    assert "*" not in {w for r in answer for w in (*r["resources"], *r["apiGroups"])}
    secret = {r for rule in answer for r in rule["resources"] if "secret" in r}
    assert not secret


def test_a_reader_only_reads() -> None:
    (reader,) = yaml.safe_load_all(render_pages()["reader.yaml"])
    assert {v for r in reader["rules"] for v in r["verbs"]} <= {"get", "list", "watch"}


def test_every_executor_has_a_role_of_its_own() -> None:
    found = list_roles(executors.load_executors())
    assert {f"fallow-act-{name}" for name in executors.load_executors()} <= set(found)


def test_only_the_role_that_restores_bare_pods_may_create_pods() -> None:
    found = list_roles(executors.load_executors())
    creating = {
        name
        for name, rights in found.items()
        for right in rights
        if right.resource == "pods" and "create" in right.verbs
    }
    assert creating == {"fallow-restore-pods"}


def test_an_executor_that_asks_to_delete_is_refused() -> None:
    class Greedy:
        rights = (Right("", "pods", ("delete",)),)

    with pytest.raises(UsageError, match="fallow-act-greedy asks for delete: legal are get"):
        list_roles({"greedy": Greedy()})  # type: ignore[dict-item]


def test_rights_to_one_resource_are_one_rule() -> None:
    found = build_rules(
        [
            Right("", "pods", ("list",)),
            Right("", "nodes", ("get", "list")),
            Right("", "pods", ("get",)),
        ]
    )
    assert found == [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]


def test_the_api_is_asked_once_for_each_right_and_namespace() -> None:
    wanted: list[Any] = []

    def answer(body: Any) -> Any:
        wanted.append(body["spec"]["resourceAttributes"])
        return {"status": {"allowed": wanted[-1]["verb"] == "get", "reason": "because"}}

    rights = {
        "a": [Right("apps", "deployments/scale", ("get", "patch"))],
        "b": [Right("apps", "deployments/scale", ("get",))],
    }
    proofs = check_rights(answer, rights, ["ml", "dev"])
    assert len(wanted) == 4
    assert wanted[0] == {
        "group": "apps",
        "resource": "deployments",
        "subresource": "scale",
        "verb": "get",
        "namespace": "ml",
    }
    assert [(p.role, p.verb, p.namespace, p.allowed) for p in proofs] == [
        ("a", "get", "ml", True),
        ("a", "patch", "ml", False),
        ("a", "get", "dev", True),
        ("a", "patch", "dev", False),
        ("b", "get", "ml", True),
        ("b", "get", "dev", True),
    ]


def test_objects_without_a_namespace_are_reviewed_in_the_whole_cluster() -> None:
    """A RoleBinding grants nothing there, though a review inside its namespace says so."""
    wanted: list[Any] = []

    def answer(body: Any) -> Any:
        wanted.append(body["spec"]["resourceAttributes"])
        return {"status": {"allowed": "namespace" in wanted[-1]}}

    rights = {"a": [Right("", "nodes", ("patch",)), Right("", "pods", ("get",))]}
    proofs = check_rights(answer, rights, ["ml", "dev"])
    assert [(p.resource, p.namespace, p.allowed) for p in proofs] == [
        ("nodes", "", False),
        ("pods", "ml", True),
        ("pods", "dev", True),
    ]


def test_what_to_bind_is_named_by_its_kind_and_its_binding(place: Place) -> None:
    if place.server is None:
        pytest.skip("rights of a real server are bound by its own roles")
    image = {"FALLOW_ACTIONS__CANARY__IMAGE": "pause:1"}
    place.server.access.deny("patch", "nodes")
    place.server.access.deny("patch", "deployments/scale")
    try:
        settings = load(environ=image, flags={"cluster": "sim"}).settings
        rows = {r["check"]: r for r in review_access(settings, ["ml"], api=place.door._api)}
    finally:
        place.server.access.denials = {d for d in place.server.access.denials if d.user == "nobody"}
    file = "of deploy/rbac/actor.yaml, or leave it off"
    assert rows["fallow-canary"]["next_step"] == f"bind Role fallow-canary {file}"
    assert rows["fallow-act-mig"]["finding"] == "may not patch nodes in the whole cluster"
    expected = f"bind ClusterRole fallow-act-mig by a ClusterRoleBinding {file}"
    assert rows["fallow-act-mig"]["next_step"] == expected
    assert rows["fallow-act-scale"]["next_step"] == f"bind ClusterRole fallow-act-scale {file}"


def test_the_doctor_names_the_cluster_and_what_each_role_lacks(place: Place) -> None:
    if place.server is None:
        pytest.skip("rights of a real server are bound by its own roles")
    settings = load(environ={}, flags={"cluster": "sim"}).settings
    rows = {r["check"]: r for r in review_access(settings, api=place.door._api)}
    assert rows["cluster"]["finding"].startswith(f"sim: {place.kube.url}")
    assert {r["status"] for n, r in rows.items() if n.startswith("fallow")} == {"ok"}
    place.server.access.deny("patch", "statefulsets/scale")
    place.server.access.deny("*", "pods/exec")
    try:
        rows = {r["check"]: r for r in review_access(settings, ["ml"], api=place.door._api)}
    finally:
        place.server.access.denials = {d for d in place.server.access.denials if d.user == "nobody"}
    lacking = rows["fallow-act-stateful-set"]
    assert lacking["status"] == "warn"
    assert lacking["finding"] == "may not patch statefulsets/scale.apps in ml"
    assert rows["fallow-snapshot"]["status"] == "warn"
    assert rows["fallow-act-scale"]["status"] == "ok"
