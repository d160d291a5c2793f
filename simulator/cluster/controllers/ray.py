"""RayCluster: a head and groups of workers; RayJob: a cluster that lives for one job."""

from simulator.cluster.controllers.plan import Plan, Sight, child, keep, pod
from simulator.cluster.objects import (
    Object,
    deep,
    going,
    live,
    name,
    oldest,
    over,
    ready,
    template_hash,
    uid,
    words,
)

GROUP, NODE_TYPE, CLUSTER = "ray.io/group", "ray.io/node-type", "ray.io/cluster"


def ray_cluster(obj: Object, sight: Sight) -> Plan:
    """Keep the head and each group's replicas; none of them while it is suspended."""
    plan = Plan()
    if going(obj):
        return plan
    every = sight.view.children(uid(obj), "Pod")
    pods = [p for p in every if live(p) or (over(p) and not going(p) and _of_job(obj))]
    stopped = bool(obj["spec"].get("suspend"))
    groups = [("headgroup", "head", 1, obj["spec"].get("headGroupSpec") or {})]
    for group in obj["spec"].get("workerGroupSpecs") or ():
        count = 0 if group.get("suspend") else int(group.get("replicas", 1))
        groups.append((group["groupName"], "worker", count, group))
    known = {called for called, *_ in groups}
    for called, role, count, group in groups:
        have = oldest(p for p in pods if words(p, "labels").get(GROUP) == called)
        wanted = 0 if stopped else count
        plan.drop += have[wanted:]
        for _ in range(wanted - len(have)):
            plan.make.append(_member(obj, called, role, group))
    plan.drop += [p for p in pods if words(p, "labels").get(GROUP) not in known]
    workers = [p for p in pods if words(p, "labels").get(NODE_TYPE) == "worker"]
    here = [p for p in every if not over(p)]
    up = bool(pods) and all(map(ready, pods)) and not plan.make
    state = "suspended" if stopped and not here else ("ready" if up and not stopped else "")
    plan.status = {
        "state": state,
        "desiredWorkerReplicas": sum(count for _, role, count, _ in groups if role == "worker"),
        "availableWorkerReplicas": sum(map(ready, workers)),
        "readyWorkerReplicas": sum(map(ready, workers)),
        "observedGeneration": obj["metadata"].get("generation", 1),
    }
    return plan


def _of_job(obj: Object) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(r["kind"] == "RayJob" for r in references)


def _member(obj: Object, called: str, role: str, group: Object) -> Object:
    labels = {CLUSTER: name(obj), NODE_TYPE: role, GROUP: called}
    head = f"{name(obj)}-head-" if role == "head" else f"{name(obj)}-{called}-worker-"
    # A cluster of its own starts its containers again; a job's cluster ends with the job.
    policy = {"restartPolicy": "Never"} if _of_job(obj) else {}
    return pod(obj, group.get("template") or {}, head, labels, generate=True, **policy)


def ray_job(obj: Object, sight: Sight) -> Plan:
    """Keep a cluster until its head has ended; suspending it takes the cluster away whole."""
    plan = Plan()
    if going(obj):
        return plan
    have = sight.view.children(uid(obj), "RayCluster")
    pods = [p for c in have for p in sight.view.children(uid(c), "Pod")]
    heads = [p for p in pods if words(p, "labels").get(NODE_TYPE) == "head"]
    phases = {deep(p, "status", "phase") for p in heads}
    before = deep(obj, "status", "jobStatus", default="")
    over_now = before in {"SUCCEEDED", "FAILED"}
    if over_now or phases & {"Succeeded", "Failed"}:
        job = before if over_now else ("SUCCEEDED" if "Succeeded" in phases else "FAILED")
        if obj["spec"].get("shutdownAfterJobFinishes"):
            plan.drop = [c for c in have if not going(c)]
        state = "Complete" if job == "SUCCEEDED" else "Failed"
        plan.status = {"jobStatus": job, "jobDeploymentStatus": state}
        return plan
    if obj["spec"].get("suspend"):
        plan.drop = [c for c in have if not going(c)]
        state = "Suspended" if not have else "Suspending"
        plan.status = {"jobStatus": "", "jobDeploymentStatus": state, "rayClusterName": ""}
        return plan
    # A resumed job gets a new cluster: its name counts how often that happened.
    count = int(deep(obj, "status", "started", default=0)) + (0 if have else 1)
    called = f"{name(obj)}-{template_hash([uid(obj), count])[:5]}"
    spec = obj["spec"].get("rayClusterSpec") or {}
    made = child(obj, "ray.io/v1", "RayCluster", called, spec)
    if not have or name(have[0]) == called:
        keep(plan, have, [made])
    running = bool(heads) and all(map(ready, heads))
    plan.status = {
        "jobStatus": "RUNNING" if running else "PENDING",
        "jobDeploymentStatus": "Running" if running else "Initializing",
        "rayClusterName": called,
        "started": count,
    }
    return plan
