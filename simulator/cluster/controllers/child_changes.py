"""Define the input and the output of a controller."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from fallow.kube.objects import get_labels, get_namespace, is_deleting, name
from simulator.cluster.objects import Object, build_owner_references, get_kind
from simulator.cluster.store_writer import is_covered
from simulator.cluster.view import View

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAM_LABELS = ("team", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
"""Labels of an object that its pods inherit, as sites configure it."""


class ChildChanges(msgspec.Struct):
    """The changes that one object and its children need."""

    make: list[Object] = []
    patch: list[tuple[Object, Object]] = []
    drop: list[Object] = []
    status: Object | None = None
    at_s: float | None = None
    """When to check the object again."""
    events: list[tuple[str, str, str]] = []
    """Type, reason, message."""


class ControllerView(msgspec.Struct):
    """The objects that a controller may read."""

    view: View
    now_s: float
    refused: Callable[[Object], str | None]
    """Why the last child of an object was not created."""


Controller = Callable[[Object, ControllerView], ChildChanges]


def build_pod(
    owner: Object,
    template: Any,
    called_so: str,
    labels: dict[str, str],
    *,
    generate: bool = False,
    **spec: Any,
) -> Object:
    """Return a pod of a template: the owner's, named, labelled, tolerating the GPU taint.

    The toleration is what the ExtendedResourceToleration admission plug-in adds.
    """
    meta = template.get("metadata") or {}
    body = {**(template.get("spec") or {}), **spec}
    if _is_requesting_gpu(body):
        body["tolerations"] = [*(body.get("tolerations") or ()), GPU_TOLERATION]
    inherited = {k: v for k, v in get_labels(owner).items() if k in TEAM_LABELS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            ("generateName" if generate else "name"): called_so,
            "namespace": get_namespace(owner),
            "labels": {**inherited, **(meta.get("labels") or {}), **labels},
            **({"annotations": dict(meta["annotations"])} if meta.get("annotations") else {}),
            "ownerReferences": build_owner_references(owner),
        },
        "spec": body,
    }


def _is_requesting_gpu(spec: Any) -> bool:
    for container in spec.get("containers") or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        requests = (container.get("resources") or {}).get("requests") or {}
        if any(key.startswith("nvidia.com/") for key in (*limits, *requests)):
            return True
    return False


def build_child(owner: Object, api_version: str, kind: str, called_so: str, spec: Object) -> Object:
    """Return an object that the owner controls, with the owner's inherited labels."""
    inherited = {k: v for k, v in get_labels(owner).items() if k == "team"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": called_so,
            "namespace": get_namespace(owner),
            "labels": inherited,
            "ownerReferences": build_owner_references(owner),
        },
        "spec": spec,
    }


def keep(plan: ChildChanges, existing: Sequence[Object], bodies: Iterable[Object]) -> list[Object]:
    """Plan that exactly these children exist, with the given parts of their spec and labels.

    Returns the children that exist already and are wanted.
    """
    by_key = {(get_kind(o), name(o)): o for o in existing}
    remaining = []
    for body in bodies:
        current = by_key.pop((get_kind(body), name(body)), None)
        if current is None:
            plan.make.append(body)
            continue
        remaining.append(current)
        desired = {"spec": body["spec"], "metadata": {"labels": body["metadata"]["labels"]}}
        if not is_deleting(current) and not is_covered(desired, current):
            plan.patch.append((current, desired))
    plan.drop += [o for o in by_key.values() if not is_deleting(o)]
    return remaining
