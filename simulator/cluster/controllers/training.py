"""Simulate PyTorchJob and similar kinds (`training.csv`): replicas by role, named by index."""

from functools import cache
from typing import Any

from fallow.kube.objects import (
    get_labels,
    get_path,
    get_uid,
    has_condition,
    has_ended,
    is_deleting,
    name,
)
from fallow.resources import read_table
from simulator.cluster.controllers.child_changes import ChildChanges, ControllerView, build_pod
from simulator.cluster.objects import Object, is_live, is_ready, set_conditions
from simulator.kube.server_metadata import format_time

ROLE, JOB = "training.kubeflow.org/replica-type", "training.kubeflow.org/job-name"


@cache
def read_kinds() -> dict[str, dict[str, str]]:
    """Return the rows of `training.csv` by kind."""
    rows = read_table("simulator.cluster.controllers", "training.csv")
    return {row["kind"]: row for row in rows}


def reconcile_training_job(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep a pod for each index of each role until the chief ends; none while suspended."""
    plan = ChildChanges()
    if is_deleting(obj) or has_condition(obj, "Succeeded") or has_condition(obj, "Failed"):
        return plan
    row = read_kinds()[obj["kind"]]
    roles: dict[str, Any] = obj["spec"].get(row["specs"]) or {}
    pods = {name(p): p for p in sight.view.children(get_uid(obj), "Pod")}
    wrong = sum(get_path(p, "status", "phase") == "Failed" for p in pods.values())
    if get_path(obj, "spec", "runPolicy", "suspend"):
        plan.drop = [p for p in pods.values() if not is_deleting(p)]
        return _report(plan, obj, sight, pods, ("Suspended", True, "JobSuspended", "suspended"))
    chief = row["chief"] if row["chief"] in roles else next(iter(roles), "")
    is_done = _is_done(pods, roles, chief)
    if is_done:
        return _report(plan, obj, sight, pods, ("Succeeded", True, "JobSucceeded", "completed"))
    tried = wrong + int(get_path(obj, "status", "failures", default=0))
    if tried > int(get_path(obj, "spec", "runPolicy", "backoffLimit", default=3)):
        plan.drop = [p for p in pods.values() if is_live(p)]
        return _report(plan, obj, sight, pods, ("Failed", True, "JobFailed", "too many failures"))
    _fill(plan, obj, roles, pods)
    running = [p for p in pods.values() if is_ready(p)]
    changes = [("Created", True, "JobCreated", "created")]
    if has_condition(obj, "Suspended"):
        changes.append(("Suspended", False, "JobResumed", "resumed"))
    if pods and len(running) == len(pods):
        changes.append(("Running", True, "JobRunning", "running"))
    return _report(plan, obj, sight, pods, *changes, failures=tried)


def _fill(plan: ChildChanges, obj: Object, roles: dict[str, Any], pods: dict[str, Object]) -> None:
    """Create missing pods, delete failed pods (to be created again) and surplus pods."""
    places = {
        _name_pod(obj, role, place): (role, place, spec)
        for role, spec in roles.items()
        for place in range(int(spec.get("replicas", 1)))
    }
    for pod_name, (role, place, spec) in places.items():
        pod = pods.get(pod_name)
        if pod is None:
            plan.make.append(_build_member(obj, role, place, spec))
        elif get_path(pod, "status", "phase") == "Failed" and not is_deleting(pod):
            plan.drop.append(pod)
    plan.drop += [p for n, p in pods.items() if n not in places and not is_deleting(p)]


def _name_pod(obj: Object, role: str, place: int) -> str:
    return f"{name(obj)}-{role.lower()}-{place}"


def _build_member(obj: Object, role: str, place: int, spec: Any) -> Object:
    labels = {
        JOB: name(obj),
        ROLE: role.lower(),
        "training.kubeflow.org/replica-index": str(place),
        "training.kubeflow.org/operator-name": f"{obj['kind'].lower()}-controller",
    }
    policy = spec.get("restartPolicy", "OnFailure")
    policy = "Never" if policy == "ExitCode" else policy
    template = spec.get("template") or {}
    return build_pod(obj, template, _name_pod(obj, role, place), labels, restartPolicy=policy)


def _is_done(pods: dict[str, Object], roles: dict[str, Any], chief: str) -> bool:
    """Return whether the chief succeeded; without a chief role, all pods of the first role."""
    members = [p for p in pods.values() if get_labels(p).get(ROLE) == chief.lower()]
    ended = sum(get_path(p, "status", "phase") == "Succeeded" for p in members)
    return bool(chief) and ended >= int(roles[chief].get("replicas", 1)) > 0


def _report(
    plan: ChildChanges,
    obj: Object,
    sight: ControllerView,
    pods: dict[str, Object],
    *changes: tuple[str, bool, str, str],
    failures: int | None = None,
) -> ChildChanges:
    now = sight.now_s
    first = changes[0]
    if first[0] != "Created":  # its current condition is not an earlier one
        changes = (*changes, ("Running", False, first[2], first[3]))
    if first[0] in {"Succeeded", "Failed", "Suspended"} and not has_condition(obj, first[0]):
        kind = "Warning" if first[0] == "Failed" else "Normal"
        plan.events.append((kind, first[2], f"{obj['kind']} {name(obj)} is {first[3]}."))
    counts: dict[str, Any] = {}
    for role in obj["spec"].get(read_kinds()[obj["kind"]]["specs"]) or {}:
        own = [p for p in pods.values() if get_labels(p).get(ROLE) == role.lower()]
        phases = [get_path(p, "status", "phase") for p in own]
        counts[role] = {
            "active": sum(not has_ended(p) and not is_deleting(p) for p in own),
            "succeeded": phases.count("Succeeded"),
            "failed": phases.count("Failed"),
            "selector": f"{JOB}={name(obj)},{ROLE}={role.lower()}",
        }
    plan.status = {"conditions": set_conditions(obj, now, *changes), "replicaStatuses": counts}
    if first[0] == "Suspended":
        plan.status["startTime"] = None
    elif not get_path(obj, "status", "startTime"):
        plan.status["startTime"] = format_time(now)
    if first[0] in {"Succeeded", "Failed"}:
        plan.status["completionTime"] = format_time(now)
    if failures is not None:
        plan.status["failures"] = failures
    return plan
