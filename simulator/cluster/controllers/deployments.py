"""Deployment: one ReplicaSet for each template, rolled over as far as its strategy allows."""

from fractions import Fraction
from math import ceil, floor

from fallow.kube.objects import get_labels, get_path, get_uid, is_deleting, name
from simulator.cluster.controllers.child_changes import ChildChanges, ControllerView, build_child
from simulator.cluster.objects import Object, hash_template, set_conditions, sort_by_age
from simulator.cluster.store_writer import get_replicas

HASH = "pod-template-hash"


def reconcile_deployment(obj: Object, sight: ControllerView) -> ChildChanges:
    """Scale the ReplicaSet of the current template to the replicas, the older ones to zero."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    replicas_wanted, mark = get_replicas(obj), hash_template(obj["spec"].get("template"))
    sets = sort_by_age(sight.view.children(get_uid(obj), "ReplicaSet"))
    new = next((s for s in sets if get_labels(s).get(HASH) == mark), None)
    old = [s for s in sets if s is not new and (get_replicas(s) or _count(s, "replicas"))]
    if not old or get_path(obj, "spec", "strategy", "type") == "Recreate":
        has_pods = any(_count(s, "replicas") for s in old)
        target, keep = (0 if has_pods else replicas_wanted), 0
    else:
        surge, missing = _compute_bounds(obj, replicas_wanted)
        target = min(replicas_wanted, max(replicas_wanted + surge - sum(map(get_replicas, old)), 0))
        ready_new = _count(new, "readyReplicas") if new else 0
        keep = max(replicas_wanted - missing - ready_new, 0)
    if new is None:
        plan.make.append(_build_replica_set(obj, mark, target))
    elif get_replicas(new) != target:
        plan.patch.append((new, {"spec": {"replicas": target}}))
    for old_set in old:
        stays = min(get_replicas(old_set), keep)
        keep -= stays
        if get_replicas(old_set) != stays:
            plan.patch.append((old_set, {"spec": {"replicas": stays}}))
    _report(plan, obj, sight, sets, new)
    return plan


def _compute_bounds(obj: Object, replicas_wanted: int) -> tuple[int, int]:
    rolling = get_path(obj, "spec", "strategy", "rollingUpdate", default={})
    surge = compute_share(rolling.get("maxSurge", "25%"), replicas_wanted, up=True)
    missing = compute_share(rolling.get("maxUnavailable", "25%"), replicas_wanted, up=False)
    return surge, missing if surge or missing else 1


def compute_share(value: int | str, total: int, *, up: bool) -> int:
    """Return a number, or a percentage of the whole rounded up or down."""
    if isinstance(value, int):
        return value
    part = Fraction(value.rstrip("%")) / 100 * total
    return ceil(part) if up else floor(part)


def _count(obj: Object, field: str) -> int:
    return int(get_path(obj, "status", field, default=0))


def _build_replica_set(obj: Object, mark: str, count: int) -> Object:
    template = obj["spec"].get("template") or {}
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), HASH: mark}
    selector = obj["spec"].get("selector") or {}
    spec = {
        "replicas": count,
        "selector": {
            **selector,
            "matchLabels": {**(selector.get("matchLabels") or {}), HASH: mark},
        },
        "template": {**template, "metadata": {**meta, "labels": labels}},
    }
    new_set = build_child(obj, "apps/v1", "ReplicaSet", f"{name(obj)}-{mark}", spec)
    new_set["metadata"]["labels"] |= labels
    return new_set


def _report(
    plan: ChildChanges, obj: Object, sight: ControllerView, sets: list[Object], new: Object | None
) -> None:
    replicas_wanted, total = get_replicas(obj), sum(_count(s, "replicas") for s in sets)
    ready = sum(_count(s, "readyReplicas") for s in sets)
    failing = [
        c
        for s in sets
        for c in get_path(s, "status", "conditions", default=())
        if c["type"] == "ReplicaFailure"
    ]
    _, missing = _compute_bounds(obj, replicas_wanted)
    enough = ready >= replicas_wanted - missing
    condition = (
        ("Available", enough, "MinimumReplicasAvailable", "Deployment has minimum availability.")
        if enough
        else ("Available", False, "MinimumReplicasUnavailable", "Deployment lacks replicas.")
    )
    projected = {**obj, "status": {**(obj.get("status") or {})}}
    projected["status"]["conditions"] = [
        c
        for c in get_path(obj, "status", "conditions", default=())
        if c["type"] != "ReplicaFailure"
    ]
    plan.status = {
        "replicas": total,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(replicas_wanted - ready, 0),
        "updatedReplicas": _count(new, "replicas") if new else 0,
        "observedGeneration": obj["metadata"].get("generation", 1),
        "conditions": [*set_conditions(projected, sight.now_s, condition), *failing[:1]],
    }
