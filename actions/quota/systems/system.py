"""The interface between the executor and each kind of quota object."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from actions.quota.accounts import Account
from fallow.kube.quantities import parse_quantity
from fallow.protocols import ClusterReader, Right

Object = Mapping[str, Any]


class CountedResource(msgspec.Struct, frozen=True):
    """The counted resource, and with Kueue its flavor."""

    resource: str
    flavor: str = ""


class FieldChange(msgspec.Struct, frozen=True):
    """One field of an object before and after a step; None = absent."""

    pointer: str
    before: Any
    after: Any


class QuotaSystem(msgspec.Struct, frozen=True):
    """A kind of quota object, and how it is read and written."""

    kind: str
    """The kind in stored rows: `Queue.kai`."""
    api_kind: str
    """The kind in the API: `Queue`."""
    group: str
    accounts: Callable[[Sequence[Object], CountedResource], list[Account]]
    """Read all objects of the kind, including those above others."""
    fields: Callable[[Object, CountedResource, float], list[FieldChange]]
    """What a change of the nominal quota writes; a field that must not change has before ==
    after."""
    rights: tuple[Right, ...] = ()
    sums: bool = False
    """Its webhook checks sums: a growth before the corresponding shrinking is refused."""
    closed: Callable[[ClusterReader], str] | None = None
    """Why none of its objects may be written in this cluster; empty = they may be."""
    stuck: Callable[[Object, ClusterReader], str] | None = None
    """Why this object must not be written; empty = it may be."""


def get_key(item: Object) -> str:
    """Return `namespace/name`, or the name of a cluster's own object."""
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def get_path(item: Any, *path: str) -> Any:
    """Return the value at a path of keys; None where a key is absent."""
    for part in path:
        item = item.get(part) if isinstance(item, Mapping) else None
    return item


def to_number(value: Any) -> float | None:
    """Return an amount as a number; None where it is absent or no amount."""
    amount = None if value is None or isinstance(value, bool) else parse_quantity(str(value))
    return None if amount is None else float(amount)


def format_amount(value: float, like: Any) -> Any:
    """Return an amount in the API's format, in the type that the field has."""
    is_whole = value == int(value)
    if isinstance(like, str):
        return f"{int(value)}" if is_whole else f"{round(value * 1000)}m"
    return int(value) if is_whole and not isinstance(like, float) else value


def join_pointer(*path: str | int) -> str:
    """Return a JSON pointer."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in path)


def change_field(item: Object, path: Sequence[str], amount: float) -> FieldChange:
    """Return the field at a path of keys with a new amount."""
    before = get_path(item, *path)
    return FieldChange(join_pointer(*path), before, format_amount(amount, before))
