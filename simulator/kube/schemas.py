"""Structural schemas of CustomResourceDefinitions: which fields are unknown.

A kind whose schema keeps unknown fields at its root takes any object. Values are not checked.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_EMBEDDED = {"apiVersion", "kind", "metadata"}
"""Fields of every object, which the root of a schema does not list."""


def is_open(schema: Schema) -> bool:
    """Return whether unknown fields are kept; no schema keeps everything."""
    return not schema or bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def list_unknown_fields(schema: Schema, item: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that the schema does not have."""
    for key, value, place, inner in _walk(schema, item, path):
        if inner is None:
            if path or key not in _EMBEDDED:
                yield place
        elif inner:
            yield from list_unknown_fields(inner, value, place)


def prune(schema: Schema, item: Any, *, root: bool = True) -> Any:
    """Return an object without the fields that the schema does not have."""
    if isinstance(item, list):
        return [prune(schema.get("items") or {}, value, root=False) for value in item]
    if not isinstance(item, dict) or is_open(schema):
        return item
    return {
        key: value if inner is None else prune(inner, value, root=False)
        for key, value, _, inner in _walk(schema, item, "")
        if inner is not None or (root and key in _EMBEDDED)
    }


def _walk(schema: Schema, item: Any, path: str) -> Iterator[tuple[str, Any, str, Schema | None]]:
    """Yield each field or item with its path and its schema; None = the schema lacks it."""
    if isinstance(item, list):
        for i, value in enumerate(item):
            yield "", value, f"{path}[{i}]", schema.get("items") or {}
    elif isinstance(item, dict):
        fields = schema.get("properties") or {}
        other = schema.get("additionalProperties")
        for key, value in item.items():
            default = {} if is_open(schema) else other
            yield key, value, _join(path, key), fields.get(key, default)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
