"""Read taints of nodes, and the tolerations of pods as `pod.annotations` stores them."""

from collections.abc import Mapping, Sequence
from typing import Any

TOLERATIONS = "fallow.tolerations"
"""Key of `pod.annotations`: [key, operator, value, effect] of each toleration, without those that
every pod has."""
BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def tolerates(toleration: Sequence[str], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration tolerates a taint (k8s.io api core/v1, ToleratesTaint)."""
    key, operator, value, effect = toleration
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    return operator == "Exists" or (bool(key) and value == (taint.get("value") or ""))
