"""Structural schemas of CustomResourceDefinitions: unknown fields, defaults and types.

A kind whose schema keeps unknown fields at its root takes any object. Of validation it has types,
required fields and patterns of strings: no formats, no CEL, no limits of size.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from simulator.kube.status import InvalidField

Schema = Mapping[str, Any]
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
INT_OR_STRING = "x-kubernetes-int-or-string"
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


def fill_defaults(schema: Schema, item: Any) -> Any:
    """Return an object with the defaults of fields that it lacks, within what it has."""
    if isinstance(item, list):
        return [fill_defaults(schema.get("items") or {}, value) for value in item]
    if not isinstance(item, dict):
        return item
    fields: Mapping[str, Schema] = schema.get("properties") or {}
    if not fields:
        return item
    defaults = {k: f["default"] for k, f in fields.items() if "default" in f and k not in item}
    return {k: fill_defaults(fields.get(k) or {}, v) for k, v in {**item, **defaults}.items()}


def find_invalid_fields(schema: Schema, item: Any, path: str = "") -> Iterator[InvalidField]:
    """Yield values of another type than the schema has, and required fields that are absent."""
    wanted = schema.get("type")
    if schema.get(INT_OR_STRING):
        wanted = "integer or string" if not _is_type(item, "integer", "string") else ""
    elif wanted and _is_type(item, wanted):
        wanted = ""
    if wanted:
        message = f"Invalid value: {item!r}: {path} in body must be of type {wanted}"
        yield InvalidField(path, message, "FieldValueTypeInvalid")
        return
    pattern = schema.get("pattern")
    if pattern and isinstance(item, str) and not re.search(pattern, item):
        message = f"Invalid value: \"{item}\": {path} in body should match '{pattern}'"
        yield InvalidField(path, message)
    if isinstance(item, dict):
        for name in schema.get("required") or ():
            if name not in item:
                yield InvalidField(_join(path, name), "Required value", "FieldValueRequired")
    for _, value, place, inner in _walk(schema, item, path):
        if inner:
            yield from find_invalid_fields(inner, value, place)


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


def _is_type(item: Any, *names: str) -> bool:
    if isinstance(item, bool):
        return "boolean" in names
    return any(isinstance(item, TYPES[name]) for name in names)
