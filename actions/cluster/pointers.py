"""JSON pointers (RFC 6901) of objects: read, and the merge patch that writes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

MISSING: Final = object()
"""What lies where nothing lies; null is a value."""


def split_pointer(pointer: str) -> tuple[str, ...]:
    """Return the keys of a pointer."""
    return tuple(p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:])


def join_pointer(*keys: str) -> str:
    """Return the pointer of keys."""
    return "".join("/" + k.replace("~", "~0").replace("/", "~1") for k in keys)


def resolve_pointer(obj: Any, pointer: str) -> Any:
    """Return what lies at a pointer, or MISSING."""
    value = obj
    for key in split_pointer(pointer):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, Sequence) and not isinstance(value, str) and key.isdecimal():
            if int(key) >= len(value):
                return MISSING
            value = value[int(key)]
        else:
            return MISSING
    return value


def get_value(obj: Any, pointer: str) -> Any:
    """Return what a change keeps of a pointer: the value, None where it is absent."""
    value = resolve_pointer(obj, pointer)
    return None if value is MISSING else value


def build_merge_patch(pointer: str, value: Any) -> dict[str, Any]:
    """Return the merge patch that sets a pointer; None takes it away."""
    patch: Any = value
    for key in reversed(split_pointer(pointer)):
        patch = {key: patch}
    return dict(patch)


def find_highest_absent(obj: Any, pointer: str) -> str:
    """Return the pointer itself, or that of its highest part that is absent.

    Taking away the part that a write brought with it leaves the object just as it was. Labels and
    annotations are everybody's, so the map itself never counts: the server drops an empty one.
    """
    keys = split_pointer(pointer)
    first = 3 if keys[:1] == ("metadata",) else 1
    for length in range(first, len(keys)):
        if get_value(obj, join_pointer(*keys[:length])) is None:
            return join_pointer(*keys[:length])
    return pointer
