"""Apply the three kinds of patch. Each returns a new object; the old one never changes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from simulator.kube.status import build_bad_request, build_failed_patch

How = Literal["merge", "json", "strategic"]
Object = dict[str, Any]

MERGE_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "containerStatuses": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "conditions": ("type",),
    "taints": ("key",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
}
"""Lists of built-in kinds that a strategic patch merges item by item, with the items' keys."""
MERGED_SETS = {"finalizers"}


def apply_patch(old: Object, body: Any, how: How) -> Object:
    """Return the object with a patch applied.

    Raises:
        ApiError: 400 the patch is no patch, 422 it does not apply.
    """
    if how == "json":
        if not isinstance(body, list):
            raise build_bad_request("a JSON patch is a list of operations")
        return _apply_json_patch(old, body)
    if not isinstance(body, dict):
        raise build_bad_request("a merge patch is an object")
    out: Object = _merge(old, body) if how == "merge" else _merge_strategically(old, body)
    return out


def copy_json(value: Any) -> Any:
    """Return a deep copy of what is JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _merge(old: Any, patch: Any) -> Any:
    # Plain types are known faster than an abstract one.
    if isinstance(patch, (str, int, float, list)) or not isinstance(patch, (dict, Mapping)):
        return patch
    out = dict(old) if isinstance(old, (dict, Mapping)) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merge(out.get(key), value)
    return out


def _merge_strategically(old: Any, patch: Mapping[str, Any]) -> Any:
    out = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, list):
            out[key] = _merge_strategic_list(key, out.get(key) or [], value)
        elif isinstance(value, Mapping):
            out[key] = _merge_strategically(out.get(key), value)
        else:
            out[key] = value
    return out


def _merge_strategic_list(key: str, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    if key in MERGED_SETS:
        return [*old, *(v for v in new if v not in old)]
    names = MERGE_KEYS.get(key)
    if names is None or not all(isinstance(v, Mapping) for v in new):
        return list(new)
    out = list(old)
    for item in new:
        name = next((n for n in names if n in item), None)
        if name is None:
            raise build_bad_request(f"map: {item} does not contain declared merge key: {names[0]}")
        place = next((i for i, v in enumerate(out) if v.get(name) == item[name]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del out[place]
        elif place is None:
            out.append(_merge_strategically({}, item))
        else:
            out[place] = _merge_strategically(out[place], item)
    return out


def _apply_json_patch(old: Object, operations: Sequence[Any]) -> Object:
    out: Any = copy_json(old)
    for operation in operations:
        try:
            out = _apply_operation(out, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise build_failed_patch() from error
    if not isinstance(out, dict):
        raise build_failed_patch()
    return out


def _apply_operation(document: Any, operation: Mapping[str, Any]) -> Any:
    verb, path = operation["op"], _parse_pointer(operation["path"])
    if verb == "test":
        if _test_value(document, path) != operation.get("value"):
            raise ValueError(verb)
        return document
    if verb == "remove":
        return _remove(document, path)
    if verb == "replace":
        if not path:
            return operation["value"]
        # The server's library (json-patch v4) adds a missing key; only its parent has to exist.
        parent = _get_value(document, path[:-1])
        parent[_place(parent, path[-1])] = operation["value"]
        return document
    if verb == "add":
        return _add(document, path, operation["value"])
    raise ValueError(verb)


def _parse_pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [p.replace("~1", "/").replace("~0", "~") for p in text.split("/")[1:]]


def _place(parent: Any, part: str) -> Any:
    if isinstance(parent, list):
        if not part.isdecimal():
            raise ValueError(part)
        return int(part)
    return part


def _get_value(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        document = document[_place(document, part)]
    return document


def _test_value(document: Any, path: Sequence[str]) -> Any:
    """Return what a test compares: a key that its map lacks is null."""
    parent = _get_value(document, path[:-1])
    if path and isinstance(parent, Mapping):
        return parent.get(path[-1])
    return _get_value(document, path)


def _remove(document: Any, path: Sequence[str]) -> Any:
    parent = _get_value(document, path[:-1])
    del parent[_place(parent, path[-1])]
    return document


def _add(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get_value(document, path[:-1])
    if not isinstance(parent, list):
        parent[path[-1]] = value
    elif path[-1] == "-":
        parent.append(value)
    elif int(path[-1]) > len(parent):
        raise IndexError(path[-1])
    else:
        parent.insert(_place(parent, path[-1]), value)
    return document
