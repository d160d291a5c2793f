"""JSON pointers (RFC 6901) of objects: read, and the merge patch that writes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

MISSING: Final = object()
"""What lies where nothing lies; null is a value."""


def parts(pointer: str) -> tuple[str, ...]:
    """Return the keys of a pointer."""
    return tuple(p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:])


def pointer(*keys: str) -> str:
    """Return the pointer of keys."""
    return "".join("/" + k.replace("~", "~0").replace("/", "~1") for k in keys)


def at(obj: Any, where: str) -> Any:
    """Return what lies at a pointer, or MISSING."""
    here = obj
    for key in parts(where):
        if isinstance(here, Mapping) and key in here:
            here = here[key]
        elif isinstance(here, Sequence) and not isinstance(here, str) and key.isdecimal():
            if int(key) >= len(here):
                return MISSING
            here = here[int(key)]
        else:
            return MISSING
    return here


def shown(obj: Any, where: str) -> Any:
    """Return what a change keeps of a pointer: the value, None where it is absent."""
    found = at(obj, where)
    return None if found is MISSING else found


def merge(where: str, value: Any) -> dict[str, Any]:
    """Return the merge patch that sets a pointer; None takes it away."""
    out: Any = value
    for key in reversed(parts(where)):
        out = {key: out}
    return dict(out)


def highest_absent(obj: Any, where: str) -> str:
    """Return the pointer itself, or that of its highest part that is absent.

    Taking away the part that a write brought with it leaves the object just as it was. Labels and
    annotations are everybody's, so the map itself never counts: the server drops an empty one.
    """
    keys = parts(where)
    first = 3 if keys[:1] == ("metadata",) else 1
    for length in range(first, len(keys)):
        if shown(obj, pointer(*keys[:length])) is None:
            return pointer(*keys[:length])
    return where
