"""ElasticQuota, a kind of three projects: min is guaranteed, max is the limit.

scheduler-plugins has one per namespace, no webhook and no tree. Koordinator has a tree by labels
and a webhook. The webhook requires min <= max, the same keys, and the siblings' min within the
parent's; it protects its own quotas. An ElasticQuotaProfile computes the root of a tree from nodes:
it is never written. nos is unmaintained since 2024: read only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

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
from fallow.errors import UNREADABLE_JSON
from fallow.protocols import ClusterReader, Right

LABELS = "quota.scheduling.koordinator.sh"
ROOT = "koordinator-root-quota"
SYSTEM_QUOTAS = {ROOT, "koordinator-default-quota", "koordinator-system-quota"}
PROFILES = "quota.koordinator.sh"


def read_scheduler_plugins(objects: Sequence[Object], part: CountedResource) -> list[Account]:
    """Return one account per namespace: of several quotas in a namespace the first one counts."""
    namespaces: set[str] = set()
    accounts = []
    for item in objects:
        namespace = str(item["metadata"]["namespace"])
        second = "another ElasticQuota of the namespace counts" if namespace in namespaces else ""
        namespaces.add(namespace)
        accounts.append(
            Account(get_key(item), _get_min(item, part), used=_get_used(item, part), fixed=second)
        )
    return accounts


def read_koordinator(objects: Sequence[Object], part: CountedResource) -> list[Account]:
    """Return the tree by labels; parents are named across namespaces."""
    by_name = {str(item["metadata"]["name"]): get_key(item) for item in objects}
    return [_account(item, part, by_name) for item in objects]


def read_none(_objects: Sequence[Object], _part: CountedResource) -> list[Account]:
    """Return no account."""
    return []


def list_field_changes(item: Object, part: CountedResource, change: float) -> list[FieldChange]:
    """Return min, and max where min would exceed it."""
    path, cap = ("spec", "min", part.resource), ("spec", "max", part.resource)
    amount = (to_number(get_path(item, *path)) or 0.0) + change
    changes = [change_field(item, path, amount)]
    maximum = to_number(get_path(item, *cap))
    if maximum is not None and amount > maximum:
        changes.append(change_field(item, cap, amount))
    return changes


def explain_profile(item: Object, cluster: ClusterReader) -> str:
    """Refuse objects that an ElasticQuotaProfile computes from nodes."""
    path = cluster.collection("ElasticQuotaProfile", PROFILES)
    for profile in cluster.items(path) if path else ():
        if get_path(profile, "spec", "quotaName") == item["metadata"]["name"]:
            return f"ElasticQuotaProfile {get_key(profile)} computes it from nodes"
    return ""


def explain_unmaintained(_cluster: ClusterReader) -> str:
    """Refuse all objects of nos."""
    return "quotas of nos are read only here: the project is unmaintained"


def _account(item: Object, part: CountedResource, by_name: Mapping[str, str]) -> Account:
    name = str(item["metadata"]["name"])
    labels = item["metadata"].get("labels") or {}
    parent = str(labels.get(f"{LABELS}/parent") or ROOT)
    is_root = labels.get(f"{LABELS}/is-parent") == "true" or f"{LABELS}/tree-id" in labels
    used, requested = _get_used(item, part), _read_annotation(item, "request", part)
    fixed = ""
    if name in SYSTEM_QUOTAS:
        fixed = "it is Koordinator's own"
    elif parent == ROOT and is_root:
        fixed = "it is the root of a tree"
    elif to_number(get_path(item, "spec", "max", part.resource)) is None:
        fixed = f"its max does not name {part.resource}"
    return Account(
        get_key(item),
        _get_min(item, part),
        by_name.get(parent) if parent != name else None,
        used,
        max(0.0, (requested or 0.0) - (used or 0.0)),
        _read_annotation(item, "non-preemptible-used", part) or 0.0,
        fixed=fixed,
    )


def _get_min(item: Object, part: CountedResource) -> float | None:
    return to_number(get_path(item, "spec", "min", part.resource))


def _get_used(item: Object, part: CountedResource) -> float | None:
    """Return the amount used; a status without the resource means 0, no status means unknown."""
    used = get_path(item, "status", "used")
    return None if used is None else to_number(used.get(part.resource)) or 0.0


def _read_annotation(item: Object, name: str, part: CountedResource) -> float | None:
    """Return an amount from an annotation with JSON."""
    text = (item["metadata"].get("annotations") or {}).get(f"{LABELS}/{name}")
    try:
        amounts: Any = msgspec.json.decode(text) if text else {}
    except UNREADABLE_JSON:
        return None
    return to_number(amounts.get(part.resource)) if isinstance(amounts, Mapping) else None


PLUGINS = QuotaSystem(
    "ElasticQuota",
    "ElasticQuota",
    "scheduling.x-k8s.io",
    read_scheduler_plugins,
    list_field_changes,
    (Right("scheduling.x-k8s.io", "elasticquotas", ("get", "list", "patch")),),
)
KOORDINATOR = QuotaSystem(
    "ElasticQuota.koordinator",
    "ElasticQuota",
    "scheduling.sigs.k8s.io",
    read_koordinator,
    list_field_changes,
    (
        Right("scheduling.sigs.k8s.io", "elasticquotas", ("get", "list", "patch")),
        Right(PROFILES, "elasticquotaprofiles", ("list",)),
    ),
    sums=True,
    stuck=explain_profile,
)
NOS = QuotaSystem(
    "ElasticQuota.nos",
    "ElasticQuota",
    "nos.nebuly.com",
    read_none,
    list_field_changes,
    closed=explain_unmaintained,
)
NOS_COMPOSITE = msgspec.structs.replace(
    NOS, kind="CompositeElasticQuota.nos", api_kind="CompositeElasticQuota"
)
