"""Store quantities as the server does: `8192Mi` becomes `8Gi`, `2000m` becomes `2`.

`7476Mi` and `2500m` stay. Only built-in kinds are rewritten; a custom resource keeps its text.
"""

from collections.abc import Mapping
from typing import Any

from fallow.kube.quantities import write_canonical
from simulator.kube.kinds import ApiKind

Object = dict[str, Any]

_LISTS = frozenset(
    {
        "limits",
        "requests",
        "overhead",
        "capacity",
        "allocatable",
        "allocatedResources",
        "hard",
        "used",
        "default",
        "defaultRequest",
        "max",
        "min",
    }
)
"""Fields that are lists of resources (`ResourceList`)."""
_ALONE = frozenset({"sizeLimit"})
_PARTS = ("spec", "status")


def canonicalize(kind: ApiKind, new: Object, old: Mapping[str, Any]) -> Object:
    """Return an object with the quantities of what was written in canonical form."""
    if kind.custom:
        return new
    out = new
    for part in _PARTS:
        if part in new and new[part] != old.get(part):
            out = {**out, part: _rewrite(new[part])}
    return out


def _rewrite(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):  # most values; known faster
        return value
    if isinstance(value, list):
        return [_rewrite(v) for v in value]
    if not isinstance(value, (dict, Mapping)):
        return value
    out = {}
    for key, inner in value.items():
        if key in _LISTS and isinstance(inner, (dict, Mapping)):
            out[key] = {k: _write_quantity(v) for k, v in inner.items()}
        elif key in _ALONE:
            out[key] = _write_quantity(inner)
        else:
            out[key] = _rewrite(inner)
    return out


def _write_quantity(value: Any) -> Any:
    """Return a quantity in canonical form; a text that is no quantity is left to validation."""
    if isinstance(value, str):
        return write_canonical(value) or value
    if isinstance(value, Mapping):  # a device's capacity: {"value": "80Gi"}
        return {k: _write_quantity(v) if k == "value" else v for k, v in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return write_canonical(value) or value
