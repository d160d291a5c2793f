"""ResourceQuota: a hard limit per namespace; the smallest of a namespace's quotas counts.

Only `requests.<resource>` limits an extended resource. The API accepts `limits.nvidia.com/gpu` and
enforces nothing, so it is never read and never written.
"""

from collections.abc import Sequence

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


def list_accounts(objects: Sequence[Object], part: CountedResource) -> list[Account]:
    """Return one account per quota; the namespace's smallest quota bounds the others."""
    name = f"requests.{part.resource}"
    limits: dict[str, list[tuple[str, float]]] = {}
    for item in objects:
        hard = to_number(get_path(item, "spec", "hard", name))
        if hard is not None and not _is_scoped(item):
            limits.setdefault(item["metadata"]["namespace"], []).append((get_key(item), hard))
    results = []
    for item in objects:
        key, others = get_key(item), limits.get(item["metadata"]["namespace"], [])
        results.append(
            Account(
                key,
                to_number(get_path(item, "spec", "hard", name)),
                used=to_number(get_path(item, "status", "used", name)),
                most=min((h for k, h in others if k != key), default=None),
            )
        )
    return results


def list_field_changes(item: Object, part: CountedResource, change: float) -> list[FieldChange]:
    """Return the one field there is."""
    path = ("spec", "hard", f"requests.{part.resource}")
    return [change_field(item, path, (to_number(get_path(item, *path)) or 0.0) + change)]


def _is_scoped(item: Object) -> bool:
    return bool(get_path(item, "spec", "scopes") or get_path(item, "spec", "scopeSelector"))


SYSTEM = QuotaSystem(
    "ResourceQuota",
    "ResourceQuota",
    "",
    list_accounts,
    list_field_changes,
    (Right("", "resourcequotas", ("get", "list", "patch")),),
)
