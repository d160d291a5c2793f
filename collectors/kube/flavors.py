"""Read the ResourceFlavors of Kueue: the nodes that each names, and the taints on them."""

from collections.abc import Iterable, Mapping
from typing import Any

from collectors.kube.shapes import CustomObject
from fallow.kube.values import get_map, list_maps

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def describe_flavors(flavors: Iterable[CustomObject]) -> dict[str, dict[str, Any]]:
    """Return by name the node labels of each flavor, its taints, and the tolerations it adds."""
    return {item.metadata.name: _describe(item.spec or {}) for item in flavors}


def read_assigned(admission: Mapping[str, Any], pod_set: str) -> dict[str, str]:
    """Return the flavor that an admission gives a pod set for each resource; empty = none yet."""
    for assignment in list_maps(admission.get("podSetAssignments")):
        if assignment.get("name") == pod_set:
            flavors = get_map(assignment.get("flavors"))
            return {str(resource): str(flavor) for resource, flavor in flavors.items()}
    return {}


def _describe(spec: Mapping[str, Any]) -> dict[str, Any]:
    labels = get_map(spec.get("nodeLabels"))
    return {
        "labels": {str(key): str(value) for key, value in sorted(labels.items())},
        "taints": [
            [str(taint.get("key")), str(taint.get("value") or ""), str(taint.get("effect"))]
            for taint in list_maps(spec.get("nodeTaints"))
            if str(taint.get("effect")) in _BLOCKING
        ],
        "tolerations": [
            [str(toleration.get(part) or "") for part in ("key", "operator", "value", "effect")]
            for toleration in list_maps(spec.get("tolerations"))
        ],
    }
