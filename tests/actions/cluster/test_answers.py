"""What the API server's answers mean: each case on a server."""

import json
from typing import Any

import msgspec
import pytest

from actions.cluster.client import JSON_PATCH, KubeClient
from actions.cluster.write_results import WriteResult
from fallow.action_models import Change, Target
from fallow.errors import AuthError, FallowError, RefusedError, TemporaryError
from tests.actions.places import Place, door
from tests.actions.reclaim.examples import POD, replicated
from tests.servers import kube_apiserver as real
from tests.simulator.kube.conftest import definition, until

PATCH = {"metadata": {"annotations": {"a": "b"}}}


def change(place: Place, key: str, name: str = "x", body: Any = PATCH, **more: Any) -> Change:
    """Return a guarded patch of an object as it is."""
    obj = place.get(key, name) or {"metadata": {"uid": "none"}}
    meta = obj["metadata"]
    kind = place.kind(key)
    target = Target(
        place.door.name,
        kind.api_version,
        kind.kind,
        place.name,
        name,
        meta["uid"],
        meta.get("resourceVersion"),
    )
    return Change(target, "PATCH", place.path(key, name), body, **more)


def eviction(place: Place, name: str = "p") -> Change:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    whole = change(place, "Pod", name, body)
    return msgspec.structs.replace(
        whole, method="POST", path=place.path("Pod", name, "eviction"), guarded=False
    )


def running(place: Place) -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    body = {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {**POD, "nodeName": "n"}}
    place.make("Pod", body, status=ready)


def budget(place: Place, name: str = "b", *, seen: bool = True, allowed: int = 0) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    status = {
        "observedGeneration": 1 if seen else 0,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    place.make("PodDisruptionBudget", {"metadata": {"name": name}, "spec": spec}, status=status)


def meaning(answer: WriteResult) -> tuple[str, str, int]:
    return answer.verdict, answer.cause, answer.code


def test_a_write_that_took_returns_the_object_under_our_name(place: Place) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated()})
    answer = place.door.send(change(place, "Deployment"), dry_run=False)
    assert meaning(answer) == ("done", "", 200)
    assert answer.object is not None
    managers = {e["manager"] for e in answer.object["metadata"]["managedFields"]}
    assert "fallow" in managers


def test_another_version_is_a_conflict_and_not_sent_twice(place: Place) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated()})
    late = change(place, "Deployment")
    place.patch("Deployment", "x", {"metadata": {"labels": {"c": "d"}}})
    assert meaning(place.door.send(late, dry_run=False)) == ("conflict", "version", 409)
    assert meaning(place.door.send(late, dry_run=True)) == ("conflict", "version", 409)


@pytest.mark.parametrize("key", ["Deployment", "Notebook"])
def test_another_uid_is_a_conflict_though_the_server_calls_it_invalid(
    place: Place, key: str
) -> None:
    spec = replicated() if key == "Deployment" else {"template": {"spec": POD}}
    place.make(key, {"metadata": {"name": "x"}, "spec": spec})
    meant = change(place, key)
    target = msgspec.structs.replace(meant.target, uid="0", resource_version=None)
    answer = place.door.send(msgspec.structs.replace(meant, target=target), dry_run=False)
    assert meaning(answer) == ("conflict", "uid", 422)


@pytest.mark.parametrize(
    ("old", "meant"), [({}, ("conflict", "test", 422)), ({"a": "0"}, ("done", "", 200))]
)
def test_a_json_patch_whose_test_fails_is_a_conflict(
    place: Place, old: dict[str, str], meant: tuple[str, str, int]
) -> None:
    place.make("Notebook", {"metadata": {"name": "x", "annotations": {"k": "v", **old}}})
    body = [
        {"op": "test", "path": "/metadata/annotations/a", "value": "0"},
        {"op": "replace", "path": "/metadata/annotations/a", "value": "1"},
    ]
    sent = change(place, "Notebook", body=body, content_type=JSON_PATCH)
    assert meaning(place.door.send(sent, dry_run=False)) == meant


def test_a_json_patch_for_another_version_is_a_conflict(place: Place) -> None:
    place.make("Notebook", {"metadata": {"name": "x"}})
    body = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    late = change(place, "Notebook", body=body, content_type=JSON_PATCH)
    place.patch("Notebook", "x", {"metadata": {"labels": {"c": "d"}}})
    assert meaning(place.door.send(late, dry_run=False)) == ("conflict", "version", 409)


