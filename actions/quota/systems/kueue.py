"""Kueue ClusterQueue: nominal quota per flavor, lent and borrowed within a cohort.

`resourceGroups` is one atomic list, so a step is a JSON patch whose `test`s pin the names at the
places it writes and the numbers it found: who changed or reordered them meanwhile makes it 422.
What a queue keeps to itself (nominal - lendingLimit) and the most a giver may hold (nominal +
borrowingLimit) stay as they were. Both limits exist only within a cohort.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from actions.quota.accounts import Account
from actions.quota.systems.system import (
    Field,
    Object,
    Part,
    System,
    deep,
    key_of,
    number,
    pointer,
    written,
)
from fallow.seams import Right

Place = tuple[tuple[str | int, ...], tuple[str | int, ...], Object]
"""Where a flavor and one of its resources stand, and what stands there."""


def accounts(objects: Sequence[Object], part: Part) -> list[Account]:
    """Return one account per queue; what it has reserved counts as used."""
    found = []
    for item in objects:
        place = next(_places(item, part), None)
        stopped = deep(item, "spec", "stopPolicy") or "None"
        found.append(
            Account(
                key_of(item),
                None if place is None else number(place[2].get("nominalQuota")),
                used=_used(item, part),
                fixed="" if stopped == "None" else f"its stopPolicy is {stopped}",
            )
        )
    return found


def fields(item: Object, part: Part, change: float) -> list[Field]:
    """Return nominalQuota and, in a cohort, the limits that have to follow it."""
    flavor, resource, quota = next(_places(item, part))
    nominal = (number(quota["nominalQuota"]) or 0.0) + change
    names = [
        Field(pointer(*flavor, "name"), part.flavor, part.flavor),
        Field(pointer(*resource, "name"), part.resource, part.resource),
    ]
    amounts = {"nominalQuota": nominal}
    if cohort(item):
        lending = number(quota.get("lendingLimit"))
        if lending is not None:
            amounts["lendingLimit"] = min(max(lending + change, 0.0), nominal)
        borrowing = number(quota.get("borrowingLimit"))
        if borrowing is not None and change < 0:
            amounts["borrowingLimit"] = borrowing - change
    wrote = [
        Field(pointer(*resource, k), quota[k], written(v, quota[k])) for k, v in amounts.items()
    ]
    return [*names, *wrote]


def cohort(item: Object) -> str:
    """Return the cohort of a ClusterQueue of either served version."""
    return str(deep(item, "spec", "cohortName") or deep(item, "spec", "cohort") or "")


def _places(item: Object, part: Part) -> Iterator[Place]:
    for i, group in enumerate(deep(item, "spec", "resourceGroups") or ()):
        for j, flavor in enumerate(group.get("flavors") or ()):
            for k, resource in enumerate(flavor.get("resources") or ()):
                if (resource.get("name"), flavor.get("name")) == (part.resource, part.flavor):
                    above: tuple[str | int, ...] = ("spec", "resourceGroups", i, "flavors", j)
                    yield above, (*above, "resources", k), resource


def _used(item: Object, part: Part) -> float | None:
    """Return the greater of what is reserved and what is used; None = its status says neither."""
    said = [_total(deep(item, "status", f), part) for f in ("flavorsReservation", "flavorsUsage")]
    return max((s for s in said if s is not None), default=None)


def _total(listed: Any, part: Part) -> float | None:
    if not isinstance(listed, list):
        return None
    return sum(
        number(resource.get("total")) or 0.0
        for flavor in listed
        for resource in flavor.get("resources") or ()
        if (flavor.get("name"), resource.get("name")) == (part.flavor, part.resource)
    )


SYSTEM = System(
    "ClusterQueue",
    "ClusterQueue",
    "kueue.x-k8s.io",
    accounts,
    fields,
    (Right("kueue.x-k8s.io", "clusterqueues", ("get", "list", "patch")),),
)
