"""Quota objects say what is used of them, as their controllers would."""

from collections.abc import Callable
from typing import Any

GPU = "nvidia.com/gpu"
Make = Callable[..., Any]


def queue(world: Any, name: str, gpus: int, cohort: str = "all") -> None:
    amounts = {GPU: str(gpus), "cpu": "1000", "memory": "10Ti"}
    resources = [{"name": k, "nominalQuota": v} for k, v in amounts.items()]
    group = {"coveredResources": [*amounts], "flavors": [{"name": "h100", "resources": resources}]}
    spec = {"resourceGroups": [group], "cohortName": cohort}
    world.make("ClusterQueue", name, spec, namespace="")
    world.make("LocalQueue", name, {"clusterQueue": name})


def test_a_cluster_queue_counts_what_is_reserved_borrowed_and_pending(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 2})
    queue(world, "a", 2)
    queue(world, "b", 4)
    for n in range(4):
        labels = {"kueue.x-k8s.io/queue-name": "a"}
        world.make("Job", f"j{n}", shapes.job(2, suspend=True), labels=labels)
    world.run(600)
    status = world.get("ClusterQueue", "a")["status"]
    total = {"name": GPU, "total": "6", "borrowed": "4"}
    assert status["flavorsReservation"][0]["resources"][0] == total
    assert status["flavorsReservation"][0]["resources"][1]["total"] == "12"
    assert (status["admittedWorkloads"], status["pendingWorkloads"]) == (3, 1)
    assert world.get("ClusterQueue", "b")["status"]["admittedWorkloads"] == 0
    world.cluster.finish(world.pods("Running")[0]["metadata"]["uid"], world.now_s)
    world.run(600)
    status = world.get("ClusterQueue", "a")["status"]
    assert (status["admittedWorkloads"], status["pendingWorkloads"]) == (3, 0)


def test_an_elastic_quota_counts_the_pods_of_its_namespace_that_have_a_node(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    spec = {"min": {GPU: "4"}, "max": {GPU: "6"}}
    world.make("ElasticQuota.scheduling.x-k8s.io", "q", spec)
    world.make("Job", "j", shapes.job(2, width=4))
    world.run(600)
    found = world.store.get("ElasticQuota.scheduling.x-k8s.io", "q", "team-a")
    assert found["status"]["used"] == {GPU: "4"}


def test_what_a_guarantee_takes_back_is_not_borrowed_again_at_the_same_moment(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Namespace", "team-b", namespace="")
    for team in ("team-a", "team-b"):
        spec = {"min": {GPU: "4"}, "max": {GPU: "12"}}
        world.make("ElasticQuota.scheduling.x-k8s.io", "q", spec, namespace=team)
    world.make("Deployment", "greedy", shapes.deployment(12, app="greedy"))
    world.make("Job", "owed", shapes.job(1, width=4), namespace="team-b")
    world.run(600)
    running = [p for p in world.store.list("Pod", "team-b") if p["status"]["phase"] == "Running"]
    assert len(running) == 4
    assert len(world.pods("Running")) == 4


def test_a_guarantee_evicts_nobody_where_that_makes_no_room(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Namespace", "team-b", namespace="")
    for team in ("team-a", "team-b"):
        spec = {"min": {GPU: "4"}, "max": {GPU: "12"}}
        world.make("ElasticQuota.scheduling.x-k8s.io", "q", spec, namespace=team)
    world.make("Deployment", "greedy", shapes.deployment(8, app="greedy"))
    elsewhere = shapes.job(1, width=4)
    elsewhere["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    world.make("Job", "owed", elsewhere, namespace="team-b")
    world.run(600)
    assert len(world.pods("Running")) == 8
