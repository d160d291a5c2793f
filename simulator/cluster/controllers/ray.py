"""RayCluster: a head and groups of workers; RayJob: a cluster that lives for one job."""

from simulator.cluster.controllers.child_changes import (
    ChildChanges,
    ControllerView,
    child,
    keep,
    pod,
)
from simulator.cluster.objects import (
    Object,
    has_ended,
    is_deleting,
    is_live,
    is_ready,
    metadata_map,
    name,
    oldest,
    template_hash,
    uid,
    value_at,
)

GROUP, NODE_TYPE, CLUSTER = "ray.io/group", "ray.io/node-type", "ray.io/cluster"


def ray_cluster(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the head and each group's replicas; none of them while it is suspended."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    all_pods = sight.view.children(uid(obj), "Pod")
    pods = [
        p for p in all_pods if is_live(p) or (has_ended(p) and not is_deleting(p) and _of_job(obj))
    ]
    stopped = bool(obj["spec"].get("suspend"))
    groups = [("headgroup", "head", 1, obj["spec"].get("headGroupSpec") or {})]
    for group in obj["spec"].get("workerGroupSpecs") or ():
        count = 0 if group.get("suspend") else int(group.get("replicas", 1))
        groups.append((group["groupName"], "worker", count, group))
    group_names = {group_name for group_name, *_ in groups}
    for group_name, role, count, group in groups:
        have = oldest(p for p in pods if metadata_map(p, "labels").get(GROUP) == group_name)
        wanted = 0 if stopped else count
        plan.drop += have[wanted:]
        for _ in range(wanted - len(have)):
            plan.make.append(_member(obj, group_name, role, group))
    plan.drop += [p for p in pods if metadata_map(p, "labels").get(GROUP) not in group_names]
    workers = [p for p in pods if metadata_map(p, "labels").get(NODE_TYPE) == "worker"]
    here = [p for p in all_pods if not has_ended(p)]
    up = bool(pods) and all(map(is_ready, pods)) and not plan.make
    state = "suspended" if stopped and not here else ("ready" if up and not stopped else "")
    plan.status = {
        "state": state,
        "desiredWorkerReplicas": sum(count for _, role, count, _ in groups if role == "worker"),
        "availableWorkerReplicas": sum(map(is_ready, workers)),
        "readyWorkerReplicas": sum(map(is_ready, workers)),
        "observedGeneration": obj["metadata"].get("generation", 1),
    }
    return plan


def _of_job(obj: Object) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(r["kind"] == "RayJob" for r in references)


def _member(obj: Object, group_name: str, role: str, group: Object) -> Object:
    labels = {CLUSTER: name(obj), NODE_TYPE: role, GROUP: group_name}
    head = f"{name(obj)}-head-" if role == "head" else f"{name(obj)}-{group_name}-worker-"
    # A cluster of its own starts its containers again; a job's cluster ends with the job.
    policy = {"restartPolicy": "Never"} if _of_job(obj) else {}
    return pod(obj, group.get("template") or {}, head, labels, generate=True, **policy)


def ray_job(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep a cluster until its head has ended; suspending it takes the cluster away whole."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    have = sight.view.children(uid(obj), "RayCluster")
    pods = [p for c in have for p in sight.view.children(uid(c), "Pod")]
    heads = [p for p in pods if metadata_map(p, "labels").get(NODE_TYPE) == "head"]
    phases = {value_at(p, "status", "phase") for p in heads}
    before = value_at(obj, "status", "jobStatus", default="")
    over_now = before in {"SUCCEEDED", "FAILED"}
    if over_now or phases & {"Succeeded", "Failed"}:
        job = before if over_now else ("SUCCEEDED" if "Succeeded" in phases else "FAILED")
        if obj["spec"].get("shutdownAfterJobFinishes"):
            plan.drop = [c for c in have if not is_deleting(c)]
        state = "Complete" if job == "SUCCEEDED" else "Failed"
        plan.status = {"jobStatus": job, "jobDeploymentStatus": state}
        return plan
    if obj["spec"].get("suspend"):
        plan.drop = [c for c in have if not is_deleting(c)]
        state = "Suspended" if not have else "Suspending"
        plan.status = {"jobStatus": "", "jobDeploymentStatus": state, "rayClusterName": ""}
        return plan
    # A resumed job gets a new cluster: its name counts how often that happened.
    count = int(value_at(obj, "status", "started", default=0)) + (0 if have else 1)
    cluster_name = f"{name(obj)}-{template_hash([uid(obj), count])[:5]}"
    spec = obj["spec"].get("rayClusterSpec") or {}
    new_cluster = child(obj, "ray.io/v1", "RayCluster", cluster_name, spec)
    if not have or name(have[0]) == cluster_name:
        keep(plan, have, [new_cluster])
    running = bool(heads) and all(map(is_ready, heads))
    plan.status = {
        "jobStatus": "RUNNING" if running else "PENDING",
        "jobDeploymentStatus": "Running" if running else "Initializing",
        "rayClusterName": cluster_name,
        "started": count,
    }
    return plan
