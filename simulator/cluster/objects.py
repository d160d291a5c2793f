"""Read common parts of API objects: owners, conditions, times."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fallow.kube.objects import get_path, get_uid, has_ended, name
from simulator.kube.server_metadata import format_time

Object = dict[str, Any]

SHARED_KINDS = {
    "batch.volcano.sh",
    "scheduling.volcano.sh",
    "scheduling.run.ai",
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "nos.nebuly.com",
}
"""Groups whose kinds have names that other groups have too."""


def get_kind(obj: Mapping[str, Any]) -> str:
    """Return the kind's name in the store: `Pod`, or `Queue.scheduling.run.ai`."""
    kind: str = obj["kind"]
    group, _, _ = obj["apiVersion"].rpartition("/")
    return f"{kind}.{group}" if group in SHARED_KINDS else kind


def build_nested_patch(value: Any, *path: str) -> Object:
    """Return the merge patch that sets a value at a path of keys."""
    for key in reversed(path):
        value = {key: value}
    return value if isinstance(value, dict) else {}


def build_owner_references(owner: Mapping[str, Any]) -> list[Object]:
    """Return the `ownerReferences` of an object that this one controls."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": name(owner),
            "uid": get_uid(owner),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def hash_template(template: Any) -> str:
    """Return ten letters as a pod template's hash, of those that real hashes use."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=10).digest()
    letters = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(letters[byte % len(letters)] for byte in digest)


def is_live(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs or may still run."""
    return not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is ready."""
    if not is_live(pod) or "status" not in pod:
        return False
    conditions = pod["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def find_condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return a condition by its type."""
    conditions = get_path(obj, "status", "conditions", default=())
    return next((c for c in conditions if c["type"] == kind), None)


def set_conditions(
    obj: Mapping[str, Any], now_s: float, *changes: tuple[str, bool, str, str]
) -> list[Object]:
    """Return an object's conditions with some set: (type, true, reason, message).

    The transition time changes only when the status changes.
    """
    by_type = {c["type"]: dict(c) for c in get_path(obj, "status", "conditions", default=())}
    for kind, true, reason, message in changes:
        before = by_type.get(kind, {})
        status = "True" if true else "False"
        same = before.get("status") == status
        by_type[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            # The server accepts conditions without a transition time.
            "lastTransitionTime": (same and before.get("lastTransitionTime")) or format_time(now_s),
        }
    return list(by_type.values())


def sort_by_age(objects: Iterable[Object]) -> list[Object]:
    """Return objects by creation, then name."""
    return sorted(objects, key=lambda o: (o["metadata"].get("creationTimestamp", ""), name(o)))
