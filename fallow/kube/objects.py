"""Read common fields of API objects."""

from collections.abc import Mapping
from typing import Any

from fallow.action_models import Target

Object = Mapping[str, Any]

ENDED = {"Succeeded", "Failed"}


def get_metadata(obj: Object) -> Mapping[str, Any]:
    """Return an object's metadata."""
    return obj.get("metadata") or {}


def name(obj: Object) -> str:
    """Return an object's name."""
    return str(get_metadata(obj).get("name") or "")


def get_namespace(obj: Object) -> str:
    """Return an object's namespace; empty for the cluster's own."""
    return str(get_metadata(obj).get("namespace") or "")


def get_uid(obj: Object) -> str:
    """Return an object's uid."""
    return str(get_metadata(obj).get("uid") or "")


def get_labels(obj: Object) -> Mapping[str, str]:
    """Return an object's labels."""
    return get_metadata(obj).get("labels") or {}


def get_annotations(obj: Object) -> Mapping[str, str]:
    """Return an object's annotations."""
    return get_metadata(obj).get("annotations") or {}


def group(api_version: str) -> str:
    """Return the group of `apps/v1`; the core group is empty."""
    return api_version.rpartition("/")[0]


def get_path(obj: Object, *path: str, default: Any = None) -> Any:
    """Return the value at a path of keys, or the default where a key is absent or null."""
    value: Any = obj
    for key in path:  # a dict is known faster
        value = value.get(key) if isinstance(value, (dict, Mapping)) else None
        if value is None:
            return default
    return value


def find_controller(obj: Object) -> Mapping[str, Any] | None:
    """Return the reference to the one owner that controls an object."""
    references = get_metadata(obj).get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), None)


def is_deleting(obj: Object) -> bool:
    """Return whether an object is being deleted."""
    return bool(get_metadata(obj).get("deletionTimestamp"))


def has_ended(pod: Object) -> bool:
    """Return whether a pod's containers have exited for good."""
    return (pod.get("status") or {}).get("phase") in ENDED


def has_condition(obj: Object, condition: str) -> bool:
    """Return whether a condition of an object's status is true."""
    conditions = get_path(obj, "status", "conditions") or ()
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)


def to_target(obj: Object, cluster: str, kind: str = "", api_version: str = "") -> Target:
    """Return an object as a target; items of lists do not carry their kind."""
    metadata = get_metadata(obj)
    return Target(
        cluster=cluster,
        api_version=str(obj.get("apiVersion") or api_version),
        kind=str(obj.get("kind") or kind),
        namespace=get_namespace(obj),
        name=name(obj),
        uid=get_uid(obj),
        resource_version=metadata.get("resourceVersion"),
        generation=metadata.get("generation"),
    )


def format_object(obj: Object, kind: str = "") -> str:
    """Return an object as people write it: Kind/namespace/name."""
    kind_name = str(obj.get("kind") or kind)
    return "/".join(w for w in (kind_name, get_namespace(obj), name(obj)) if w)
