"""KAI Queue: quota, limit and over-quota weight of GPUs, in a tree that its webhook only warns of.

The solver therefore has to keep the sums. -1 is unlimited. GPUs of running pods that cannot be
preempted are never taken. All three fields of `gpu` are in every patch: the Go types have no
omitempty, so an absent field reads as 0. Where Run:ai's control plane owns the queues, it
overwrites them: nothing is written.
"""

from collections.abc import Sequence
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
from fallow.protocols import ClusterReader, Right

UNLIMITED = -1
RUNAI_NAMESPACES = ("runai", "runai-backend")
FIELDS = ("quota", "limit", "overQuotaWeight")


def list_accounts(objects: Sequence[Object], part: CountedResource) -> list[Account]:
    """Return the tree; none for a resource other than whole GPUs."""
    queues = {get_key(item): item for item in objects}
    return [_account(item, part, queues) for item in objects]


def list_field_changes(item: Object, _part: CountedResource, change: float) -> list[FieldChange]:
    """Return all three fields of `gpu`; the limit rises where the quota would exceed it."""
    gpu = get_path(item, "spec", "resources", "gpu") or {}
    quota = (to_number(gpu.get("quota")) or 0.0) + change
    limit = to_number(gpu.get("limit")) or 0.0
    new: dict[str, Any] = {k: gpu.get(k, 0) for k in FIELDS}
    new["quota"] = format_amount(quota, gpu.get("quota"))
    if limit != UNLIMITED and limit < quota and change > 0:
        new["limit"] = format_amount(quota, gpu.get("limit"))
    return [
        FieldChange(join_pointer("spec", "resources", "gpu", k), gpu.get(k), new[k]) for k in FIELDS
    ]


def explain_closed(cluster: ClusterReader) -> str:
    """Refuse where Run:ai's operator is installed."""
    if cluster.collection("RunaiConfig", "run.ai"):
        return "Run:ai's operator owns the queues: change the project's quota in Run:ai"
    for name in RUNAI_NAMESPACES:
        if cluster.get(f"/api/v1/namespaces/{name}") is not None:
            return f"Run:ai owns the queues (namespace {name}): change the project's quota there"
    return ""


def _account(item: Object, part: CountedResource, queues: dict[str, Object]) -> Account:
    gpu = get_path(item, "spec", "resources", "gpu")
    quota = to_number((gpu or {}).get("quota")) or 0.0
    has_quota = gpu is not None and part.resource == "nvidia.com/gpu" and quota != UNLIMITED
    parent = get_path(item, "spec", "parentQueue") or None
    used = _get_amount(item, "allocated", part)
    requested = _get_amount(item, "requested", part)
    limits = [_limit(queues[k]) for k in _list_ancestors(get_key(item), queues)]
    fixed = "" if gpu is None or _limit(item) != 0 else "its limit of GPUs is 0 or not said"
    return Account(
        get_key(item),
        quota if has_quota else None,
        parent if parent in queues else None,
        used,
        max(0.0, (requested or 0.0) - (used or 0.0)),
        _get_amount(item, "allocatedNonPreemptible", part) or 0.0,
        min((x for x in limits if x is not None), default=None),
        fixed,
    )


def _get_amount(item: Object, field: str, part: CountedResource) -> float | None:
    """Return an amount of the status; a status without the resource means 0."""
    if not get_path(item, "status"):
        return None
    return to_number(get_path(item, "status", field, part.resource)) or 0.0


def _limit(item: Object) -> float | None:
    """Return the limit of a queue; None = unlimited."""
    limit = to_number(get_path(item, "spec", "resources", "gpu", "limit")) or 0.0
    return (
        None if limit == UNLIMITED or get_path(item, "spec", "resources", "gpu") is None else limit
    )


def _list_ancestors(name: str, queues: dict[str, Object]) -> list[str]:
    ancestors: list[str] = []
    while (
        name := get_path(queues[name], "spec", "parentQueue") or ""
    ) in queues and name not in ancestors:
        ancestors.append(name)
    return ancestors


SYSTEM = QuotaSystem(
    "Queue.kai",
    "Queue",
    "scheduling.run.ai",
    list_accounts,
    list_field_changes,
    (Right("scheduling.run.ai", "queues", ("get", "list", "patch")),),
    closed=explain_closed,
)
