"""What the executor asks of each kind of quota object."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from actions.quota.accounts import Account
from fallow.kube.quantities import quantity
from fallow.seams import Cluster, Right

Object = Mapping[str, Any]


class Part(msgspec.Struct, frozen=True):
    """What is counted: a resource, and with Kueue the flavor it comes in."""

    resource: str
    flavor: str = ""


class Field(msgspec.Struct, frozen=True):
    """One field of an object and what a step makes of it; None = absent."""

    pointer: str
    before: Any
    after: Any


class System(msgspec.Struct, frozen=True):
    """A kind of quota object, and its words."""

    kind: str
    """As rows have it: `Queue.kai`."""
    api_kind: str
    """As the API has it: `Queue`."""
    group: str
    accounts: Callable[[Sequence[Object], Part], list[Account]]
    """Read all objects of the kind, those above others too."""
    fields: Callable[[Object, Part, float], list[Field]]
    """What a change of the guarantee writes; what must not have moved has before == after."""
    rights: tuple[Right, ...] = ()
    sums: bool = False
    """A webhook of its judges sums: what grows before others shrank is refused."""
    closed: Callable[[Cluster], str] | None = None
    """Why none of its objects may be written in this cluster; empty = they may."""
    stuck: Callable[[Object, Cluster], str] | None = None
    """Why this object may not be written; empty = it may."""


def key_of(item: Object) -> str:
    """Return `namespace/name`, or the name of a cluster's own object."""
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def deep(item: Any, *path: str) -> Any:
    """Return what lies at a path of keys; None where a key is absent."""
    for part in path:
        item = item.get(part) if isinstance(item, Mapping) else None
    return item


def number(value: Any) -> float | None:
    """Return an amount; None where it is absent or none."""
    found = None if value is None or isinstance(value, bool) else quantity(str(value))
    return None if found is None else float(found)


def written(value: float, like: Any) -> Any:
    """Return an amount as the API would show it, in the type that the field has."""
    whole = value == int(value)
    if isinstance(like, str):
        return f"{int(value)}" if whole else f"{round(value * 1000)}m"
    return int(value) if whole and not isinstance(like, float) else value


def pointer(*path: str | int) -> str:
    """Return a JSON pointer."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in path)


def shifted(item: Object, path: Sequence[str], to: float) -> Field:
    """Return the field at a path of keys with a new amount."""
    before = deep(item, *path)
    return Field(pointer(*path), before, written(to, before))
