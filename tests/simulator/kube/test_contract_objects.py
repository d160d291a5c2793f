"""What the server makes of objects: uids, versions, generations, defaults, refusals."""

from typing import Any

import pytest

from tests.simulator.kube.conftest import MERGE, STRATEGIC, Kube, Space, pod, replicated

GPU = "nvidia.com/gpu"
APPS = "apps/v1"
FLOW = "kubeflow.org/v1"


def test_a_created_object_has_a_uid_a_version_and_a_time(space: Space) -> None:
    made = space.create("configmaps", {"metadata": {"name": "c"}, "data": {"a": "b"}})
    assert made.code == 201
    meta = made.body["metadata"]
    assert (meta["namespace"], made.body["data"]) == (space.name, {"a": "b"})
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    assert space.get("configmaps", "c").body["metadata"] == meta


def test_a_name_can_be_had_once(space: Space) -> None:
    space.create("configmaps", {"metadata": {"name": "c"}})
    again = space.create("configmaps", {"metadata": {"name": "c"}})
    assert (again.code, again.body["reason"]) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "c" already exists'


def test_a_generated_name_is_new_each_time(space: Space) -> None:
    made = [space.create("configmaps", {"metadata": {"generateName": "c-"}}).body for _ in range(3)]
    names = {m["metadata"]["name"] for m in made}
    assert len(names) == 3
    assert all(n.startswith("c-") and len(n) == 7 for n in names)


@pytest.mark.parametrize(
    ("path", "item", "code", "said"),
    [
        ("/api/v1/namespaces/nowhere/configmaps", {"name": "c"}, 404, '"nowhere"'),
        ("/api/v1/namespaces/default/configmaps", {"name": "C!"}, 422, "metadata.name"),
        ("/api/v1/namespaces/default/configmaps", {}, 422, "generateName is required"),
        ("/api/v1/namespaces/default/nonsense", {"name": "c"}, 404, "could not find"),
    ],
)
def test_bad_creates_say_why(
    kube: Kube, path: str, item: dict[str, str], code: int, said: str
) -> None:
    answer = kube.ask("POST", path, {"metadata": item})
    assert answer.code == code
    assert answer.body["reason"] == {404: "NotFound", 422: "Invalid"}[code]
    assert said in answer.body["message"]
    assert answer.body["kind"] == "Status"


def test_nothing_is_served_in_a_group_that_is_not_there(kube: Kube) -> None:
    assert kube.ask("GET", "/apis/no.such/v1/namespaces/default/x").code == 404


def test_a_missing_object_is_named(space: Space) -> None:
    answer = space.get("pods", "nobody")
    assert answer.code == 404
    assert answer.body["message"] == 'pods "nobody" not found'
    assert answer.body["details"] == {"name": "nobody", "kind": "pods"}


