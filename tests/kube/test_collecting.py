"""One look at a whole cluster through the official client, and what happens when parts refuse."""

import json
from typing import Any

import pytest

from collectors.kube.collector import KubernetesCollector
from fallow.errors import SettingsError
from fallow.plugins import load
from fallow.settings.collectors import KubernetesSettings
from fallow.tables import list_table_names
from fallow.window import Window
from tests.kube.conftest import Cluster, Look
from tests.kube.objects import meta, node, pod

GPU = {"nvidia.com/gpu": "1"}


@pytest.fixture
def fleet(cluster: Cluster) -> Cluster:
    """Three nodes, a deployment of three GPU pods, a notebook, a CPU pod."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    for i in range(2):
        cluster.put("Node", node(f"n{i}", capacity={"nvidia.com/gpu": "8"}, labels=labels))
    cluster.put("Node", node("cpu"))
    cluster.put("Namespace", meta("ml", namespace="", labels={"team": "vision"}))
    cluster.put("Deployment", meta("web"))
    cluster.put("ReplicaSet", meta("web-abc", owner=("apps/v1", "Deployment/web")))
    for i in range(3):
        cluster.put("Pod", pod(f"web-{i}", limits=GPU, owner=("apps/v1", "ReplicaSet/web-abc")))
    cluster.serve("kubeflow.org", "v1", "notebooks", "Notebook")
    cluster.put("Notebook", meta("ada"))
    cluster.put("StatefulSet", meta("ada", owner=("kubeflow.org/v1", "Notebook/ada")))
    cluster.put("Pod", pod("ada-0", limits=GPU, owner=("apps/v1", "StatefulSet/ada")))
    cluster.put("Pod", pod("cron", namespace="ops", node="cpu"))
    return cluster


def by(rows: list[dict[str, Any]], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(row[n] for n in names) for row in rows}


def event(name: str, kind: str, about: str, uid: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "involvedObject": {"kind": kind, "name": about, "namespace": "ml", "uid": uid},
        "reason": "BackOff",
        "type": "Warning",
        "message": "m" * 2000,
        "lastTimestamp": None,
        "eventTime": "2026-11-20T11:00:00.123456Z",
        "series": {"count": 4, "lastObservedTime": "2026-11-20T11:30:00.000000Z"},
    }


def test_a_look_brings_nodes_pods_and_their_top_owners(fleet: Cluster, look: Look) -> None:
    rows = look()
    assert set(rows) <= set(list_table_names())
    assert by(rows["node"], "node", "gpu_count") == {("n0", 8), ("n1", 8), ("cpu", 0)}
    assert by(rows["pod"], "pod", "workload_kind", "workload", "team") == {
        ("web-0", "Deployment", "web", "vision"),
        ("web-1", "Deployment", "web", "vision"),
        ("web-2", "Deployment", "web", "vision"),
        ("ada-0", "Notebook", "ada", "vision"),
        ("cron", "Pod", "cron", None),
    }
    assert fleet.requests[0].path == "/apis"


def test_the_addresses_of_nodes_and_of_exporters_are_their_nodes(
    fleet: Cluster, look: Look
) -> None:
    there = node("npu-1")
    there["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.1.5"}]
    exporter = pod("npu-exporter-x7k2p", node="npu-1")
    exporter["status"]["podIP"] = "10.0.3.7"
    fleet.put("Node", there)
    fleet.put("Pod", exporter)
    assert by(look()["address"], "address", "node") == {
        ("10.0.1.5", "npu-1"),
        ("10.0.3.7", "npu-1"),
        ("pod/npu-exporter-x7k2p", "npu-1"),
        *((name, name) for name in ("npu-1", "n0", "n1", "cpu")),
    }


def test_disruption_budgets_become_rows(fleet: Cluster, look: Look) -> None:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"}
    status = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}
    fleet.put("PodDisruptionBudget", {**meta("b"), "spec": spec, "status": status})
    fleet.put("PodDisruptionBudget", {**meta("new"), "spec": {"maxUnavailable": 1}})
    counts = ("disruptions_allowed", "healthy", "wanted_healthy", "expected_pods")
    result = by(look()["disruption_budget"], "name", "min_available", "max_unavailable", *counts)
    assert result == {("b", "50%", "", 1, 3, 2, 3), ("new", "", "1", 0, -1, -1, -1)}


def test_every_kind_that_was_asked_for_has_a_look(fleet: Cluster, look: Look) -> None:
    samples = {row["target"].removeprefix(fleet.url): row for row in look()["scrape"]}
    assert all(row["up"] and row["error"] is None for row in samples.values())
    assert samples["/api/v1/pods"]["samples"] == 5
    assert samples["/api/v1/nodes"]["samples"] == 3
    assert "/apis/apps/v1/replicasets" in samples
    assert "/apis/kubeflow.org/v1/notebooks" in samples


def test_owners_are_listed_once_per_kind_and_not_read_one_by_one(
    fleet: Cluster, look: Look
) -> None:
    look()
    owners = [a.path for a in fleet.requests if "replicasets" in a.path or "deployments" in a.path]
    assert owners == ["/apis/apps/v1/replicasets", "/apis/apps/v1/deployments"]


def test_kinds_that_are_not_served_are_not_asked_for(fleet: Cluster, look: Look) -> None:
    look()
    wanted = {a.path for a in fleet.requests}
    assert not [p for p in wanted if "kueue" in p or "volcano" in p or "run.ai" in p]


def test_a_forbidden_kind_is_a_look_that_failed_and_the_others_go_on(
    fleet: Cluster, look: Look
) -> None:
    fleet.forbid("nodes", "resourcequotas")
    rows = look()
    assert "node" not in rows
    assert len(rows["pod"]) == 5
    failed = {r["target"].removeprefix(fleet.url): r for r in rows["scrape"] if not r["up"]}
    assert set(failed) == {"/api/v1/nodes", "/api/v1/resourcequotas"}
    assert failed["/api/v1/nodes"]["error"].startswith(
        "forbidden: /api/v1/nodes: nodes is forbidden: User"
    )


def test_owners_that_may_not_be_read_leave_the_workload_unknown(fleet: Cluster, look: Look) -> None:
    fleet.forbid("replicasets")
    found = {row["pod"]: row for row in look()["pod"]}
    assert found["web-0"]["workload_kind"] is None
    assert found["web-0"]["owner_kind"] == "ReplicaSet"
    assert found["ada-0"]["workload_kind"] == "Notebook"


def test_a_server_that_is_away_is_one_failed_look(cluster: Cluster, look: Look) -> None:
    cluster.close()
    rows = look()
    assert set(rows) == {"scrape"}
    (row,) = rows["scrape"]
    assert not row["up"]
    assert "no answer" in row["error"]


def test_an_expired_list_brings_each_pod_once(fleet: Cluster, look: Look) -> None:
    fleet.faults.expire_tokens, fleet.faults.fresh_tokens = 1, False
    rows = look()
    names = [row["pod"] for row in rows["pod"]]
    assert sorted(names) == ["ada-0", "cron", "web-0", "web-1", "web-2"]


def test_events_of_gpu_pods_and_nodes_only(fleet: Cluster, look: Look) -> None:
    fleet.put("Event", event("e1", "Pod", "web-0", "pod-web-0"))
    fleet.put("Event", event("e2", "Pod", "cron", "pod-cron"))
    fleet.put("Event", event("e3", "Node", "n0", "n0"))
    fleet.put("Event", event("e4", "Node", "cpu", "cpu"))
    rows = look()["event"]
    assert by(rows, "kind", "name", "count") == {("Pod", "web-0", 4), ("Node", "n0", 4)}
    assert f"{rows[0]['ts']:%H:%M}" == "11:30"
    assert len(rows[0]["message"]) == 1024


def test_refusals_by_quota_are_collected_with_their_repeats(fleet: Cluster, look: Look) -> None:
    refused = event("e1", "ReplicaSet", "web-abc", "replicaset-web-abc")
    answer = 'pods "web-9" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=1'
    fleet.put("Event", {**refused, "reason": "FailedCreate", "message": answer})
    other = event("e2", "ReplicaSet", "web-abc", "replicaset-web-abc")
    fleet.put("Event", {**other, "reason": "FailedCreate", "message": "no such volume"})
    rows = look()["event"]
    assert by(rows, "kind", "name", "uid") == {("ReplicaSet", "web-abc", "event-e1#4")}


def test_what_a_controller_says_of_a_gpu_jobs_restart_is_collected(
    fleet: Cluster, look: Look
) -> None:
    fleet.serve("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
    fleet.put("PyTorchJob", meta("train"))
    fleet.put("Pod", pod("train-0", limits=GPU, owner=("kubeflow.org/v1", "PyTorchJob/train")))
    for name, about, reason in (
        ("e1", "train", "PyTorchJobRestarting"),
        ("e2", "train", "PyTorchJobCreated"),
        ("e3", "of-cpus", "PyTorchJobRestarting"),
    ):
        item = event(name, "PyTorchJob", about, f"pytorchjob-{about}")
        fleet.put("Event", {**item, "reason": reason})
    rows = look()["event"]
    assert by(rows, "kind", "name", "reason") == {("PyTorchJob", "train", "PyTorchJobRestarting")}


def test_custom_kinds_are_read_where_their_apis_exist(fleet: Cluster, look: Look) -> None:
    fleet.serve("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
    fleet.serve("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
    fleet.serve("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False)
    fleet.put(
        "Queue",
        {**meta("q", namespace=""), "spec": {"resources": {"gpu": {"quota": 4, "limit": -1}}}},
    )
    labels = {"kueue.x-k8s.io/job-uid": "deployment-web"}
    fleet.put("Workload", {**meta("w", labels=labels), "spec": {"queueName": "gpu-queue"}})
    rows = look()
    assert by(rows["quota"], "kind", "name", "resource", "nominal", "limit") == {
        ("Queue.kai", "q", "nvidia.com/gpu", 4, None)
    }
    assert by(rows["pod"], "pod", "queue") >= {("web-0", "gpu-queue"), ("ada-0", None)}


def test_time_slicing_of_the_node_makes_the_request_a_share(fleet: Cluster, look: Look) -> None:
    words = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    fleet.put("Node", node("n0", capacity={"nvidia.com/gpu": "32"}, labels=words))
    rows = look()
    assert by(rows["pod"], "pod", "gpu_request") >= {("web-0", 0.25), ("cron", 0)}


def test_kai_users_get_the_device_that_their_holder_holds(fleet: Cluster, look: Look) -> None:
    group = {"runai-gpu-group": "g"}
    fleet.put("Pod", pod("u", labels=group, annotations={"gpu-fraction": "0.5"}))
    uuid = {"run.ai/reserve_for_gpu_index": "GPU-7"}
    space = "kai-resource-reservation"
    fleet.put("Pod", pod("h", namespace=space, limits=GPU, labels=group, annotations=uuid))
    found = {row["pod"]: row for row in look()["pod"]}
    assert json.loads(found["u"]["devices"])[0]["device"] == "GPU-7"
    assert (found["h"]["workload"], found["h"]["gpu_request"]) == ("u", 0)


def test_a_pod_that_vanished_between_two_looks_is_said_to_be_gone(
    fleet: Cluster, look: Look
) -> None:
    look()
    fleet.delete("Pod", "web-1", "ml")
    gone = [row for row in look()["pod"] if row["deleted_at"]]
    assert by(gone, "uid", "pod", "namespace", "node") == {("pod-web-1", "web-1", "ml", None)}
    assert gone[0]["finished_at"] == gone[0]["deleted_at"] == look.now.replace(tzinfo=None)
    assert not [row for row in look()["pod"] if row["deleted_at"]]


def test_a_list_that_failed_declares_nobody_gone(fleet: Cluster, look: Look) -> None:
    look()
    fleet.forbid("pods")
    assert "pod" not in look()
    fleet.access.denials.clear()
    assert not [row for row in look()["pod"] if row["deleted_at"]]


def test_without_any_configuration_the_error_says_what_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    import kubernetes.config.kube_config as loader

    assert cluster.url
    monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", "/nowhere/config")
    collector = KubernetesCollector(KubernetesSettings(), "c", lambda: look.now)
    window = Window.last(KubernetesSettings().timeout, now=look.now)
    with pytest.raises(SettingsError, match=r"no Kubernetes access.*fallow import kubectl"):
        list(collector.collect(window))


def test_the_collector_is_installed_under_its_name() -> None:
    assert load("collectors", "kubernetes") is KubernetesCollector
