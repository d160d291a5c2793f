"""Job: pods that run to completion; and JobSet and TrainJob, which are made of Jobs."""

from simulator.cluster.controllers.plan import Plan, Sight, child, keep, pod
from simulator.cluster.objects import (
    Object,
    condition,
    conditions,
    deep,
    going,
    holds,
    live,
    moment,
    name,
    oldest,
    over,
    ready,
    stamp,
    uid,
)

INDEX = "batch.kubernetes.io/job-completion-index"


def job(obj: Object, sight: Sight) -> Plan:
    """Run pods until enough succeeded or too many failed; none while it is suspended."""
    plan = Plan()
    if going(obj):
        return plan
    spec, pods = obj["spec"], oldest(sight.view.children(uid(obj), "Pod"))
    done, wrong = _counted(obj, pods, "Succeeded"), _counted(obj, pods, "Failed")
    active = [p for p in pods if live(p)]
    status: Object = {
        "succeeded": done,
        "failed": wrong,
        "active": len(active),
        "ready": sum(map(ready, active)),
        "terminating": sum(going(p) and not over(p) for p in pods),
    }
    if holds(obj, "Complete") or holds(obj, "Failed"):
        plan.drop = active
        _retire(plan, obj, sight)
        plan.status = status
        return plan
    wanted = spec.get("completions")
    now = sight.now_s
    suspended = holds(obj, "Suspended")
    if (wanted is not None and done >= wanted) or (wanted is None and done and not active):
        said = ("Complete", True, "CompletionsReached", "Reached expected number of succeeded pods")
        status |= {"completionTime": stamp(now), "conditions": conditions(obj, now, said)}
        plan.events.append(("Normal", "Completed", "Job completed"))
        plan.drop = active
    elif wrong > spec.get("backoffLimit", 6) or _late(plan, obj, sight):
        late = wrong <= spec.get("backoffLimit", 6)
        why = (
            ("DeadlineExceeded", "Job was active longer than specified deadline")
            if late
            else ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        )
        status["conditions"] = conditions(obj, now, ("Failed", True, *why))
        plan.events.append(("Warning", *why))
        plan.drop = active
    elif spec.get("suspend"):
        plan.drop = active
        status["startTime"] = None
        if not suspended:
            said = ("Suspended", True, "JobSuspended", "Job suspended")
            status["conditions"] = conditions(obj, now, said)
            plan.events.append(("Normal", "Suspended", "Job suspended"))
    else:
        if suspended:
            said = ("Suspended", False, "JobResumed", "Job resumed")
            status |= {"conditions": conditions(obj, now, said)}
        if suspended or not deep(obj, "status", "startTime"):
            status["startTime"] = stamp(now)
        _fill(plan, obj, pods, active, done)
    plan.status = status
    return plan


def _counted(obj: Object, pods: list[Object], phase: str) -> int:
    """Return how many pods ended so, those that were tidied away since included."""
    now = sum(bool(deep(p, "status", "phase") == phase) for p in pods)
    return max(now, int(deep(obj, "status", phase.lower(), default=0)))


def _late(plan: Plan, obj: Object, sight: Sight) -> bool:
    limit = obj["spec"].get("activeDeadlineSeconds")
    began = deep(obj, "status", "startTime")
    if limit is None or began is None or obj["spec"].get("suspend"):
        return False
    plan.at_s = moment(began) + limit
    return sight.now_s >= plan.at_s


