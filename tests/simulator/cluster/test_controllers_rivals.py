"""Those who limit or undo others: budgets, quotas, Kueue, autoscalers, GitOps, only when told."""

from collections.abc import Callable
from typing import Any

import pytest

from simulator.kube.deletion import DeleteOptions
from simulator.kube.eviction import evict
from simulator.kube.server_metadata import format_time
from simulator.kube.status import StatusError

Make = Callable[..., Any]
ZERO = {"spec": {"replicas": 0}}
GPU = "requests.nvidia.com/gpu"


def scaled(world: Any, name: str = "d") -> int:
    count: int = world.get("Deployment", name)["spec"]["replicas"]
    return count


def test_a_budget_allows_one_eviction_and_then_refuses(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(3))
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "d"}}}
    world.make("PodDisruptionBudget", "b", budget)
    world.run(600)
    assert world.get("PodDisruptionBudget", "b")["status"]["disruptionsAllowed"] == 1
    first, second, _ = world.names()
    evict(world.store, first, "team-a", DeleteOptions(), manager="")
    world.settle()
    with pytest.raises(StatusError) as refused:
        evict(world.store, second, "team-a", DeleteOptions(), manager="")
    assert refused.value.code == 429
    world.run(600)
    assert world.get("PodDisruptionBudget", "b")["status"]["disruptionsAllowed"] == 1
    evict(world.store, second, "team-a", DeleteOptions(), manager="")


def test_an_eviction_that_never_happens_is_forgiven_after_two_minutes(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(3))
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "d"}}}
    world.make("PodDisruptionBudget", "b", budget)
    world.run(600)
    name = world.names()[0]
    spent = {"disruptionsAllowed": 0, "disruptedPods": {name: format_time(world.now_s)}}
    world.patch("PodDisruptionBudget", "b", {"status": spent}, subresource="status")
    world.run(90)
    assert world.get("PodDisruptionBudget", "b")["status"]["disruptionsAllowed"] == 0
    world.run(60)
    status = world.get("PodDisruptionBudget", "b")["status"]
    assert (status["disruptionsAllowed"], status["disruptedPods"]) == (1, {})


def test_a_quota_refuses_pods_until_there_is_room_again(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("ResourceQuota", "q", {"hard": {GPU: "4"}})
    world.settle()
    world.make("Deployment", "d", shapes.deployment(6))
    world.make("Deployment", "e", shapes.deployment(1, app="e"))
    world.run(600)
    assert world.held() == 4
    assert world.get("ResourceQuota", "q")["status"]["used"] == {GPU: "4"}
    failure = next(
        c
        for c in world.get("Deployment", "d")["status"]["conditions"]
        if c["type"] == "ReplicaFailure"
    )
    assert "exceeded quota: q" in failure["message"]
    world.patch("Deployment", "d", {"spec": {"replicas": 3}}, subresource="scale")
    world.run(600)
    assert world.held() == 4
    assert scaled(world, "d") == 3
    assert world.get("Deployment", "e")["status"]["readyReplicas"] == 1
    world.patch("Deployment", "d", {"spec": {"replicas": 7}}, subresource="scale")
    world.patch("ResourceQuota", "q", {"spec": {"hard": {GPU: "8"}}})
    world.run(600)
    assert world.held() == 8


def test_nobody_fights_back_unless_told_to(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(2))
    world.run(600)
    world.patch("Deployment", "d", ZERO, subresource="scale")
    world.run(86_400)
    assert (scaled(world), world.held()) == (0, 0)


def test_gitops_reverts_the_fields_it_tracks_under_its_own_name(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(2))
    world.cluster.track("Deployment", "team-a", "d", {"spec": {"replicas": 2}}, delay_s=60)
    world.run(600)
    world.patch("Deployment", "d", ZERO, subresource="scale")
    world.run(59)
    assert scaled(world) == 0
    world.run(1)
    assert scaled(world) == 2
    managers = [e["manager"] for e in world.get("Deployment", "d")["metadata"]["managedFields"]]
    assert "argocd-controller" in managers


def test_an_autoscaler_keeps_its_minimum_but_leaves_a_zero_alone(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(3))
    target = {"kind": "Deployment", "name": "d"}
    scaler = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5}
    world.make("HorizontalPodAutoscaler", "h", scaler)
    world.run(60)
    assert scaled(world) == 3
    world.patch("Deployment", "d", {"spec": {"replicas": 1}}, subresource="scale")
    world.run(14)
    assert scaled(world) == 1
    world.run(1)
    assert scaled(world) == 2
    note = {"metadata": {"annotations": {"simulator.fallow/desired-replicas": "9"}}}
    world.patch("HorizontalPodAutoscaler", "h", note)
    world.run(60)
    assert scaled(world) == 5
    world.patch("Deployment", "d", ZERO, subresource="scale")
    world.run(600)
    assert scaled(world) == 0


