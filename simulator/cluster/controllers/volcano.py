"""Volcano's Job: tasks of pods, aborted and resumed by Commands; every resume uses up a retry."""

from simulator.cluster.controllers.plan import Plan, Sight, pod
from simulator.cluster.objects import Object, deep, going, live, name, namespace, ready, uid

JOB = "Job.batch.volcano.sh"
MAX_RETRY = 3
OVER = {"Completed", "Failed", "Terminated"}


def volcano_job(obj: Object, sight: Sight) -> Plan:
    """Keep the pods of each task; none while it is aborted. Commands are taken away once read."""
    plan = Plan()
    if going(obj):
        return plan
    phase = str(deep(obj, "status", "state", "phase", default="Pending"))
    retries = int(deep(obj, "status", "retryCount", default=0))
    pods = {name(p): p for p in sight.view.children(uid(obj), "Pod")}
    for command in sight.view.of("Command", namespace(obj)):
        if deep(command, "target", "uid") != uid(obj) or going(command):
            continue
        plan.drop.append(command)
        if command.get("action") == "AbortJob" and phase not in OVER:
            phase = "Aborted"
        elif command.get("action") == "ResumeJob" and phase == "Aborted":
            retries += 1
            limit = int(obj["spec"].get("maxRetry", MAX_RETRY))
            phase = "Failed" if retries >= limit else "Restarting"
    if phase in {*OVER, "Aborted"}:
        plan.drop += [p for p in pods.values() if live(p)]
    else:
        phase = _fill(plan, obj, pods, phase)
    plan.status = {"state": {"phase": phase}, "retryCount": retries}
    return plan


def _fill(plan: Plan, obj: Object, pods: dict[str, Object], phase: str) -> str:
    """Make what is missing, and return the phase that the pods are in."""
    wanted = {
        f"{name(obj)}-{task['name']}-{place}": task
        for task in obj["spec"].get("tasks") or ()
        for place in range(int(task.get("replicas", 1)))
    }
    labels = {"volcano.sh/job-name": name(obj), "volcano.sh/job-namespace": namespace(obj)}
    for called, task in wanted.items():
        if called not in pods:
            plan.make.append(pod(obj, task.get("template") or {}, called, labels))
    have = [pods[n] for n in wanted if n in pods]
    if wanted and len(have) == len(wanted):
        if all(deep(p, "status", "phase") == "Succeeded" for p in have):
            return "Completed"
        if all(map(ready, have)):
            return "Running"
    return phase if phase == "Restarting" else "Pending"
