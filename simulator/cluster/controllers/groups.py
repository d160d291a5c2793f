"""Simulate LeaderWorkerSet: groups of a leader and its workers, each group its own set."""

from typing import Any

from fallow.kube.objects import get_path, get_uid, is_deleting, name
from simulator.cluster.controllers.child_changes import (
    ChildChanges,
    ControllerView,
    build_child,
    keep,
)
from simulator.cluster.objects import Object, is_live, is_ready

NAME, GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"


def reconcile_leader_worker_set(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep a StatefulSet of leaders, and for each leader's pod one of its workers.

    Scaling one of these sets is reverted: only the whole can be scaled.
    """
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    spec = obj["spec"].get("leaderWorkerTemplate") or {}
    count, size = int(obj["spec"].get("replicas", 1)), int(spec.get("size", 1))
    worker = spec.get("workerTemplate") or {}
    leaders = _set(obj, name(obj), spec.get("leaderTemplate") or worker, count)
    current = keep(plan, sight.view.children(get_uid(obj), "StatefulSet"), [leaders])
    pods = [p for s in current for p in sight.view.children(get_uid(s), "Pod") if is_live(p)]
    for pod in pods if size > 1 else ():
        labels = {NAME: name(obj), GROUP: name(pod).rpartition("-")[2]}
        below = _set(pod, name(pod), worker, size - 1, labels)
        keep(plan, sight.view.children(get_uid(pod), "StatefulSet"), [below])
    up = sum(is_ready(p) and _complete(p, sight, size) for p in pods)
    plan.status = {"replicas": len(pods), "readyReplicas": up}
    return plan


def _complete(leader: Object, sight: ControllerView, size: int) -> bool:
    sets = sight.view.children(get_uid(leader), "StatefulSet")
    return sum(int(get_path(s, "status", "readyReplicas", default=0)) for s in sets) >= size - 1


def _set(
    owner: Object, set_name: str, template: Any, count: int, labels: dict[str, str] | None = None
) -> Object:
    labels = labels or {NAME: name(owner)}
    meta = template.get("metadata") or {}
    words = {**(meta.get("labels") or {}), **labels}
    spec = {
        "replicas": count,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "serviceName": name(owner),
        "template": {**template, "metadata": {**meta, "labels": words}},
    }
    return build_child(owner, "apps/v1", "StatefulSet", set_name, spec)