def test_keda_scales_back_from_zero_unless_it_is_paused(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(2))
    spec = {"scaleTargetRef": {"name": "d"}, "minReplicaCount": 1}
    world.make("ScaledObject", "k", spec)
    world.run(600)
    world.patch("Deployment", "d", ZERO, subresource="scale")
    world.run(60)
    assert scaled(world) == 1
    note = {"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "0"}}}
    world.patch("ScaledObject", "k", note)
    world.run(600)
    assert (scaled(world), world.held()) == (0, 0)


def queue(world: Any, name: str, gpus: int, **more: Any) -> None:
    resources: list[dict[str, Any]] = [
        {"name": "nvidia.com/gpu", "nominalQuota": gpus},
        {"name": "cpu", "nominalQuota": 1000},
        {"name": "memory", "nominalQuota": "10Ti"},
    ]
    group = {
        "coveredResources": [r["name"] for r in resources],
        "flavors": [{"name": "default", "resources": resources}],
    }
    world.make("ClusterQueue", name, {"resourceGroups": [group], **more}, namespace="")
    world.make("LocalQueue", name, {"clusterQueue": name})


def queued(name: str) -> Any:
    return {"labels": {"kueue.x-k8s.io/queue-name": name}}


def workload(world: Any, job: str) -> Any:
    return next(
        w
        for w in world.store.list("Workload", "team-a")
        if w["metadata"]["ownerReferences"][0]["name"] == job
    )


def test_kueue_admits_by_quota_and_the_next_one_when_the_first_is_stopped(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    queue(world, "q", 2)
    world.make("Job", "a", shapes.job(gpus=2), **queued("q"))
    world.run(10)
    world.make("Job", "b", shapes.job(gpus=2), **queued("q"))
    world.run(600)
    assert world.held() == 2
    assert [w.owner for w in world.cluster.waits if w.bound_s is None] == ["Job/team-a/b"]
    world.patch("Workload", workload(world, "a")["metadata"]["name"], {"spec": {"active": False}})
    world.run(600)
    assert world.get("Job", "a")["spec"]["suspend"]
    stopped = {c["type"]: c for c in workload(world, "a")["status"]["conditions"]}
    assert stopped["Evicted"]["reason"] == "Deactivated"
    assert stopped["QuotaReserved"]["status"] == "False"
    assert not world.get("Job", "b")["spec"]["suspend"]
    assert world.held() == 2
    for pod in world.pods("Running"):
        world.cluster.finish(pod["metadata"]["uid"], world.now_s)
    world.patch("Workload", workload(world, "a")["metadata"]["name"], {"spec": {"active": True}})
    world.run(600)
    assert not world.get("Job", "a")["spec"]["suspend"]
    assert world.held() == 2
    waited = {w.owner: w.bound_s - w.queued_s for w in world.cluster.waits if w.bound_s}
    assert waited["Job/team-a/b"] == 630


def test_suspending_an_admitted_job_itself_is_undone(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    queue(world, "q", 4)
    roles = {"Worker": {"replicas": 2, "template": shapes.template(1)}}
    world.make("PyTorchJob", "t", {"pytorchReplicaSpecs": roles}, **queued("q"))
    world.run(600)
    assert world.held() == 2
    world.patch("PyTorchJob", "t", {"spec": {"runPolicy": {"suspend": True}}})
    world.run(600)
    assert not world.get("PyTorchJob", "t")["spec"]["runPolicy"]["suspend"]
    assert world.held() == 2


def test_a_lender_takes_its_quota_back_from_the_borrower(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    more = {"cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"}}
    queue(world, "lender", 4, **more)
    queue(world, "borrower", 4, **more)
    world.make("Job", "big", shapes.job(gpus=8), **queued("borrower"))
    world.run(600)
    assert world.held() == 8
    world.make("Job", "own", shapes.job(gpus=4), **queued("lender"))
    world.run(600)
    assert world.get("Job", "big")["spec"]["suspend"]
    assert world.held() == 4
    true = {
        c["type"] for c in workload(world, "big")["status"]["conditions"] if c["status"] == "True"
    }
    assert {"Preempted", "Requeued"} <= true


def test_hold_and_drain_stops_what_runs_and_lets_it_back_after(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    queue(world, "q", 4)
    world.make("Job", "a", shapes.job(gpus=2), **queued("q"))
    world.run(600)
    world.patch("ClusterQueue", "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
    world.run(600)
    assert world.held() == 0
    world.patch("ClusterQueue", "q", {"spec": {"stopPolicy": "None"}})
    world.run(600)
    assert world.held() == 2


def test_an_elastic_quota_evicts_the_borrower_for_its_minimum(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Namespace", "team-b", namespace="")
    kind = "ElasticQuota.scheduling.x-k8s.io"
    for space in ("team-a", "team-b"):
        spec = {"min": {"nvidia.com/gpu": 4}, "max": {"nvidia.com/gpu": 8}}
        world.make(kind, "eq", spec, namespace=space)
    world.make("Deployment", "d", shapes.deployment(8))
    world.run(600)
    assert world.held() == 8
    world.make("Deployment", "d", shapes.deployment(2), namespace="team-b")
    world.run(600)
    by_space = [t.holder.namespace for t in world.cluster.allocations if t.end_s > world.now_s]
    assert (by_space.count("team-a"), by_space.count("team-b")) == (6, 2)
