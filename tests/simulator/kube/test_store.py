"""The store in-process, as the cluster's own components use it."""

from typing import Any

import pytest

from fallow.errors import UsageError
from simulator.kube.fields import list_unknown_fields
from simulator.kube.status import StatusError
from simulator.kube.store import ObjectStore
from tests.simulator.kube.conftest import pod

GPU = "nvidia.com/gpu"


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Simulated time."""
    return Clock()


@pytest.fixture
def store(clock: Clock) -> ObjectStore:
    """An empty store."""
    return ObjectStore(clock, seed=7)


def placed(name: str = "p", **more: Any) -> dict[str, Any]:
    item = pod(name, **more)
    item["metadata"]["namespace"] = "default"
    return item


def test_the_same_calls_of_a_seed_give_the_same_store(clock: Clock) -> None:
    def made(seed: int) -> list[Any]:
        store = ObjectStore(clock, seed)
        store.create("Pod", placed())
        item = {"metadata": {"generateName": "c-", "namespace": "default"}}
        store.create("ConfigMap", item)
        return [*store.list("Pod"), *store.list("ConfigMap")]

    assert made(1) == made(1)
    assert made(1)[0]["metadata"]["uid"] != made(2)[0]["metadata"]["uid"]


def test_what_was_handed_out_stays_as_it_was(store: ObjectStore) -> None:
    before = store.create("Pod", placed())
    given = {"metadata": {"labels": {"a": "b"}}}
    after = store.patch("Pod", "p", "default", given)
    given["metadata"]["labels"]["a"] = "changed by the caller"
    assert "a" not in before["metadata"]["labels"]
    assert store.get("Pod", "p", "default") is after
    assert after["metadata"]["labels"]["a"] == "b"


def test_changes_are_told_in_order_until_they_are_forgotten(clock: Clock) -> None:
    store = ObjectStore(clock, history=2)
    since, _ = store.changes(0)
    store.create("Pod", placed())
    store.patch("Pod", "p", "default", {"metadata": {"labels": {"a": "b"}}})
    store.delete("Pod", "p", "default")
    version, changes = store.changes(since)
    assert [(c.version, c.type, c.kind) for c in changes] == [
        (since + 1, "ADDED", "Pod"),
        (since + 2, "MODIFIED", "Pod"),
        (since + 3, "DELETED", "Pod"),
    ]
    assert version == since + 3
    assert changes[1].before == changes[0].object
    assert changes[2].object["metadata"]["resourceVersion"] == str(version)
    for name in "abc":
        store.create("Pod", placed(name))
    with pytest.raises(StatusError, match="too old resource version") as caught:
        store.changes(since)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_a_bound_pod_has_its_node_and_the_nodes_place(store: ObjectStore) -> None:
    labels = {"topology.kubernetes.io/zone": "z1", "other": "x"}
    store.create("Node", {"metadata": {"name": "n0", "labels": labels}})
    store.create("Pod", placed())
    bound = store.bind("p", "default", "n0")
    assert bound["spec"]["nodeName"] == "n0"
    assert bound["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z1", "app": "x"}
    assert bound["status"]["conditions"][0]["status"] == "True"
    with pytest.raises(StatusError, match="already assigned to node 'n0'"):
        store.bind("p", "default", "n1")


def test_a_deleted_pod_stays_until_the_kubelet_removes_it(store: ObjectStore, clock: Clock) -> None:
    store.create("Pod", placed(nodeName="n0"))
    store.delete("Pod", "p", "default", grace_s=60)
    clock.now += 20
    store.delete("Pod", "p", "default", grace_s=90)  # never longer
    left = store.get("Pod", "p", "default")
    assert left is not None
    assert left["metadata"]["deletionTimestamp"] == "2026-09-21T14:14:20Z"
    store.delete("Pod", "p", "default", grace_s=30)  # but shorter
    left = store.get("Pod", "p", "default")
    assert left is not None
    assert left["metadata"]["deletionTimestamp"] == "2026-09-21T14:13:50Z"
    store.remove("Pod", "p", "default")
    assert store.get("Pod", "p", "default") is None


def test_a_delete_of_another_uid_is_a_conflict(store: ObjectStore) -> None:
    store.create("Pod", placed())
    with pytest.raises(StatusError) as caught:
        store.delete("Pod", "p", "default", uid="another")
    assert caught.value.code == 409


def test_priority_classes_give_pods_their_number(store: ObjectStore) -> None:
    high = {"metadata": {"name": "high"}, "value": 1000}
    store.create("PriorityClass", high)
    made = store.create("Pod", placed(priorityClassName="high"))
    assert made["spec"]["priority"] == 1000
    assert store.create("Pod", placed("q"))["spec"]["priority"] == 0
    with pytest.raises(StatusError, match="no PriorityClass with name low was found"):
        store.create("Pod", placed("r", priorityClassName="low"))


def test_a_namespace_that_is_going_takes_nothing_more(store: ObjectStore) -> None:
    store.create("Namespace", {"metadata": {"name": "old"}})
    store.delete("Namespace", "old")
    with pytest.raises(StatusError, match="because it is being terminated"):
        store.create("ConfigMap", {"metadata": {"name": "c", "namespace": "old"}})
    store.remove("Namespace", "old")
    assert store.get("Namespace", "old") is None


def test_quotas_of_some_priorities_leave_the_others_alone(store: ObjectStore) -> None:
    store.create("PriorityClass", {"metadata": {"name": "low"}, "value": 1})
    only = {"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}
    hard = {f"requests.{GPU}": "0"}
    spec = {"hard": hard, "scopeSelector": {"matchExpressions": [only]}}
    meta = {"name": "q", "namespace": "default"}
    store.create("ResourceQuota", {"metadata": meta, "spec": spec})
    status = {"status": {"hard": hard, "used": {}}}
    store.patch("ResourceQuota", "q", "default", status, subresource="status")
    store.create("Pod", placed("a"))
    with pytest.raises(StatusError, match="exceeded quota: q"):
        store.create("Pod", placed("b", priorityClassName="low"))


def test_a_restored_object_is_as_it_was(store: ObjectStore) -> None:
    item = placed("old")
    item["metadata"] |= {"uid": "kept", "creationTimestamp": "2020-01-01T00:00:00Z"}
    item["status"] = {"phase": "Running"}
    back = store.restore("Pod", item)
    assert (back["metadata"]["uid"], back["status"]) == ("kept", {"phase": "Running"})
    assert back["metadata"]["resourceVersion"] == str(store.version)


def test_kinds_are_called_so_that_it_is_clear_which(store: ObjectStore) -> None:
    assert store.kind("Job").group == "batch"
    assert store.kind("Job.batch.volcano.sh").group == "batch.volcano.sh"
    assert store.kind("Notebook").key == "Notebook.kubeflow.org"
    with pytest.raises(UsageError, match="several kinds are called 'Queue'") as caught:
        store.kind("Queue")
    assert caught.value.hint == "say Queue.scheduling.volcano.sh or Queue.scheduling.run.ai"
    with pytest.raises(UsageError, match="no kind 'Pods' is served"):
        store.kind("Pods")


def test_only_the_groups_named_are_installed(clock: Clock) -> None:
    store = ObjectStore(clock, installed=["scheduling.run.ai"])
    assert store.kind("Queue").group == "scheduling.run.ai"
    with pytest.raises(UsageError, match=r"no custom kinds of group no\.such") as caught:
        ObjectStore(clock, installed=["no.such"])
    assert "kueue.x-k8s.io" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("Pod", "V1PodSpec"),
        ("Deployment", "V1DeploymentSpec"),
        ("StatefulSet", "V1StatefulSetSpec"),
        ("ReplicaSet", "V1ReplicaSetSpec"),
        ("Job", "V1JobSpec"),
        ("Node", "V1NodeSpec"),
        ("ResourceQuota", "V1ResourceQuotaSpec"),
        ("PodDisruptionBudget", "V1PodDisruptionBudgetSpec"),
    ],
)
def test_the_fields_we_know_are_those_of_the_official_client(
    store: ObjectStore, kind: str, model: str
) -> None:
    from kubernetes import client

    fields = getattr(client, model).attribute_map.values()
    assert list_unknown_fields(store.kind(kind), {"spec": dict.fromkeys(fields)}) == []
    assert list_unknown_fields(store.kind(kind), {"spec": {"nonsense": 1}}) == ["spec.nonsense"]


def test_the_time_of_a_manager_moves_when_it_writes_the_field_again(
    store: ObjectStore, clock: Clock
) -> None:
    store.create("Pod", placed(), manager="one")
    before = store.list("Pod")[0]["metadata"]["managedFields"][0]["time"]
    clock.now += 60
    body = {"metadata": {"labels": {"app": "y"}}}
    entries = store.patch("Pod", "p", "default", body, manager="one")["metadata"]["managedFields"]
    assert [(e["manager"], e["time"] > before) for e in entries] == [("one", True)]
    kept = store.patch("Pod", "p", "default", body, manager="two")["metadata"]["managedFields"]
    assert kept == entries, "what changes nothing has no manager"