def test_a_posted_node_keeps_its_status_and_is_tainted(kube: Kube, space: Space) -> None:
    name = f"node-{space.name}"
    status = {"capacity": {GPU: "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    made = kube.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    assert made.code == 201
    assert made.body["status"]["capacity"] == {GPU: "8"}
    keys = [t["key"] for t in made.body["spec"]["taints"]]
    assert keys == ["node.kubernetes.io/not-ready"]


def test_a_request_is_filled_in_from_the_limit(space: Space) -> None:
    made = space.pod(limits={GPU: "2", "cpu": "1"}, requests={"cpu": "500m"})
    amounts = made["spec"]["containers"][0]["resources"]
    assert amounts["requests"] == {"cpu": "500m", GPU: "2"}
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limits", "requests", "said"),
    [
        ({GPU: "2"}, {GPU: "1"}, "must be equal to nvidia.com/gpu limit"),
        ({GPU: "500m"}, None, "must be an integer"),
        ({}, {GPU: "1"}, "Limit must be set"),
        ({"cpu": "1"}, {"cpu": "2"}, "must be less than or equal to cpu limit"),
    ],
)
def test_amounts_of_gpus_must_make_sense(
    space: Space, limits: dict[str, str], requests: dict[str, str] | None, said: str
) -> None:
    answer = space.create("pods", pod(limits=limits, requests=requests))
    assert answer.code == 422
    assert said in answer.body["message"]
    assert answer.body["details"]["causes"][0]["field"].startswith("spec.containers[0].resources")


def test_the_gpus_of_a_running_pod_stay(space: Space) -> None:
    space.pod(running=True, nodeName="n0")
    more = {"limits": {GPU: "4"}, "requests": {GPU: "4"}}
    body = {"spec": {"containers": [{"name": "main", "resources": more}]}}
    plain = space.patch("pods", "p", body, media=STRATEGIC)
    assert (plain.code, plain.body["reason"]) == (422, "Invalid")
    resized = space.patch("pods", "p", body, part="resize", media=STRATEGIC)
    assert resized.code == 422
    assert "only cpu and memory resources are mutable" in resized.body["message"]


@pytest.mark.parametrize(
    ("body", "bumps"),
    [
        ({"spec": {"replicas": 3}}, True),
        ({"metadata": {"annotations": {"a": "b"}}}, True),
        ({"metadata": {"labels": {"a": "b"}}}, False),
    ],
)
def test_a_deployment_is_of_a_new_generation(
    space: Space, body: dict[str, Any], bumps: bool
) -> None:
    before = space.create("deployments", replicated(), APPS).body["metadata"]
    after = space.patch("deployments", "web", body, group=APPS).body["metadata"]
    assert before["generation"] == 1
    assert after["generation"] == 1 + bumps
    assert int(after["resourceVersion"]) > int(before["resourceVersion"])


def test_a_patch_that_changes_nothing_keeps_the_version(space: Space) -> None:
    before = space.create("deployments", replicated(replicas=2), APPS)
    after = space.patch("deployments", "web", {"spec": {"replicas": 2}}, group=APPS)
    assert (after.code, after.version) == (200, before.version)


def test_a_custom_object_counts_its_spec_and_not_its_status(space: Space) -> None:
    item = {
        "apiVersion": FLOW,
        "kind": "Notebook",
        "metadata": {"name": "n"},
        "spec": {"a": 1},
        "status": {"lost": True},
    }
    made = space.create("notebooks", item, FLOW).body
    assert "status" not in made
    stopped = {"metadata": {"annotations": {"kubeflow-resource-stopped": "now"}}}
    assert space.patch("notebooks", "n", stopped, group=FLOW).body["metadata"]["generation"] == 1
    status = space.patch("notebooks", "n", {"status": {"x": 1}}, group=FLOW, part="status").body
    assert (status["metadata"]["generation"], status["status"]) == (1, {"x": 1})
    changed = space.patch("notebooks", "n", {"spec": {"a": 2}}, group=FLOW).body
    assert changed["metadata"]["generation"] == 2


def test_status_is_written_through_its_subresource_alone(space: Space) -> None:
    made = space.create("deployments", replicated(), APPS).body
    body = {"status": {"replicas": 7}, "spec": {"replicas": 7}}
    plain = space.patch("deployments", "web", body, group=APPS).body
    assert plain["status"] == made.get("status", {})
    status = {"status": {"replicas": 5}, "spec": {"replicas": 9}}
    space.patch("deployments", "web", status, group=APPS, part="status")
    after = space.get("deployments", "web", group=APPS).body
    assert (after["spec"]["replicas"], after["status"]["replicas"]) == (7, 5)


def test_the_template_of_a_job_changes_while_suspended_and_never_its_image(space: Space) -> None:
    resources = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    main = {"name": "m", "image": "i", "resources": resources}
    template = {"spec": {"containers": [main], "restartPolicy": "Never"}}
    item = {"metadata": {"name": "j"}, "spec": {"template": template, "suspend": True}}
    assert space.create("jobs", item, "batch/v1").code == 201
    two = {"limits": {GPU: "2"}, "requests": {GPU: "2"}}

    def put(container: dict[str, Any]) -> int:
        body = {"spec": {"template": {"spec": {"containers": [{"name": "m", **container}]}}}}
        return space.patch("jobs", "j", body, group="batch/v1", media=STRATEGIC).code

    assert put({"image": "other"}) == 422
    assert put({"resources": two}) == 200
    assert space.patch("jobs", "j", {"spec": {"suspend": False}}, group="batch/v1").code == 200
    assert put({"resources": resources}) == 422


def test_deleting_a_running_pod_gives_it_grace(space: Space) -> None:
    space.pod(running=True, nodeName="n0", terminationGracePeriodSeconds=45)
    path = space.path("pods", "p")
    assert space.ask("DELETE", path).code == 200
    left = space.get("pods", "p").body["metadata"]
    assert left["deletionGracePeriodSeconds"] == 45
    assert left["deletionTimestamp"] > left["creationTimestamp"]
    assert space.ask("DELETE", path, {"gracePeriodSeconds": 0}).code == 200
    assert space.get("pods", "p").code == 404


def test_deleting_a_pod_without_a_node_is_done_at_once(space: Space) -> None:
    space.pod()
    assert space.ask("DELETE", space.path("pods", "p")).body["kind"] == "Pod"
    assert space.get("pods", "p").code == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_delete_of_another_object_is_refused(space: Space, field: str) -> None:
    made = space.create("configmaps", {"metadata": {"name": "c"}}).body["metadata"]
    path = space.path("configmaps", "c")
    wrong = space.ask("DELETE", path, {"preconditions": {field: "1"}})
    assert (wrong.code, wrong.body["reason"]) == (409, "Conflict")
    assert "recondition" in wrong.body["message"]
    dry = space.ask("DELETE", path, {"dryRun": ["All"]})
    assert dry.code == 200
    assert space.get("configmaps", "c").code == 200
    done = space.ask("DELETE", path, {"preconditions": {field: made[field]}})
    assert (done.code, done.body["status"]) == (200, "Success")


def test_a_finalizer_holds_a_deleted_object(space: Space) -> None:
    words = {"name": "c", "finalizers": ["example.com/hold"]}
    space.create("configmaps", {"metadata": words})
    space.ask("DELETE", space.path("configmaps", "c"))
    assert "deletionTimestamp" in space.get("configmaps", "c").body["metadata"]
    freed = space.patch("configmaps", "c", {"metadata": {"finalizers": None}}, media=MERGE)
    assert freed.code == 200
    assert space.get("configmaps", "c").code == 404
