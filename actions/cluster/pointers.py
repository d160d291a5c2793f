"""Read JSON pointers (RFC 6901) of objects, and build the merge patches that write them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

MISSING: Final = object()
"""The value of a pointer that is absent; null is a value."""


def split_pointer(pointer: str) -> tuple[str, ...]:
    """Return the keys of a pointer."""
    return tuple(p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:])


def join_pointer(*keys: str) -> str:
    """Return the JSON pointer of a list of keys."""
    return "".join("/" + k.replace("~", "~0").replace("/", "~1") for k in keys)


def resolve_pointer(obj: Any, pointer: str) -> Any:
    """Return the value at a pointer, or MISSING."""
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
    """Return the value of a pointer as a change stores it; None where it is absent."""
    value = resolve_pointer(obj, pointer)
    return None if value is MISSING else value


def build_merge_patch(pointer: str, value: Any) -> dict[str, Any]:
    """Return the merge patch that sets a pointer; None removes it."""
    patch: Any = value
    for key in reversed(split_pointer(pointer)):
        patch = {key: patch}
    return dict(patch)


def find_highest_absent(obj: Any, pointer: str) -> str:
    """Return the pointer itself, or that of its highest part that is absent.

    If an undo removes the part that the write added, the object is exactly as before. Several
    clients share labels and annotations, so the map itself never counts: the server drops an empty
    one.
    """
    keys = split_pointer(pointer)
    first = 3 if keys[:1] == ("metadata",) else 1
    for length in range(first, len(keys)):
        if get_value(obj, join_pointer(*keys[:length])) is None:
            return join_pointer(*keys[:length])
    return pointer
