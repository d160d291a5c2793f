"""Simulate Volcano's Job: tasks of pods, aborted and resumed by Commands; a resume is a retry."""

from fallow.kube.objects import get_namespace, get_path, get_uid, is_deleting, name
from simulator.cluster.controllers.child_changes import ChildChanges, ControllerView, build_pod
from simulator.cluster.objects import Object, is_live, is_ready

JOB = "Job.batch.volcano.sh"
MAX_RETRY = 3
OVER = {"Completed", "Failed", "Terminated"}


def reconcile_volcano_job(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the pods of each task; none while it is aborted. Commands are deleted after reading."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    phase = str(get_path(obj, "status", "state", "phase", default="Pending"))
    retries = int(get_path(obj, "status", "retryCount", default=0))
    pods = {name(p): p for p in sight.view.children(get_uid(obj), "Pod")}
    for command in sight.view.of("Command", get_namespace(obj)):
        if get_path(command, "target", "uid") != get_uid(obj) or is_deleting(command):
            continue
        plan.drop.append(command)
        if command.get("action") == "AbortJob" and phase not in OVER:
            phase = "Aborted"
        elif command.get("action") == "ResumeJob" and phase == "Aborted":
            retries += 1
            limit = int(obj["spec"].get("maxRetry", MAX_RETRY))
            phase = "Failed" if retries >= limit else "Restarting"
    if phase in {*OVER, "Aborted"}:
        plan.drop += [p for p in pods.values() if is_live(p)]
    else:
        phase = _fill(plan, obj, pods, phase)
    plan.status = {"state": {"phase": phase}, "retryCount": retries}
    return plan


def _fill(plan: ChildChanges, obj: Object, pods: dict[str, Object], phase: str) -> str:
    """Create missing pods, and return the phase of the pods."""
    wanted = {
        f"{name(obj)}-{task['name']}-{place}": task
        for task in obj["spec"].get("tasks") or ()
        for place in range(int(task.get("replicas", 1)))
    }
    labels = {"volcano.sh/job-name": name(obj), "volcano.sh/job-namespace": get_namespace(obj)}
    for pod_name, task in wanted.items():
        if pod_name not in pods:
            plan.make.append(build_pod(obj, task.get("template") or {}, pod_name, labels))
    existing = [pods[n] for n in wanted if n in pods]
    if wanted and len(existing) == len(wanted):
        if all(get_path(p, "status", "phase") == "Succeeded" for p in existing):
            return "Completed"
        if all(map(is_ready, existing)):
            return "Running"
    return phase if phase == "Restarting" else "Pending"
