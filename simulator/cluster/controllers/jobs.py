"""Simulate Job: pods that run to completion; and JobSet and TrainJob, which consist of Jobs."""

from fallow.kube.objects import get_path, get_uid, has_condition, has_ended, is_deleting, name
from simulator.cluster.controllers.child_changes import (
    ChildChanges,
    ControllerView,
    build_child,
    build_pod,
    keep,
)
from simulator.cluster.objects import (
    Object,
    find_condition,
    is_live,
    is_ready,
    set_conditions,
    sort_by_age,
)
from simulator.kube.server_metadata import format_time, parse_time

INDEX = "batch.kubernetes.io/job-completion-index"


def reconcile_job(obj: Object, sight: ControllerView) -> ChildChanges:
    """Run pods until enough succeeded or too many failed; none while it is suspended."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    spec, pods, now = (
        obj["spec"],
        sort_by_age(sight.view.children(get_uid(obj), "Pod")),
        sight.now_s,
    )
    succeeded, failed = _count_pods(obj, pods, "Succeeded"), _count_pods(obj, pods, "Failed")
    active = [p for p in pods if is_live(p)]
    has_failed_often = failed > spec.get("backoffLimit", 6)
    plan.status = {
        "succeeded": succeeded,
        "failed": failed,
        "active": len(active),
        "ready": sum(map(is_ready, active)),
        "terminating": sum(is_deleting(p) and not has_ended(p) for p in pods),
    }
    if has_condition(obj, "Complete") or has_condition(obj, "Failed"):
        plan.drop = active
        _retire(plan, obj, sight)
    elif _is_complete(spec, succeeded, active):
        plan.drop = active
        plan.status |= _complete(plan, obj, now)
    elif has_failed_often or _is_late(plan, obj, sight):
        plan.drop = active
        plan.status |= _fail(plan, obj, now, late=not has_failed_often)
    elif spec.get("suspend"):
        plan.drop = active
        plan.status |= _suspend(plan, obj, now)
    else:
        plan.status |= _start(obj, now)
        _fill(plan, obj, pods, active, succeeded)
    return plan


def _is_complete(spec: Object, succeeded: int, active: list[Object]) -> bool:
    completions = spec.get("completions")
    if completions is None:
        return bool(succeeded and not active)
    return bool(succeeded >= completions)


def _complete(plan: ChildChanges, obj: Object, now_s: float) -> Object:
    plan.events.append(("Normal", "Completed", "Job completed"))
    why = ("CompletionsReached", "Reached expected number of succeeded pods")
    return {
        "completionTime": format_time(now_s),
        "conditions": set_conditions(obj, now_s, ("Complete", True, *why)),
    }


def _fail(plan: ChildChanges, obj: Object, now_s: float, *, late: bool) -> Object:
    why = (
        ("DeadlineExceeded", "Job was active longer than specified deadline")
        if late
        else ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    )
    plan.events.append(("Warning", *why))
    return {"conditions": set_conditions(obj, now_s, ("Failed", True, *why))}


def _suspend(plan: ChildChanges, obj: Object, now_s: float) -> Object:
    if has_condition(obj, "Suspended"):
        return {"startTime": None}
    plan.events.append(("Normal", "Suspended", "Job suspended"))
    condition = ("Suspended", True, "JobSuspended", "Job suspended")
    return {"startTime": None, "conditions": set_conditions(obj, now_s, condition)}


def _start(obj: Object, now_s: float) -> Object:
    """Return the status of a running job: since now if it is new or was suspended."""
    suspended = has_condition(obj, "Suspended")
    status: Object = {}
    if suspended:
        condition = ("Suspended", False, "JobResumed", "Job resumed")
        status["conditions"] = set_conditions(obj, now_s, condition)
    if suspended or not get_path(obj, "status", "startTime"):
        status["startTime"] = format_time(now_s)
    return status


def _count_pods(obj: Object, pods: list[Object], phase: str) -> int:
    """Return how many pods ended in this way, deleted ones included."""
    now = sum(bool(get_path(p, "status", "phase") == phase) for p in pods)
    return max(now, int(get_path(obj, "status", phase.lower(), default=0)))


def _is_late(plan: ChildChanges, obj: Object, sight: ControllerView) -> bool:
    limit = obj["spec"].get("activeDeadlineSeconds")
    began = get_path(obj, "status", "startTime")
    if limit is None or began is None or obj["spec"].get("suspend"):
        return False
    plan.at_s = parse_time(began) + limit
    return sight.now_s >= plan.at_s


def _retire(plan: ChildChanges, obj: Object, sight: ControllerView) -> None:
    """Delete a finished job after its time to live."""
    ttl = obj["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return
    ended = find_condition(obj, "Complete") or find_condition(obj, "Failed") or {}
    since = ended.get("lastTransitionTime")
    if not since:  # the server accepts such a condition; then the end of the job is not known
        return
    plan.at_s = parse_time(since) + ttl
    if sight.now_s >= plan.at_s:
        plan.drop = [*plan.drop, obj]
        plan.at_s = None


def _fill(
    plan: ChildChanges, obj: Object, pods: list[Object], active: list[Object], succeeded: int
) -> None:
    spec = obj["spec"]
    completions, wide = spec.get("completions"), int(spec.get("parallelism", 1))
    room = wide if completions is None else min(wide, completions - succeeded)
    if completions is None and succeeded:
        room = len(active)  # a work queue that has begun to end starts no more pods
    leaving = sum(is_deleting(p) and not has_ended(p) for p in pods)
    labels = {
        "batch.kubernetes.io/job-name": name(obj),
        "batch.kubernetes.io/controller-uid": get_uid(obj),
        "job-name": name(obj),
    }
    plan.drop = active[room:] if room < len(active) else []
    template = spec.get("template") or {}
    indexed = spec.get("completionMode") == "Indexed"
    used_indexes = {
        int(p["metadata"]["annotations"][INDEX])
        for p in pods
        if indexed and get_path(p, "status", "phase") != "Failed"
    }
    free = iter(i for i in range((completions or 0) + len(pods) + 1) if i not in used_indexes)
    for _ in range(room - len(active) - leaving):
        number = next(free) if indexed else None
        head = name(obj) if number is None else f"{name(obj)}-{number}"
        new_pod = build_pod(obj, template, f"{head}-", labels, generate=True)
        if number is not None:
            notes = {**(new_pod["metadata"].get("annotations") or {}), INDEX: str(number)}
            new_pod["metadata"]["annotations"] = notes
            new_pod["metadata"]["labels"][INDEX] = str(number)
        plan.make.append(new_pod)


def find_end(obj: Object) -> str:
    """Return Complete, Failed or nothing: how a job ended."""
    return next((word for word in ("Complete", "Failed") if has_condition(obj, word)), "")


def reconcile_job_set(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the jobs of each replicated job, all suspended while the set is."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    spec, have = obj["spec"], sight.view.children(get_uid(obj), "Job")
    stopped = bool(spec.get("suspend"))
    wanted = []
    for group in spec.get("replicatedJobs") or ():
        for index in range(int(group.get("replicas", 1))):
            child_name = f"{name(obj)}-{group['name']}-{index}"
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name(obj),
                "jobset.sigs.k8s.io/replicatedjob-name": group["name"],
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            inner = get_path(group, "template", "spec", default={})
            new_job = build_child(
                obj, "batch/v1", "Job", child_name, _add_labels(inner, labels, suspend=stopped)
            )
            new_job["metadata"]["labels"] |= labels
            wanted.append(new_job)
    _follow(plan, obj, sight, have, wanted, stopped=stopped)
    return plan


def _add_labels(spec: Object, labels: dict[str, str], *, suspend: bool) -> Object:
    template = spec.get("template") or {}
    meta = template.get("metadata") or {}
    meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    return {**spec, "suspend": suspend, "template": {**template, "metadata": meta}}


def _follow(
    plan: ChildChanges,
    obj: Object,
    sight: ControllerView,
    have: list[Object],
    wanted: list[Object],
    *,
    stopped: bool,
) -> None:
    """Keep the children, and derive the status of the whole from theirs."""
    if (
        has_condition(obj, "Completed")
        or has_condition(obj, "Complete")
        or has_condition(obj, "Failed")
    ):
        return
    current = keep(plan, have, wanted)
    for job_object, patch_body in plan.patch:
        if find_end(job_object):
            patch_body["spec"].pop("suspend", None)
    for _, patch_body in plan.patch:  # a job's template is immutable
        patch_body["spec"] = {
            k: v for k, v in patch_body["spec"].items() if k in {"suspend", "parallelism"}
        }
    ends = [find_end(o) or _set_ended(o) for o in current]
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
    elif ends and len(current) == len(wanted) and all(ends):
        finished = "Complete" if obj["kind"] == "TrainJob" else "Completed"
        changes.append((finished, True, "AllJobsCompleted", "all jobs completed"))
    plan.status = {"conditions": set_conditions(obj, sight.now_s, *changes)}


def _set_ended(obj: Object) -> str:
    return "Complete" if has_condition(obj, "Completed") else ""


def reconcile_train_job(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the one JobSet of a TrainJob; its trainer has the number and size of the nodes."""
    plan = ChildChanges()
    if is_deleting(obj):
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
    wanted = [build_child(obj, "jobset.x-k8s.io/v1alpha2", "JobSet", name(obj), spec)]
    have = sight.view.children(get_uid(obj), "JobSet")
    _follow(plan, obj, sight, have, wanted, stopped=stopped)
    return plan
