"""Simulate RayCluster (a head and groups of workers) and RayJob (a cluster for one job)."""

from typing import NamedTuple

from fallow.kube.objects import get_labels, get_path, get_uid, has_ended, is_deleting, name
from simulator.cluster.controllers.child_changes import (
    ChildChanges,
    ControllerView,
    build_child,
    build_pod,
    keep,
)
from simulator.cluster.objects import Object, hash_template, is_live, is_ready, sort_by_age

GROUP, NODE_TYPE, CLUSTER = "ray.io/group", "ray.io/node-type", "ray.io/cluster"


def reconcile_ray_cluster(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the head and each group's replicas; none while it is suspended."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    all_pods = sight.view.children(get_uid(obj), "Pod")
    pods = [
        p
        for p in all_pods
        if is_live(p) or (has_ended(p) and not is_deleting(p) and _is_of_job(obj))
    ]
    groups = _list_groups(obj)
    _keep_replicas(plan, obj, pods, groups)
    workers = [p for p in pods if get_labels(p).get(NODE_TYPE) == "worker"]
    is_ready_whole = bool(pods) and all(map(is_ready, pods)) and not plan.make
    plan.status = {
        "state": _name_state(obj, all_pods, ready=is_ready_whole),
        "desiredWorkerReplicas": sum(g.replicas for g in groups if g.role == "worker"),
        "availableWorkerReplicas": sum(map(is_ready, workers)),
        "readyWorkerReplicas": sum(map(is_ready, workers)),
        "observedGeneration": obj["metadata"].get("generation", 1),
    }
    return plan


class _Group(NamedTuple):
    """The head or a group of workers: how many pods of which template."""

    name: str
    role: str
    replicas: int
    spec: Object


def _list_groups(obj: Object) -> list[_Group]:
    groups = [_Group("headgroup", "head", 1, obj["spec"].get("headGroupSpec") or {})]
    for spec in obj["spec"].get("workerGroupSpecs") or ():
        replicas = 0 if spec.get("suspend") else int(spec.get("replicas", 1))
        groups.append(_Group(spec["groupName"], "worker", replicas, spec))
    return groups


def _keep_replicas(
    plan: ChildChanges, obj: Object, pods: list[Object], groups: list[_Group]
) -> None:
    """Create and delete pods until each group has its replicas; pods of no group are deleted."""
    group_of = {get_uid(p): get_labels(p).get(GROUP) for p in pods}
    for group in groups:
        have = sort_by_age(p for p in pods if group_of[get_uid(p)] == group.name)
        wanted = 0 if obj["spec"].get("suspend") else group.replicas
        plan.drop += have[wanted:]
        for _ in range(wanted - len(have)):
            plan.make.append(_build_member(obj, group.name, group.role, group.spec))
    names = {group.name for group in groups}
    plan.drop += [p for p in pods if group_of[get_uid(p)] not in names]


def _name_state(obj: Object, all_pods: list[Object], *, ready: bool) -> str:
    if obj["spec"].get("suspend"):
        return "" if any(not has_ended(p) for p in all_pods) else "suspended"
    return "ready" if ready else ""


def _is_of_job(obj: Object) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(r["kind"] == "RayJob" for r in references)


def _build_member(obj: Object, group_name: str, role: str, group: Object) -> Object:
    labels = {CLUSTER: name(obj), NODE_TYPE: role, GROUP: group_name}
    head = f"{name(obj)}-head-" if role == "head" else f"{name(obj)}-{group_name}-worker-"
    # A separate cluster restarts its containers; a job's cluster ends with the job.
    policy = {"restartPolicy": "Never"} if _is_of_job(obj) else {}
    return build_pod(obj, group.get("template") or {}, head, labels, generate=True, **policy)


def reconcile_ray_job(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep a cluster until its head has ended; suspending the job deletes the whole cluster."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    have = sight.view.children(get_uid(obj), "RayCluster")
    pods = [p for c in have for p in sight.view.children(get_uid(c), "Pod")]
    heads = [p for p in pods if get_labels(p).get(NODE_TYPE) == "head"]
    result = _find_job_result(obj, heads)
    if result:
        if obj["spec"].get("shutdownAfterJobFinishes"):
            plan.drop = [c for c in have if not is_deleting(c)]
        state = "Complete" if result == "SUCCEEDED" else "Failed"
        plan.status = {"jobStatus": result, "jobDeploymentStatus": state}
        return plan
    if obj["spec"].get("suspend"):
        plan.drop = [c for c in have if not is_deleting(c)]
        state = "Suspended" if not have else "Suspending"
        plan.status = {"jobStatus": "", "jobDeploymentStatus": state, "rayClusterName": ""}
        return plan
    _keep_cluster(plan, obj, have, running=bool(heads) and all(map(is_ready, heads)))
    return plan


def _find_job_result(obj: Object, heads: list[Object]) -> str:
    """Return SUCCEEDED or FAILED of a job that has ended, else nothing."""
    before = str(get_path(obj, "status", "jobStatus", default=""))
    if before in {"SUCCEEDED", "FAILED"}:
        return before
    phases = {get_path(p, "status", "phase") for p in heads}
    if "Succeeded" in phases:
        return "SUCCEEDED"
    return "FAILED" if "Failed" in phases else ""


def _keep_cluster(plan: ChildChanges, obj: Object, have: list[Object], *, running: bool) -> None:
    # A resumed job gets a new cluster: its name counts how often this happened.
    count = int(get_path(obj, "status", "started", default=0)) + (0 if have else 1)
    cluster_name = f"{name(obj)}-{hash_template([get_uid(obj), count])[:5]}"
    spec = obj["spec"].get("rayClusterSpec") or {}
    new_cluster = build_child(obj, "ray.io/v1", "RayCluster", cluster_name, spec)
    if not have or name(have[0]) == cluster_name:
        keep(plan, have, [new_cluster])
    plan.status = {
        "jobStatus": "RUNNING" if running else "PENDING",
        "jobDeploymentStatus": "Running" if running else "Initializing",
        "rayClusterName": cluster_name,
        "started": count,
    }
