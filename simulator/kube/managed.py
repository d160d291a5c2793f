"""`managedFields`: which manager last wrote which field, two levels deep (labels by their key)."""

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]

_DEEP = {("metadata", "labels"), ("metadata", "annotations")}
_OWN = {"labels", "annotations", "finalizers", "ownerReferences", "generateName"}


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[Path]:
    """Return the paths of the fields that a write set or changed."""
    return {p for p in _paths(new) if _at(old, p) != _at(new, p)}


def _paths(item: Mapping[str, Any]) -> Iterator[Path]:
    for top, value in item.items():
        if top in {"apiVersion", "kind"}:
            continue
        if not isinstance(value, dict):
            yield (top,)
            continue
        for key, inner in value.items():
            if top == "metadata" and key not in _OWN:
                continue
            if (top, key) in _DEEP and isinstance(inner, dict):
                yield from ((top, key, name) for name in inner)
            else:
                yield (top, key)


def _at(item: Any, path: Path) -> Any:
    for part in path:
        if not isinstance(item, dict):
            return None
        item = item.get(part)
    return item


def written_by(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    manager: str,
    subresource: str,
    api_version: str,
    time: str,
) -> list[Object]:
    """Return the new object's `managedFields` after a manager wrote it."""
    paths = changed(old, new)
    entries: list[Object] = []
    mine: set[Path] = set(paths)
    for entry in old.get("metadata", {}).get("managedFields") or ():
        own = set(_read(entry["fieldsV1"]))
        if (entry["manager"], entry.get("subresource", "")) == (manager, subresource):
            mine |= own
        elif left := {p for p in own - paths if _at(new, p) is not None}:
            entries.append({**entry, "fieldsV1": _nested(left)})
    mine = {p for p in mine if _at(new, p) is not None}
    if mine:
        entry = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _nested(mine),
        }
        entries.append({**entry, "subresource": subresource} if subresource else entry)
    return entries


def _nested(paths: set[Path]) -> Object:
    out: Object = {}
    for path in sorted(paths):
        place = out
        for part in path:
            place = place.setdefault(f"f:{part}", {})
    return out


def _read(fields: Mapping[str, Any], head: Path = ()) -> Iterator[Path]:
    for key, inner in fields.items():
        path = (*head, key.removeprefix("f:"))
        if inner:
            yield from _read(inner, path)
        else:
            yield path
