"""Deployment: one ReplicaSet for each template, rolled over as far as its strategy allows."""

from fractions import Fraction
from math import ceil, floor

from simulator.cluster.clerk import replicas
from simulator.cluster.controllers.plan import Plan, Sight, child
from simulator.cluster.objects import (
    Object,
    conditions,
    deep,
    going,
    name,
    oldest,
    template_hash,
    uid,
    words,
)

HASH = "pod-template-hash"


def deployment(obj: Object, sight: Sight) -> Plan:
    """Bring the ReplicaSet of the present template to the replicas, the older ones to none."""
    plan = Plan()
    if going(obj):
        return plan
    wanted, mark = replicas(obj), template_hash(obj["spec"].get("template"))
    sets = oldest(sight.view.children(uid(obj), "ReplicaSet"))
    new = next((s for s in sets if words(s, "labels").get(HASH) == mark), None)
    old = [s for s in sets if s is not new and (replicas(s) or _count(s, "replicas"))]
    if not old or deep(obj, "spec", "strategy", "type") == "Recreate":
        held = any(_count(s, "replicas") for s in old)
        target, keep = (0 if held else wanted), 0
    else:
        surge, missing = _bounds(obj, wanted)
        target = min(wanted, max(wanted + surge - sum(map(replicas, old)), 0))
        ready_new = _count(new, "readyReplicas") if new else 0
        keep = max(wanted - missing - ready_new, 0)
    if new is None:
        plan.make.append(_replica_set(obj, mark, target))
    elif replicas(new) != target:
        plan.patch.append((new, {"spec": {"replicas": target}}))
    for there in old:
        stays = min(replicas(there), keep)
        keep -= stays
        if replicas(there) != stays:
            plan.patch.append((there, {"spec": {"replicas": stays}}))
    _report(plan, obj, sight, sets, new)
    return plan


def _bounds(obj: Object, wanted: int) -> tuple[int, int]:
    rolling = deep(obj, "spec", "strategy", "rollingUpdate", default={})
    surge = share(rolling.get("maxSurge", "25%"), wanted, up=True)
    missing = share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return surge, missing if surge or missing else 1


def share(given: int | str, whole: int, *, up: bool) -> int:
    """Return a number, or a percentage of the whole rounded up or down."""
    if isinstance(given, int):
        return given
    part = Fraction(given.rstrip("%")) / 100 * whole
    return ceil(part) if up else floor(part)


def _count(obj: Object, field: str) -> int:
    return int(deep(obj, "status", field, default=0))


def _replica_set(obj: Object, mark: str, count: int) -> Object:
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
    made = child(obj, "apps/v1", "ReplicaSet", f"{name(obj)}-{mark}", spec)
    made["metadata"]["labels"] |= labels
    return made


def _report(plan: Plan, obj: Object, sight: Sight, sets: list[Object], new: Object | None) -> None:
    wanted, total = replicas(obj), sum(_count(s, "replicas") for s in sets)
    ready = sum(_count(s, "readyReplicas") for s in sets)
    failing = [
        c
        for s in sets
        for c in deep(s, "status", "conditions", default=())
        if c["type"] == "ReplicaFailure"
    ]
    _, missing = _bounds(obj, wanted)
    enough = ready >= wanted - missing
    said = (
        ("Available", enough, "MinimumReplicasAvailable", "Deployment has minimum availability.")
        if enough
        else ("Available", False, "MinimumReplicasUnavailable", "Deployment lacks replicas.")
    )
    kept = {**obj, "status": {**(obj.get("status") or {})}}
    kept["status"]["conditions"] = [
        c for c in deep(obj, "status", "conditions", default=()) if c["type"] != "ReplicaFailure"
    ]
    plan.status = {
        "replicas": total,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(wanted - ready, 0),
        "updatedReplicas": _count(new, "replicas") if new else 0,
        "observedGeneration": obj["metadata"].get("generation", 1),
        "conditions": [*conditions(kept, sight.now_s, said), *failing[:1]],
    }
