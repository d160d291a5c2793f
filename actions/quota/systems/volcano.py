"""Volcano Queue: guarantee <= deserved <= capability, and a tree of queues.

`deserved` belongs to the capacity plug-in. With the proportion plug-in queues have a `weight` and
no `deserved`: they guarantee no number, and nothing is moved. The root queue's amounts are
immutable. A capability is raised where the deserved amount would exceed it, but never above those
of the queues above.
"""

from collections.abc import Mapping, Sequence

from actions.quota.accounts import Account
from actions.quota.systems.system import (
    CountedResource,
    FieldChange,
    Object,
    QuotaSystem,
    change_field,
    get_key,
    get_path,
    to_number,
)
from fallow.protocols import Right

ROOT = "root"


def list_accounts(objects: Sequence[Object], part: CountedResource) -> list[Account]:
    """Return the tree; a queue without a parent is a child of the root."""
    queues = {get_key(item): item for item in objects}
    return [_account(item, part, queues) for item in objects]


def list_field_changes(item: Object, part: CountedResource, change: float) -> list[FieldChange]:
    """Return deserved, and capability where it has to rise."""
    path = ("spec", "deserved", part.resource)
    deserved = (to_number(get_path(item, *path)) or 0.0) + change
    changes = [change_field(item, path, deserved)]
    path_of_cap = ("spec", "capability", part.resource)
    capability = to_number(get_path(item, *path_of_cap))
    if capability is not None and deserved > capability:
        changes.append(change_field(item, path_of_cap, deserved))
    return changes


def _account(item: Object, part: CountedResource, queues: Mapping[str, Object]) -> Account:
    name = get_key(item)
    parent = get_path(item, "spec", "parent") or ROOT
    state = get_path(item, "status", "state") or "Open"
    caps = [
        to_number(get_path(queues[k], "spec", "capability", part.resource))
        for k in _list_ancestors(name, queues)
    ]
    fixed = "the root queue's amounts are immutable" if name == ROOT else ""
    return Account(
        name,
        to_number(get_path(item, "spec", "deserved", part.resource)),
        parent if name != ROOT and parent in queues else None,
        _get_allocated(item, part),
        least=to_number(get_path(item, "spec", "guarantee", "resource", part.resource)) or 0.0,
        most=min((c for c in caps if c is not None), default=None),
        fixed=fixed or ("" if state == "Open" else f"it is {state}"),
    )


def _get_allocated(item: Object, part: CountedResource) -> float | None:
    """Return the allocated amount.

    A status without the resource means 0, no status means unknown.
    """
    if not item.get("status"):
        return None
    return to_number(get_path(item, "status", "allocated", part.resource)) or 0.0


def _list_ancestors(name: str, queues: Mapping[str, Object]) -> list[str]:
    ancestors: list[str] = []
    while name != ROOT:
        name = get_path(queues[name], "spec", "parent") or ROOT
        if name in ancestors or name not in queues:
            break
        ancestors.append(name)
    return ancestors


SYSTEM = QuotaSystem(
    "Queue.volcano",
    "Queue",
    "scheduling.volcano.sh",
    list_accounts,
    list_field_changes,
    (Right("scheduling.volcano.sh", "queues", ("get", "list", "patch")),),
    sums=True,
)
