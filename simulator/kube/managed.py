"""Track `metadata.managedFields`: which manager last wrote which field, down to the leaves.

A set of fields is nested as the server writes it (`FieldsV1`): `f:name` for a field, `k:{...}` for
an item of a list that is merged by keys, with `.` for the item itself. Any other list, a selector
and all lists of custom kinds are one field.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

Object = dict[str, Any]
Path = tuple[str, ...]
Fields = dict[str, Any]

LIST_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
}
"""Lists of built-in kinds whose items have managers of their own, and the keys that tell items
apart (`x-kubernetes-list-map-keys` of the 1.36 API)."""
_ATOMIC = frozenset({"f:selector", "f:nodeSelector", "f:labelSelector", "f:finalizers"})
_METADATA = frozenset({"labels", "annotations", "finalizers", "ownerReferences", "generateName"})
_ITEM = "."


def record_manager(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    manager: str,
    subresource: str,
    api_version: str,
    time: str,
    custom: bool = False,
) -> list[Object]:
    """Return the new object's `managedFields` after a manager wrote it."""
    changes = _Changes(custom)
    changes.compare(_find_own(old), _find_own(new))
    put, removed_paths = changes.put, changes.lost
    entries: list[Object] = []
    own_fields: Fields = {}
    for entry in old.get("metadata", {}).get("managedFields") or ():
        if (entry["manager"], entry.get("subresource", "")) == (manager, subresource):
            own_fields = drop_leaves(entry["fieldsV1"], removed_paths)
        elif left := drop_leaves(entry["fieldsV1"], [*put, *removed_paths]):
            entries.append(entry if left is entry["fieldsV1"] else {**entry, "fieldsV1": left})
    own_fields = union(own_fields, put)
    if own_fields:
        entry = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": own_fields,
        }
        entries.append({**entry, "subresource": subresource} if subresource else entry)
    return entries


def list_paths(fields: Mapping[str, Any], head: Path = ()) -> Iterator[Path]:
    """Yield the leaves of a nested set of fields."""
    for key, inner in fields.items():
        if inner:
            yield from list_paths(inner, (*head, key))
        else:
            yield (*head, key)


def has_leaf(fields: Mapping[str, Any], path: Path) -> bool:
    """Return whether a set has a leaf, or something within it."""
    here: Mapping[str, Any] | None = fields
    for part in path:
        here = here.get(part) if here else None
        if here is None:
            return False
    return True


def drop_leaves(fields: Fields, paths_removed: Sequence[Path]) -> Fields:
    """Return a set without some leaves; the identical one if it has none of them."""
    hit = [p for p in paths_removed if has_leaf(fields, p)]
    return _nest(sorted(set(list_paths(fields)) - set(hit))) if hit else fields


def union(fields: Fields, more: Sequence[Path]) -> Fields:
    """Return a set with some more leaves."""
    return _nest(sorted({*list_paths(fields), *more})) if more else fields


def find_item_keys(name: str, value: Any, *, custom: bool) -> tuple[str, ...] | None:
    """Return the keys that distinguish the items of a list; None = the list is one field."""
    keys = None if custom else LIST_KEYS.get(name)
    if keys is None or not isinstance(value, list) or not value:
        return None
    return keys if all(isinstance(i, Mapping) and keys[0] in i for i in value) else None


def _find_own(item: Mapping[str, Any]) -> Object:
    """Return an object with only what managers own."""
    out = {k: v for k, v in item.items() if k not in {"apiVersion", "kind", "metadata"}}
    meta = {k: v for k, v in (item.get("metadata") or {}).items() if k in _METADATA and v}
    return {**out, "metadata": meta} if meta else out


class _Changes:
    """The leaves that a write set or changed, and those that it removed."""

    def __init__(self, custom: bool) -> None:
        self._custom = custom
        self.put: list[Path] = []
        self.lost: list[Path] = []

    def compare(self, old: Any, new: Any, head: Path = ()) -> None:
        """Collect the leaves that differ; None means no value."""
        if old is None:
            self._put_all(new, head)
            return
        if old == new:
            return
        old_parts, new_parts = (
            _list_parts(old, head, self._custom),
            _list_parts(new, head, self._custom),
        )
        if old_parts is None or new_parts is None:
            self._leaf(old, new, head, old_parts is None, new_parts is None)
            return
        if head and isinstance(new, Mapping) and not new:
            self.put.append(head)
        if head and isinstance(old, Mapping) and not old and new is None:
            self.lost.append(head)
        for key in {**old_parts, **new_parts}:
            self.compare(old_parts.get(key), new_parts.get(key), (*head, key))
        if new is None and head and head[-1].startswith("k:"):
            self.lost.append((*head, _ITEM))

    def _put_all(self, new: Any, head: Path) -> None:
        """Collect the leaves of a value that had none before."""
        if new is None:
            return
        parts = _list_parts(new, head, self._custom)
        if parts is None:
            self.put.append(head)
            return
        if head and isinstance(new, Mapping) and not new:
            self.put.append(head)
        for key, value in parts.items():
            self._put_all(value, (*head, key))
        if head and head[-1].startswith("k:"):
            self.put.append((*head, _ITEM))

    def _leaf(self, old: Any, new: Any, head: Path, was_leaf: bool, is_leaf: bool) -> None:
        if not was_leaf:
            self.compare(old, None, head)
        elif old is not None and not (is_leaf and new is not None):
            self.lost.append(head)
        if not is_leaf:
            self.compare(None, new, head)
        elif new is not None:
            self.put.append(head)


def _list_parts(value: Any, head: Path, custom: bool) -> Mapping[str, Any] | None:
    """Return the parts of a value by the keys of sets; None = it is a leaf."""
    if value is None:
        return {}
    if isinstance(value, (str, int, float)) or (head and head[-1] in _ATOMIC):
        return None
    if isinstance(value, (dict, Mapping)):  # a dict is known faster
        return {f"f:{k}": v for k, v in value.items()}
    keys = find_item_keys(head[-1][2:], value, custom=custom) if head else None
    if keys is None:
        return None
    return {f"k:{msgspec.json.encode(_index_by_keys(i, keys)).decode()}": i for i in value}


def _index_by_keys(item: Mapping[str, Any], keys: Sequence[str]) -> Object:
    defaults = {"protocol": "TCP"}
    return {k: item.get(k, defaults.get(k)) for k in sorted(keys)}


def _nest(every: Sequence[Path]) -> Fields:
    out: Fields = {}
    for path in every:
        place = out
        for part in path:
            place = place.setdefault(part, {})
    return out
