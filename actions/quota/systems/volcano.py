"""Volcano Queue: guarantee <= deserved <= capability, and a tree of queues.

`deserved` belongs to the capacity plug-in. With the proportion plug-in queues have a `weight` and
no `deserved`: those guarantee no number, and nothing is moved. The root queue's amounts are
immutable. A capability is raised where what is deserved would outgrow it, never above those of
the queues above.
"""

from collections.abc import Mapping, Sequence

from actions.quota.accounts import Account
from actions.quota.systems.system import Field, Object, Part, System, deep, key_of, number, shifted
from fallow.seams import Right

ROOT = "root"


def accounts(objects: Sequence[Object], part: Part) -> list[Account]:
    """Return the tree; a queue without a parent stands under the root."""
    known = {key_of(item): item for item in objects}
    return [_account(item, part, known) for item in objects]


def fields(item: Object, part: Part, change: float) -> list[Field]:
    """Return deserved, and capability where it has to make room."""
    path = ("spec", "deserved", part.resource)
    deserved = (number(deep(item, *path)) or 0.0) + change
    found = [shifted(item, path, deserved)]
    most = ("spec", "capability", part.resource)
    capability = number(deep(item, *most))
    if capability is not None and deserved > capability:
        found.append(shifted(item, most, deserved))
    return found


def _account(item: Object, part: Part, known: Mapping[str, Object]) -> Account:
    name = key_of(item)
    parent = deep(item, "spec", "parent") or ROOT
    state = deep(item, "status", "state") or "Open"
    caps = [
        number(deep(known[k], "spec", "capability", part.resource)) for k in _above(name, known)
    ]
    fixed = "the root queue's amounts are immutable" if name == ROOT else ""
    return Account(
        name,
        number(deep(item, "spec", "deserved", part.resource)),
        parent if name != ROOT and parent in known else None,
        _allocated(item, part),
        least=number(deep(item, "spec", "guarantee", "resource", part.resource)) or 0.0,
        most=min((c for c in caps if c is not None), default=None),
        fixed=fixed or ("" if state == "Open" else f"it is {state}"),
    )


def _allocated(item: Object, part: Part) -> float | None:
    """Return what runs; a status that leaves the resource out says 0, none says nothing."""
    if not item.get("status"):
        return None
    return number(deep(item, "status", "allocated", part.resource)) or 0.0


def _above(name: str, known: Mapping[str, Object]) -> list[str]:
    line: list[str] = []
    while name != ROOT:
        name = deep(known[name], "spec", "parent") or ROOT
        if name in line or name not in known:
            break
        line.append(name)
    return line


SYSTEM = System(
    "Queue.volcano",
    "Queue",
    "scheduling.volcano.sh",
    accounts,
    fields,
    (Right("scheduling.volcano.sh", "queues", ("get", "list", "patch")),),
    sums=True,
)