def test_what_is_not_there_is_gone(place: Place) -> None:
    answer = place.door.send(change(place, "Deployment"), dry_run=False)
    assert meaning(answer) == ("gone", "", 404)
    assert place.door.get(place.path("Deployment", "x")) is None


def test_a_second_object_of_a_name_exists(place: Place) -> None:
    place.make("ConfigMap", {"metadata": {"name": "x"}})
    made = msgspec.structs.replace(
        change(place, "ConfigMap", body={"metadata": {"name": "x"}}),
        method="POST",
        path=place.path("ConfigMap"),
        guarded=False,
    )
    assert meaning(place.door.send(made, dry_run=False)) == ("conflict", "exists", 409)


def test_a_field_that_the_server_does_not_know_is_refused_and_not_dropped(place: Place) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated()})
    answer = place.door.send(change(place, "Deployment", body={"spec": {"no": 1}}), dry_run=False)
    assert answer.verdict == "invalid"


def test_what_may_not_be_written_is_refused_with_the_servers_words(place: Place) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated()})
    unallocated = door(place.kube.url, ca=place.kube.ca, token=real.NOBODY)
    answer = unallocated.send(change(place, "Deployment"), dry_run=True)
    assert meaning(answer) == ("refused", "rights", 403)
    assert "cannot patch" in answer.reason


@pytest.mark.parametrize("read", ["get", "items", "collection"])
def test_what_may_not_be_read_is_an_error_and_never_nothing(place: Place, read: str) -> None:
    unallocated = door(place.kube.url, ca=place.kube.ca, token=real.NOBODY)
    if read == "collection" and place.kube.name == "kube-apiserver":
        pytest.skip("a real server lets everybody discover what it serves")
    if read == "collection":
        assert unallocated.collection("Pod", "") is not None
        return
    with pytest.raises(RefusedError, match="forbidden") as refused:
        getattr(unallocated, read)(place.path("Pod") + ("/x" if read == "get" else ""))
    assert "\n" not in str(refused.value)


def test_a_budget_refuses_with_429_and_its_own_cause(place: Place) -> None:
    running(place)
    budget(place)
    answer = place.door.send(eviction(place), dry_run=True)
    assert meaning(answer) == ("throttled", "budget", 429)
    assert answer.retry_after is None
    assert meaning(place.door.send(eviction(place), dry_run=False)) == ("throttled", "budget", 429)


def test_a_budget_that_no_controller_has_seen_asks_to_wait(place: Place) -> None:
    running(place)
    budget(place, seen=False)
    answer = place.door.send(eviction(place), dry_run=True)
    assert meaning(answer) == ("throttled", "budget", 429)
    assert answer.retry_after == 10


def test_two_budgets_on_one_pod_are_refused_for_good(place: Place) -> None:
    running(place)
    budget(place, "b", allowed=1)
    budget(place, "c", allowed=1)
    answer = place.door.send(eviction(place), dry_run=True)
    assert meaning(answer) == ("refused", "budgets", 500)


def test_an_eviction_in_a_dry_run_spends_no_budget(place: Place) -> None:
    running(place)
    budget(place, allowed=1)
    for _ in range(2):
        assert place.door.send(eviction(place), dry_run=True).ok
    found = place.get("PodDisruptionBudget", "b")
    assert found is not None
    assert found["status"]["disruptionsAllowed"] == 1


def test_an_exceeded_quota_is_a_refusal(place: Place) -> None:
    hard = {"hard": {"requests.nvidia.com/gpu": "1"}}
    used = {**hard, "used": {"requests.nvidia.com/gpu": "1"}}
    place.make("ResourceQuota", {"metadata": {"name": "q"}, "spec": hard}, status=used)
    made = msgspec.structs.replace(
        change(place, "Pod", body={"metadata": {"name": "p"}, "spec": POD}),
        method="POST",
        path=place.path("Pod"),
        guarded=False,
    )
    answer = place.door.send(made, dry_run=True)
    assert meaning(answer) == ("refused", "quota", 403)
    assert "exceeded quota: q" in answer.reason


