"""Admit objects: check namespaces, priority classes and quotas, and label bound pods."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol

from fallow.kube.quantities import require_quantity
from simulator.kube import quota
from simulator.kube.kinds import ApiKind
from simulator.kube.status import build_forbidden, build_not_found

Object = dict[str, Any]

TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class StoredObjects(Protocol):
    """What admission needs of the store (`simulator.kube.store`)."""

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return an object."""

    def list(self, kind: str, namespace: str | None = None) -> Sequence[Object]:
        """Return the objects of a kind."""

    def patch(
        self,
        kind: str,
        name: str,
        namespace: str,
        body: Object,
        *,
        subresource: Literal["", "status"] = "",
    ) -> Object:
        """Change an object."""


def check_namespace(store: StoredObjects, kind: ApiKind, name: str, space: str) -> None:
    """Refuse an object whose namespace does not exist or is being deleted.

    Raises:
        ApiError: 404 there is no such namespace, 403 it is terminating.
    """
    if not kind.namespaced:
        return
    space_object = store.get("Namespace", space)
    if space_object is None:
        raise build_not_found("", "namespaces", space)
    if "deletionTimestamp" in space_object["metadata"]:
        why = f"unable to create new content in namespace {space} because it is being terminated"
        raise build_forbidden(kind.group, kind.plural, name, why)


def admit(store: StoredObjects, kind: ApiKind, item: Object) -> Object:
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
        raise build_forbidden("", "pods", item["metadata"]["name"], why)
    return {**item, "spec": {**spec, "priorityClassName": wanted, "priority": priority}}


def check_quota(store: StoredObjects, kind: ApiKind, item: Object, *, dry_run: bool) -> None:
    """Refuse an object that exceeds a ResourceQuota, else count it there.

    A quota without a status enforces nothing yet.

    Raises:
        ApiError: 403 a quota is exceeded, or requires amounts that the object does not have.
    """
    meta = item["metadata"]
    if not kind.namespaced or kind.key == "ResourceQuota":
        return
    updates: list[tuple[str, Mapping[str, str]]] = []
    for quota_object in store.list("ResourceQuota", meta["namespace"]):
        hard = (quota_object.get("status") or {}).get("hard") or {}
        if hard and quota.is_in_scope(quota_object["spec"], item):
            usage_now = _charge(quota_object, hard, kind, item)
            if usage_now:
                updates.append((quota_object["metadata"]["name"], usage_now))
    if dry_run:
        return
    for name, used_now in updates:
        body = {"status": {"used": used_now}}
        store.patch("ResourceQuota", name, meta["namespace"], body, subresource="status")


def _charge(
    quota_object: Object, hard: Mapping[str, str], kind: ApiKind, item: Object
) -> dict[str, str]:
    """Return the usage of one quota with the object's own added; empty = it uses none of it.

    Raises:
        ApiError: 403 the quota is exceeded, or wants amounts that the object does not say.
    """
    name = quota_object["metadata"]["name"]
    object_name = item["metadata"]["name"]
    usage = quota.count_usage(kind, item)
    if kind.key == "Pod" and (missing := quota.list_missing_amounts(item["spec"], hard)):
        why = f"failed quota: {name}: must specify {','.join(missing)}"
        raise build_forbidden(kind.group, kind.plural, object_name, why)
    usage = {k: v for k, v in usage.items() if k in hard and v}
    used_amounts = quota_object["status"].get("used") or {}
    used = {k: require_quantity(used_amounts.get(k, "0")) for k in usage}
    over = sorted(k for k in usage if used[k] + usage[k] > require_quantity(hard[k]))
    if over:
        parts = (
            ("requested", {k: quota.format_amount(usage[k]) for k in over}),
            ("used", {k: quota.format_amount(used[k]) for k in over}),
            ("limited", {k: hard[k] for k in over}),
        )
        message = ", ".join(f"{label}: {_join_amounts(amounts)}" for label, amounts in parts)
        why = f"exceeded quota: {name}, {message}"
        raise build_forbidden(kind.group, kind.plural, object_name, why)
    return _sum(used, usage)


def _join_amounts(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{k}={v}" for k, v in amounts.items())


def _sum(used: Mapping[str, Fraction], requested: Mapping[str, Fraction]) -> dict[str, str]:
    return {k: quota.format_amount(used[k] + v) for k, v in requested.items()}


def label_bound_pod(store: StoredObjects, pod: Object, node: str, now: str) -> Object:
    """Return a pod that has a node, with the node's zone and region as labels."""
    node_object = store.get("Node", node)
    words = (node_object or {"metadata": {}})["metadata"].get("labels") or {}
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
