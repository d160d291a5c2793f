"""Admission: namespaces exist, priority classes resolve, quotas refuse, bound pods get labels."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from simulator.kube import quota
from simulator.kube.amounts import amount, written
from simulator.kube.kinds import Kind
from simulator.kube.status import forbidden, not_found

if TYPE_CHECKING:
    from simulator.kube.store import Store

Object = dict[str, Any]

TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def namespace(store: "Store", kind: Kind, name: str, space: str) -> None:
    """Refuse what would lie in no namespace, or in one that is being deleted.

    Raises:
        ApiError: 404 there is no such namespace, 403 it is terminating.
    """
    if not kind.namespaced:
        return
    found = store.get("Namespace", space)
    if found is None:
        raise not_found("", "namespaces", space)
    if "deletionTimestamp" in found["metadata"]:
        why = f"unable to create new content in namespace {space} because it is being terminated"
        raise forbidden(kind.group, kind.plural, name, why)


def admitted(store: "Store", kind: Kind, item: Object) -> Object:
    """Return a new object as admission changes it.

    Raises:
        ApiError: 403 there is no such priority class.
    """
    if kind.key != "Pod":
        return item
    spec = item["spec"]
    wanted = spec.get("priorityClassName")
    classes = {c["metadata"]["name"]: c for c in store.list("PriorityClass")}
    if not wanted:
        default = next((c for c in classes.values() if c.get("globalDefault")), None)
        if default is None:
            return {**item, "spec": {"priority": 0, **spec}}
        wanted = default["metadata"]["name"]
    if wanted in classes:
        priority = classes[wanted]["value"]
    elif wanted in SYSTEM_PRIORITIES:
        priority = SYSTEM_PRIORITIES[wanted]
    else:
        why = f"no PriorityClass with name {wanted} was found"
        raise forbidden("", "pods", item["metadata"]["name"], why)
    return {**item, "spec": {**spec, "priorityClassName": wanted, "priority": priority}}


def within_quota(store: "Store", kind: Kind, item: Object, *, dry_run: bool) -> None:
    """Refuse what a ResourceQuota does not leave room for, else book it there.

    A quota whose status nobody has filled yet enforces nothing.

    Raises:
        ApiError: 403 a quota is exceeded, or wants amounts that the object does not say.
    """
    meta = item["metadata"]
    if not kind.namespaced or kind.key == "ResourceQuota":
        return
    booked: list[tuple[str, Mapping[str, str]]] = []
    for found in store.list("ResourceQuota", meta["namespace"]):
        name, status = found["metadata"]["name"], found.get("status") or {}
        hard = status.get("hard") or {}
        if not hard or not quota.scoped(found["spec"], item):
            continue
        asked = quota.usage(kind, item)
        if kind.key == "Pod" and (missing := quota.unsaid(item["spec"], hard)):
            why = f"failed quota: {name}: must specify {','.join(missing)}"
            raise forbidden(kind.group, kind.plural, meta["name"], why)
        asked = {k: v for k, v in asked.items() if k in hard and v}
        used = {k: amount((status.get("used") or {}).get(k, "0")) for k in asked}
        over = sorted(k for k in asked if used[k] + asked[k] > amount(hard[k]))
        if over:
            parts = (
                ("requested", {k: written(asked[k]) for k in over}),
                ("used", {k: written(used[k]) for k in over}),
                ("limited", {k: hard[k] for k in over}),
            )
            said = ", ".join(f"{word}: {_joined(amounts)}" for word, amounts in parts)
            why = f"exceeded quota: {name}, {said}"
            raise forbidden(kind.group, kind.plural, meta["name"], why)
        if asked:
            booked.append((name, _sum(used, asked)))
    if dry_run:
        return
    for name, used_now in booked:
        body = {"status": {"used": used_now}}
        store.patch("ResourceQuota", name, meta["namespace"], body, subresource="status")


def _joined(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{k}={v}" for k, v in amounts.items())


def _sum(used: Mapping[str, Fraction], asked: Mapping[str, Fraction]) -> dict[str, str]:
    return {k: written(used[k] + v) for k, v in asked.items()}


def placed(store: "Store", pod: Object, node: str, now: str) -> Object:
    """Return a pod that has been given a node, with the node's zone and region as labels."""
    found = store.get("Node", node)
    words = (found or {"metadata": {}})["metadata"].get("labels") or {}
    labels = {k: words[k] for k in TOPOLOGY if k in words}
    meta, status = pod["metadata"], pod.get("status") or {}
    if labels:
        meta = {**meta, "labels": {**labels, **(meta.get("labels") or {})}}
    if "generation" in meta:
        meta = {**meta, "generation": meta["generation"] + 1}
    others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    return {
        **pod,
        "metadata": meta,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, condition]},
    }