def test_throttling_is_told_from_a_budget_and_a_write_is_sent_once(place: Place) -> None:
    if place.server is None:
        pytest.skip("a real server cannot be told to throttle")
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated()})
    sent = change(place, "Deployment")
    place.server.faults.throttle = [(429, "7"), (503, "1")]
    answer = place.door.send(sent, dry_run=False)
    assert meaning(answer) == ("throttled", "rate", 429)
    assert answer.retry_after == 7
    answer = place.door.send(sent, dry_run=False)
    assert meaning(answer) == ("away", "server", 503)
    assert place.door.send(sent, dry_run=False).ok, "nothing was sent in the meantime"


def test_a_read_waits_for_a_throttled_server(place: Place) -> None:
    if place.server is None:
        pytest.skip("a real server cannot be told to throttle")
    place.make("ConfigMap", {"metadata": {"name": "x"}})
    place.server.faults.throttle = [(429, "7"), (503, "")]
    assert place.door.get(place.path("ConfigMap", "x")) is not None


def test_no_answer_to_a_write_is_away_and_to_a_read_is_temporary(place: Place) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated()})
    dead = door("http://127.0.0.1:1")
    answer = dead.send(change(place, "Deployment"), dry_run=False)
    assert (answer.verdict, answer.code) == ("away", 0)
    with pytest.raises(TemporaryError, match="no answer"):
        dead.get(place.path("Deployment", "x"))


WEBHOOK = 'admission webhook "v" denied the request'
POLICY = "ValidatingAdmissionPolicy 'x' denied request"
FAILED = "the server rejected our request due to an error in our request"
OWNED = {"causes": [{"reason": "FieldManagerConflict"}]}


@pytest.mark.parametrize(
    ("code", "said", "meant"),
    [
        (401, {"message": "Unauthorized"}, ("refused", "credentials")),
        (403, {"message": WEBHOOK}, ("refused", "admission")),
        (403, {"message": POLICY}, ("refused", "admission")),
        (409, {"details": OWNED, "message": 'conflict with "argocd"'}, ("conflict", "manager")),
        (410, {"reason": "Expired"}, ("gone", "")),
        (422, {"message": FAILED}, ("invalid", "")),
        (415, {}, ("invalid", "")),
        (504, "<html>upstream</html>", ("away", "server")),
    ],
)
def test_other_answers_have_one_meaning_each(code: int, said: Any, meant: Any) -> None:
    from actions.cluster.write_results import interpret_reply  # noqa: PLC0415
    from fallow.kube.api import Reply  # noqa: PLC0415

    body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
    answer = interpret_reply(Reply(code, body))
    assert (answer.verdict, answer.cause) == meant
    if meant[1] == "manager":
        assert answer.manager == "argocd"


def test_expired_credentials_are_one_clear_line() -> None:
    from actions.cluster.client import _to_error  # noqa: PLC0415
    from fallow.kube.api import ApiError  # noqa: PLC0415
    from fallow.kube.api_objects import ApiStatus  # noqa: PLC0415

    found: FallowError = _to_error(ApiError("/version", 401, ApiStatus(message="Unauthorized")))
    assert isinstance(found, AuthError)
    assert "token has expired" in str(found)


def test_a_door_is_a_cluster_as_executors_see_it(place: Place) -> None:
    from fallow.protocols import ClusterReader  # noqa: PLC0415

    found: ClusterReader = place.door
    assert isinstance(found, KubeClient)
    assert found.collection("Job", "batch", place.name) == place.path("Job")
    assert found.collection("Job", "batch.volcano.sh", place.name) == place.path(
        "Job.batch.volcano.sh"
    )
    assert found.collection("Job", None, place.name) == place.path("Job")
    assert found.collection("Workspace", "kubeflow.org", place.name) == place.path("Workspace")
    assert found.collection("Nonsense", "kubeflow.org") is None
    assert found.collection("Namespace", "", place.name) == "/api/v1/namespaces"


def test_a_kind_that_is_installed_meanwhile_is_found_within_a_minute(place: Place) -> None:
    now = [0.0]
    reader = door(place.kube.url, ca=place.kube.ca, clock=lambda: now[0])
    group = f"{place.name}.example.org"
    assert reader.collection("Late", group) is None
    body = definition(group, "Late")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert place.kube.ask("POST", path, body).code == 201
    until(lambda: place.kube.ask("GET", f"/apis/{group}/v1/lates").code == 200)
    now[0] = 59.0
    assert reader.collection("Late", group) is None
    now[0] = 60.0
    assert reader.collection("Late", group, "a") == f"/apis/{group}/v1/namespaces/a/lates"
