"""Every way to stop a workload frees its GPUs through the store, and every way back works."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from collectors.kube.owners import Owners, build_lookup
from collectors.kube.shapes import Meta

Make = Callable[..., Any]
STOPPED = "kubeflow-resource-stopped"


def rayjob(shapes: Any) -> Any:
    return {
        "headGroupSpec": {"template": shapes.template(1)},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": shapes.template(1)}],
    }


def specs(shapes: Any) -> dict[str, Any]:
    roles = {
        "Master": {"replicas": 1, "template": shapes.template(1)},
        "Worker": {"replicas": 2, "template": shapes.template(1)},
    }
    jobs = [{"name": "w", "replicas": 3, "template": {"spec": shapes.job()}}]
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}}}
    predictor = {"minReplicas": 3, "model": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}
    set_of = shapes.deployment(3) | {"podManagementPolicy": "Parallel", "serviceName": "s"}
    return {
        "Deployment": shapes.deployment(3),
        "StatefulSet": set_of,
        "Job": shapes.job(width=3),
        "Notebook": {"template": shapes.template(3)},
        "Workspace": {"podTemplate": shapes.template(3)},
        "PyTorchJob": {"pytorchReplicaSpecs": roles},
        "RayCluster": rayjob(shapes),
        "RayJob": {"shutdownAfterJobFinishes": True, "rayClusterSpec": rayjob(shapes)},
        "JobSet": {"replicatedJobs": jobs},
        "TrainJob": {"trainer": trainer},
        "InferenceService": {"predictor": predictor},
    }


Verb = tuple[Any, Any, dict[str, str]]
SUSPEND: Verb = ({"spec": {"suspend": True}}, {"spec": {"suspend": False}}, {})
SCALE: Verb = ({"spec": {"replicas": 0}}, {"spec": {"replicas": 3}}, {"subresource": "scale"})
VERBS: dict[str, Verb] = {
    "Deployment": SCALE,
    "StatefulSet": SCALE,
    "Job": SUSPEND,
    "Notebook": (
        {"metadata": {"annotations": {STOPPED: "2026-11-20T12:00:00Z"}}},
        {"metadata": {"annotations": {STOPPED: None}}},
        {},
    ),
    "Workspace": ({"spec": {"paused": True}}, {"spec": {"paused": False}}, {}),
    "PyTorchJob": (
        {"spec": {"runPolicy": {"suspend": True}}},
        {"spec": {"runPolicy": {"suspend": False}}},
        {},
    ),
    "RayCluster": SUSPEND,
    "RayJob": SUSPEND,
    "JobSet": SUSPEND,
    "TrainJob": SUSPEND,
    "InferenceService": (
        {"metadata": {"annotations": {"serving.kserve.io/stop": "true"}}},
        {"metadata": {"annotations": {"serving.kserve.io/stop": "false"}}},
        {},
    ),
}


@pytest.mark.parametrize("kind", VERBS)
def test_its_stop_verb_frees_its_gpus_and_its_resume_verb_takes_them_again(
    kind: str, small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    made = world.make(kind, "work", specs(shapes)[kind])
    world.run(600)
    assert world.held() == 3
    assert {p["status"]["phase"] for p in world.pods()} == {"Running"}
    stop, resume, how = VERBS[kind]
    world.patch(kind, "work", stop, **how)
    world.settle()
    assert world.held() == 3, "containers have their grace"
    world.run(60)
    assert world.held() == 0
    assert world.pods() == []
    assert world.get(kind, "work")["metadata"]["uid"] == made["metadata"]["uid"]
    world.run(3600)
    assert world.held() == 0, "nobody starts it again"
    world.patch(kind, "work", resume, **how)
    world.run(600)
    assert world.held() == 3


@pytest.mark.parametrize("kind", VERBS)
def test_our_collector_climbs_from_its_pods_to_it(kind: str, small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make(kind, "work", specs(shapes)[kind])
    world.run(600)
    index = {}
    for known in world.store.catalog:
        for obj in world.store.list(known.key):
            meta = msgspec.convert(obj["metadata"], Meta)
            index[known.group, known.kind, meta.namespace, meta.name] = meta
    owners = Owners(build_lookup(index))
    climbed = [owners.top(msgspec.convert(p["metadata"], Meta)) for p in world.pods()]
    tops = {(top.kind, top.name, top.uid) for top in climbed if top is not None}
    uid = world.get(kind, "work")["metadata"]["uid"]
    assert tops == {(kind, "work", uid)}
    assert {world.cluster.holder(p["metadata"]["uid"]).workload_kind for p in world.pods()} == {
        kind
    }


def test_a_stopped_notebook_comes_back_under_its_name_with_its_claim(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("PersistentVolumeClaim", "home", {})
    world.make("Notebook", "nb", {"template": shapes.template(1)})
    world.run(600)
    before = world.pods()[0]
    world.patch("Notebook", "nb", VERBS["Notebook"][0])
    world.run(60)
    assert world.get("StatefulSet", "nb")["spec"]["replicas"] == 0
    world.patch("Notebook", "nb", VERBS["Notebook"][1])
    world.run(600)
    after = world.pods()[0]
    assert before["metadata"]["name"] == after["metadata"]["name"] == "nb-0"
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert world.get("PersistentVolumeClaim", "home")


def test_scaling_a_notebooks_stateful_set_is_undone(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Notebook", "nb", {"template": shapes.template(1)})
    world.run(600)
    world.patch("StatefulSet", "nb", {"spec": {"replicas": 0}}, subresource="scale")
    world.run(600)
    assert world.get("StatefulSet", "nb")["spec"]["replicas"] == 1
    assert world.held() == 1


def test_a_child_jobs_suspend_is_undone_by_its_set(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("JobSet", "work", specs(shapes)["JobSet"])
    world.run(600)
    world.patch("Job", "work-w-0", {"spec": {"suspend": True}})
    world.run(600)
    assert not world.get("Job", "work-w-0")["spec"]["suspend"]
    assert world.held() == 3


def test_a_stateful_set_grows_and_shrinks_in_order(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("StatefulSet", "s", shapes.deployment(3) | {"serviceName": "s"})
    world.settle()
    assert world.names() == ["s-0"]
    world.run(900)
    assert world.names() == ["s-0", "s-1", "s-2"]
    world.patch("StatefulSet", "s", {"spec": {"replicas": 1}}, subresource="scale")
    world.settle()
    going = [p["metadata"]["name"] for p in world.pods() if "deletionTimestamp" in p["metadata"]]
    assert going == ["s-2"]
    world.run(900)
    assert world.names() == ["s-0"]


@pytest.mark.parametrize(("policy", "left"), [("Retain", 2), ("Delete", 0)])
def test_claims_outlive_a_scaled_down_set_unless_it_says_so(
    policy: str, left: int, small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    retention = {"whenScaled": policy, "whenDeleted": "Retain"}
    more = {"volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": retention}
    world.make("StatefulSet", "s", shapes.deployment(2) | {"serviceName": "s"} | more)
    world.run(900)
    world.patch("StatefulSet", "s", {"spec": {"replicas": 0}}, subresource="scale")
    world.run(900)
    assert len(world.store.list("PersistentVolumeClaim", "team-a")) == left


def test_a_deployment_rolls_over_to_a_new_template(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(4))
    world.run(600)
    body = {"spec": {"template": {"metadata": {"labels": {"app": "d", "version": "2"}}}}}
    world.patch("Deployment", "d", body)
    for _ in range(60):
        world.run(10)
        ready = world.get("Deployment", "d")["status"]["readyReplicas"]
        assert ready >= 3, "maxUnavailable is 25 %"
    versions = {p["metadata"]["labels"].get("version") for p in world.pods()}
    assert versions == {"2"}
    assert world.held() == 4


def test_a_job_ends_when_its_pods_have_succeeded(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Job", "j", shapes.job(width=2))
    world.run(600)
    for pod in world.pods():
        world.cluster.finish(pod["metadata"]["uid"], world.now_s)
    world.run(60)
    status = world.get("Job", "j")["status"]
    assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == ["Complete"]
    assert (status["succeeded"], status["active"], world.held()) == (2, 0, 0)
    assert len(world.pods("Succeeded")) == 2, "finished pods stay to be read"


def test_a_job_gives_up_after_its_backoff_limit(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Job", "j", shapes.job(backoffLimit=1))
    for _ in range(3):
        world.run(600)
        for pod in world.pods("Running"):
            world.cluster.finish(pod["metadata"]["uid"], world.now_s, ok=False)
    world.run(60)
    status = world.get("Job", "j")["status"]
    assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == ["Failed"]
    assert (status["failed"], world.held()) == (2, 0)


def test_a_training_job_is_done_when_its_master_is(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("PyTorchJob", "t", specs(shapes)["PyTorchJob"])
    world.run(600)
    assert world.names() == ["t-master-0", "t-worker-0", "t-worker-1"]
    for pod in world.pods():
        world.cluster.finish(pod["metadata"]["uid"], world.now_s)
    world.run(600)
    true = {c["type"] for c in world.get("PyTorchJob", "t")["status"]["conditions"]}
    assert "Succeeded" in true
    assert world.held() == 0


def test_a_ray_job_takes_its_cluster_away_when_its_head_is_done(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("RayJob", "r", specs(shapes)["RayJob"])
    world.run(600)
    head = next(p for p in world.pods() if p["metadata"]["labels"]["ray.io/node-type"] == "head")
    world.cluster.finish(head["metadata"]["uid"], world.now_s)
    world.run(600)
    assert world.get("RayJob", "r")["status"]["jobStatus"] == "SUCCEEDED"
    assert world.store.list("RayCluster") == []
    assert world.held() == 0


def test_minimum_of_no_replicas_stops_a_service_only_in_serverless_mode(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    raw = {"annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"}}
    world.make("InferenceService", "raw", specs(shapes)["InferenceService"], **raw)
    world.make("InferenceService", "free", specs(shapes)["InferenceService"])
    world.run(600)
    for name in ("raw", "free"):
        world.patch("InferenceService", name, {"spec": {"predictor": {"minReplicas": 0}}})
    world.run(600)
    assert world.held() == 1


def test_what_a_deleted_object_owned_goes_with_it(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Notebook", "nb", {"template": shapes.template(1)})
    world.run(600)
    world.store.delete("Notebook", "nb", "team-a")
    world.run(60)
    assert world.store.list("StatefulSet") == []
    assert world.held() == 0


def test_a_namespace_ends_with_everything_in_it(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(2))
    world.run(600)
    world.store.delete("Namespace", "team-a")
    world.run(60)
    assert world.store.get("Namespace", "team-a") is None
    assert world.held() == 0
