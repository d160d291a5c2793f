"""KAI Queue: quota, limit and over-quota weight of GPUs, in a tree that its webhook only warns of.

So the sums are ours to keep. -1 is unlimited. What runs and cannot be preempted is never taken
from. All three fields of `gpu` are in every patch: the Go types have no omitempty, an absent one
reads as 0. Where Run:ai's control plane owns the queues, it overwrites them: nothing is written.
"""

from collections.abc import Sequence
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
from fallow.seams import Cluster, Right

UNLIMITED = -1
RUNAI_NAMESPACES = ("runai", "runai-backend")
FIELDS = ("quota", "limit", "overQuotaWeight")


def accounts(objects: Sequence[Object], part: Part) -> list[Account]:
    """Return the tree; none for a resource other than whole GPUs."""
    known = {key_of(item): item for item in objects}
    return [_account(item, part, known) for item in objects]


def fields(item: Object, _part: Part, change: float) -> list[Field]:
    """Return all three fields of `gpu`; the limit makes room where the quota outgrows it."""
    gpu = deep(item, "spec", "resources", "gpu") or {}
    quota = (number(gpu.get("quota")) or 0.0) + change
    limit = number(gpu.get("limit")) or 0.0
    new: dict[str, Any] = {k: gpu.get(k, 0) for k in FIELDS}
    new["quota"] = written(quota, gpu.get("quota"))
    if limit != UNLIMITED and limit < quota and change > 0:
        new["limit"] = written(quota, gpu.get("limit"))
    return [Field(pointer("spec", "resources", "gpu", k), gpu.get(k), new[k]) for k in FIELDS]


def closed(cluster: Cluster) -> str:
    """Refuse where Run:ai's operator is."""
    if cluster.collection("RunaiConfig", "run.ai"):
        return "Run:ai's operator owns the queues: change the project's quota in Run:ai"
    for name in RUNAI_NAMESPACES:
        if cluster.get(f"/api/v1/namespaces/{name}") is not None:
            return f"Run:ai owns the queues (namespace {name}): change the project's quota there"
    return ""


def _account(item: Object, part: Part, known: dict[str, Object]) -> Account:
    gpu = deep(item, "spec", "resources", "gpu")
    quota = number((gpu or {}).get("quota")) or 0.0
    said = gpu is not None and part.resource == "nvidia.com/gpu" and quota != UNLIMITED
    parent = deep(item, "spec", "parentQueue") or None
    used = _amount(item, "allocated", part)
    asked = _amount(item, "requested", part)
    limits = [_limit(known[k]) for k in _above(key_of(item), known)]
    fixed = "" if gpu is None or _limit(item) != 0 else "its limit of GPUs is 0 or not said"
    return Account(
        key_of(item),
        quota if said else None,
        parent if parent in known else None,
        used,
        max(0.0, (asked or 0.0) - (used or 0.0)),
        _amount(item, "allocatedNonPreemptible", part) or 0.0,
        min((x for x in limits if x is not None), default=None),
        fixed,
    )


def _amount(item: Object, field: str, part: Part) -> float | None:
    """Return an amount of the status; a status that leaves the resource out says 0."""
    if not deep(item, "status"):
        return None
    return number(deep(item, "status", field, part.resource)) or 0.0


def _limit(item: Object) -> float | None:
    """Return the limit of a queue; None = unlimited."""
    limit = number(deep(item, "spec", "resources", "gpu", "limit")) or 0.0
    return None if limit == UNLIMITED or deep(item, "spec", "resources", "gpu") is None else limit


def _above(name: str, known: dict[str, Object]) -> list[str]:
    line: list[str] = []
    while (name := deep(known[name], "spec", "parentQueue") or "") in known and name not in line:
        line.append(name)
    return line


SYSTEM = System(
    "Queue.kai",
    "Queue",
    "scheduling.run.ai",
    accounts,
    fields,
    (Right("scheduling.run.ai", "queues", ("get", "list", "patch")),),
    closed=closed,
)