def _retire(plan: Plan, obj: Object, sight: Sight) -> None:
    """Delete a finished job when its time to live is over."""
    ttl = obj["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return
    ended = condition(obj, "Complete") or condition(obj, "Failed") or {}
    since = ended.get("lastTransitionTime")
    if not since:  # the server takes such a condition; nobody knows when it was over
        return
    plan.at_s = moment(since) + ttl
    if sight.now_s >= plan.at_s:
        plan.drop = [*plan.drop, obj]
        plan.at_s = None


def _fill(plan: Plan, obj: Object, pods: list[Object], active: list[Object], done: int) -> None:
    spec = obj["spec"]
    wanted, wide = spec.get("completions"), int(spec.get("parallelism", 1))
    room = wide if wanted is None else min(wide, wanted - done)
    if wanted is None and done:
        room = len(active)  # a work queue that has begun to end starts nothing more
    leaving = sum(going(p) and not over(p) for p in pods)
    labels = {
        "batch.kubernetes.io/job-name": name(obj),
        "batch.kubernetes.io/controller-uid": uid(obj),
        "job-name": name(obj),
    }
    plan.drop = active[room:] if room < len(active) else []
    template = spec.get("template") or {}
    indexed = spec.get("completionMode") == "Indexed"
    taken = {
        int(p["metadata"]["annotations"][INDEX])
        for p in pods
        if indexed and deep(p, "status", "phase") != "Failed"
    }
    free = iter(i for i in range((wanted or 0) + len(pods) + 1) if i not in taken)
    for _ in range(room - len(active) - leaving):
        number = next(free) if indexed else None
        head = name(obj) if number is None else f"{name(obj)}-{number}"
        made = pod(obj, template, f"{head}-", labels, generate=True)
        if number is not None:
            notes = {**(made["metadata"].get("annotations") or {}), INDEX: str(number)}
            made["metadata"]["annotations"] = notes
            made["metadata"]["labels"][INDEX] = str(number)
        plan.make.append(made)


def ended(obj: Object) -> str:
    """Return Complete, Failed or nothing: how a job ended."""
    return next((word for word in ("Complete", "Failed") if holds(obj, word)), "")


def job_set(obj: Object, sight: Sight) -> Plan:
    """Keep the jobs of each replicated job, all suspended while the set is."""
    plan = Plan()
    if going(obj):
        return plan
    spec, have = obj["spec"], sight.view.children(uid(obj), "Job")
    stopped = bool(spec.get("suspend"))
    wanted = []
    for group in spec.get("replicatedJobs") or ():
        for index in range(int(group.get("replicas", 1))):
            called = f"{name(obj)}-{group['name']}-{index}"
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name(obj),
                "jobset.sigs.k8s.io/replicatedjob-name": group["name"],
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            inner = deep(group, "template", "spec", default={})
            made = child(obj, "batch/v1", "Job", called, _labelled(inner, labels, suspend=stopped))
            made["metadata"]["labels"] |= labels
            wanted.append(made)
    _follow(plan, obj, sight, have, wanted, stopped=stopped)
    return plan


def _labelled(spec: Object, labels: dict[str, str], *, suspend: bool) -> Object:
    template = spec.get("template") or {}
    meta = template.get("metadata") or {}
    meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    return {**spec, "suspend": suspend, "template": {**template, "metadata": meta}}


def _follow(
    plan: Plan,
    obj: Object,
    sight: Sight,
    have: list[Object],
    wanted: list[Object],
    *,
    stopped: bool,
) -> None:
    """Keep the children, and say of the whole what they say of themselves."""
    if holds(obj, "Completed") or holds(obj, "Complete") or holds(obj, "Failed"):
        return
    kept = keep(plan, have, wanted)
    for there, said in plan.patch:
        if ended(there):
            said["spec"].pop("suspend", None)
    for _, said in plan.patch:  # a job's template is immutable
        said["spec"] = {k: v for k, v in said["spec"].items() if k in {"suspend", "parallelism"}}
    ends = [ended(o) or _set_ended(o) for o in kept]
    changes = [
        (
            "Suspended",
            stopped,
            "Suspended" if stopped else "Resumed",
            "jobset is suspended" if stopped else "jobset is resumed",
        )
    ]
    if "Failed" in ends:
        changes.append(("Failed", True, "FailedJobs", "a job failed"))
    elif ends and len(kept) == len(wanted) and all(ends):
        done = "Complete" if obj["kind"] == "TrainJob" else "Completed"
        changes.append((done, True, "AllJobsCompleted", "all jobs completed"))
    plan.status = {"conditions": conditions(obj, sight.now_s, *changes)}


def _set_ended(obj: Object) -> str:
    return "Complete" if holds(obj, "Completed") else ""


def train_job(obj: Object, sight: Sight) -> Plan:
    """Keep the one JobSet of a TrainJob; its trainer says how many nodes of what size."""
    plan = Plan()
    if going(obj):
        return plan
    trainer = obj["spec"].get("trainer") or {}
    nodes = int(trainer.get("numNodes", 1))
    container = {
        "name": "node",
        "image": trainer.get("image", "pytorch"),
        "resources": trainer.get("resourcesPerNode") or {},
    }
    inner = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-name": name(obj)}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    stopped = bool(obj["spec"].get("suspend"))
    spec = {
        "suspend": stopped,
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": inner}}],
    }
    wanted = [child(obj, "jobset.x-k8s.io/v1alpha2", "JobSet", name(obj), spec)]
    have = sight.view.children(uid(obj), "JobSet")
    _follow(plan, obj, sight, have, wanted, stopped=stopped)
    return plan
