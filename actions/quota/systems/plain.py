"""ResourceQuota: a wall per namespace; the least of a namespace's quotas counts.

Only `requests.<resource>` meters an extended resource: `limits.nvidia.com/gpu` is accepted by the
API and enforces nothing, so it is never read and never written.
"""

from collections.abc import Sequence

from actions.quota.accounts import Account
from actions.quota.systems.system import Field, Object, Part, System, deep, key_of, number, shifted
from fallow.seams import Right


def accounts(objects: Sequence[Object], part: Part) -> list[Account]:
    """Return one account per quota; more than another quota of the namespace is no use."""
    name = f"requests.{part.resource}"
    walls: dict[str, list[tuple[str, float]]] = {}
    for item in objects:
        hard = number(deep(item, "spec", "hard", name))
        if hard is not None and not _scoped(item):
            walls.setdefault(item["metadata"]["namespace"], []).append((key_of(item), hard))
    found = []
    for item in objects:
        key, others = key_of(item), walls.get(item["metadata"]["namespace"], [])
        found.append(
            Account(
                key,
                number(deep(item, "spec", "hard", name)),
                used=number(deep(item, "status", "used", name)),
                most=min((h for k, h in others if k != key), default=None),
            )
        )
    return found


def fields(item: Object, part: Part, change: float) -> list[Field]:
    """Return the one field there is."""
    path = ("spec", "hard", f"requests.{part.resource}")
    return [shifted(item, path, (number(deep(item, *path)) or 0.0) + change)]


def _scoped(item: Object) -> bool:
    return bool(deep(item, "spec", "scopes") or deep(item, "spec", "scopeSelector"))


SYSTEM = System(
    "ResourceQuota",
    "ResourceQuota",
    "",
    accounts,
    fields,
    (Right("", "resourcequotas", ("get", "list", "patch")),),
)
