"""Kueue ClusterQueue: nominal quota per flavor, lent and borrowed within a cohort.

`resourceGroups` is one atomic list, so a step is a JSON patch. Its `test`s pin the names at the
places that it writes and the numbers that it read: a concurrent change or reordering gives 422. The
part that a queue does not lend (nominal - lendingLimit) and the most that a giver may hold (nominal
+ borrowingLimit) stay the same. Both limits exist only within a cohort.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from actions.quota.accounts import Account
from actions.quota.systems.system import (
    CountedResource,
    FieldChange,
    Object,
    QuotaSystem,
    format_amount,
    get_key,
    get_path,
    join_pointer,
    to_number,
)
from fallow.protocols import Right

FlavorEntry = tuple[tuple[str | int, ...], tuple[str | int, ...], Object]
"""The path of a flavor and one of its resources, and the value there."""


def list_accounts(objects: Sequence[Object], part: CountedResource) -> list[Account]:
    """Return one account per queue; its reserved amount counts as used."""
    results = []
    for item in objects:
        entry = next(_find_entries(item, part), None)
        stop_policy = get_path(item, "spec", "stopPolicy") or "None"
        results.append(
            Account(
                get_key(item),
                None if entry is None else to_number(entry[2].get("nominalQuota")),
                used=_get_used(item, part),
                fixed="" if stop_policy == "None" else f"its stopPolicy is {stop_policy}",
            )
        )
    return results


def list_field_changes(item: Object, part: CountedResource, change: float) -> list[FieldChange]:
    """Return nominalQuota and, in a cohort, the limits that have to follow it."""
    flavor, resource, quota = next(_find_entries(item, part))
    nominal = (to_number(quota["nominalQuota"]) or 0.0) + change
    names = [
        FieldChange(join_pointer(*flavor, "name"), part.flavor, part.flavor),
        FieldChange(join_pointer(*resource, "name"), part.resource, part.resource),
    ]
    amounts = {"nominalQuota": nominal}
    if get_cohort(item):
        lending = to_number(quota.get("lendingLimit"))
        if lending is not None:
            amounts["lendingLimit"] = min(max(lending + change, 0.0), nominal)
        borrowing = to_number(quota.get("borrowingLimit"))
        if borrowing is not None and change < 0:
            amounts["borrowingLimit"] = borrowing - change
    amount_changes = [
        FieldChange(join_pointer(*resource, k), quota[k], format_amount(v, quota[k]))
        for k, v in amounts.items()
    ]
    return [*names, *amount_changes]


def get_cohort(item: Object) -> str:
    """Return the cohort of a ClusterQueue of either served version."""
    return str(get_path(item, "spec", "cohortName") or get_path(item, "spec", "cohort") or "")


def _find_entries(item: Object, part: CountedResource) -> Iterator[FlavorEntry]:
    for i, group in enumerate(get_path(item, "spec", "resourceGroups") or ()):
        for j, flavor in enumerate(group.get("flavors") or ()):
            for k, resource in enumerate(flavor.get("resources") or ()):
                if (resource.get("name"), flavor.get("name")) == (part.resource, part.flavor):
                    flavor_path: tuple[str | int, ...] = ("spec", "resourceGroups", i, "flavors", j)
                    yield flavor_path, (*flavor_path, "resources", k), resource


def _get_used(item: Object, part: CountedResource) -> float | None:
    """Return the greater of the reserved and the used amount; None = its status has neither."""
    totals = [
        _sum_amounts(get_path(item, "status", f), part)
        for f in ("flavorsReservation", "flavorsUsage")
    ]
    return max((s for s in totals if s is not None), default=None)


def _sum_amounts(flavors: Any, part: CountedResource) -> float | None:
    if not isinstance(flavors, list):
        return None
    return sum(
        to_number(resource.get("total")) or 0.0
        for flavor in flavors
        for resource in flavor.get("resources") or ()
        if (flavor.get("name"), resource.get("name")) == (part.flavor, part.resource)
    )


SYSTEM = QuotaSystem(
    "ClusterQueue",
    "ClusterQueue",
    "kueue.x-k8s.io",
    list_accounts,
    list_field_changes,
    (Right("kueue.x-k8s.io", "clusterqueues", ("get", "list", "patch")),),
)
