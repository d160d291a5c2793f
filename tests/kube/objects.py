"""Kubernetes objects as the API prints them, with only what a test is about."""

import json
from typing import Any

import msgspec

from collectors.kube.shapes import Node, Pod

Object = dict[str, Any]


def node(
    name: str = "n0",
    *,
    capacity: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """Return a ready node."""
    amounts = {"cpu": "96", "memory": "1Ti", **(capacity or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": {**amounts, "cpu": "95500m"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str = "p0",
    *,
    namespace: str = "ml",
    limits: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    node: str = "n0",
    phase: str = "Running",
    **spec: Any,
) -> Object:
    """Return a running pod of one container; `owner` is `(apiVersion, Kind/name)`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"pod-{name}",
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": refs(owner),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"limits": limits or {}}}],
            **spec,
        },
        "status": {
            "phase": phase,
            "qosClass": "Burstable",
            "startTime": "2026-11-20T08:00:05Z",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": "2026-11-20T08:00:02Z",
                }
            ],
        },
    }


def refs(owner: tuple[str, str] | None) -> list[Object]:
    """Return the owner references of one controller."""
    if owner is None:
        return []
    version, _, what = owner[0], "", owner[1]
    kind, _, name = what.partition("/")
    uid = f"{kind.lower()}-{name}"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def meta(
    name: str,
    *,
    namespace: str = "ml",
    owner: tuple[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    """Return an object that is nothing but metadata."""
    words = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"metadata": {**words, "ownerReferences": refs(owner)}}


def as_pod(item: Object) -> Pod:
    """Decode a pod as the collector does."""
    return msgspec.json.decode(json.dumps(item), type=Pod)


def as_node(item: Object) -> Node:
    """Decode a node as the collector does."""
    return msgspec.json.decode(json.dumps(item), type=Node)
