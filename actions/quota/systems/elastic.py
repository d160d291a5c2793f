"""ElasticQuota, which three projects have: min is guaranteed, max caps.

scheduler-plugins has one per namespace, no webhook and no tree. Koordinator has a tree by labels,
and a webhook: min <= max, the same keys, the siblings' min within the parent's, its own quotas
protected. The root of a tree is computed anew from nodes by its ElasticQuotaProfile: never
written. nos is unmaintained since 2024: read only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actions.quota.accounts import Account
from actions.quota.systems.system import (
    Field,
    Object,
    Part,
    System,
    deep,
    key_of,
    number,
    shifted,
)
from fallow.seams import Cluster, Right

LABELS = "quota.scheduling.koordinator.sh"
ROOT = "koordinator-root-quota"
OWN = {ROOT, "koordinator-default-quota", "koordinator-system-quota"}
PROFILES = "quota.koordinator.sh"


def plugins(objects: Sequence[Object], part: Part) -> list[Account]:
    """Return one account per namespace: of several quotas there the first one counts."""
    seen: set[str] = set()
    found = []
    for item in objects:
        space = str(item["metadata"]["namespace"])
        second = "another ElasticQuota of the namespace counts" if space in seen else ""
        seen.add(space)
        found.append(Account(key_of(item), _min(item, part), used=_used(item, part), fixed=second))
    return found


def koordinator(objects: Sequence[Object], part: Part) -> list[Account]:
    """Return the tree that the labels say; parents are named across namespaces."""
    by_name = {str(item["metadata"]["name"]): key_of(item) for item in objects}
    return [_one(item, part, by_name) for item in objects]


def nobody(_objects: Sequence[Object], _part: Part) -> list[Account]:
    """Return no account."""
    return []


def fields(item: Object, part: Part, change: float) -> list[Field]:
    """Return min, and max where min would outgrow it."""
    path, cap = ("spec", "min", part.resource), ("spec", "max", part.resource)
    to = (number(deep(item, *path)) or 0.0) + change
    found = [shifted(item, path, to)]
    most = number(deep(item, *cap))
    if most is not None and to > most:
        found.append(shifted(item, cap, to))
    return found


def profiled(item: Object, cluster: Cluster) -> str:
    """Refuse what an ElasticQuotaProfile computes from nodes."""
    path = cluster.collection("ElasticQuotaProfile", PROFILES)
    for profile in cluster.items(path) if path else ():
        if deep(profile, "spec", "quotaName") == item["metadata"]["name"]:
            return f"ElasticQuotaProfile {key_of(profile)} computes it from nodes"
    return ""


def unmaintained(_cluster: Cluster) -> str:
    """Refuse all of nos."""
    return "quotas of nos are read only here: the project is unmaintained"


def _one(item: Object, part: Part, by_name: Mapping[str, str]) -> Account:
    name = str(item["metadata"]["name"])
    labels = item["metadata"].get("labels") or {}
    above = str(labels.get(f"{LABELS}/parent") or ROOT)
    rooted = labels.get(f"{LABELS}/is-parent") == "true" or f"{LABELS}/tree-id" in labels
    used, asked = _used(item, part), _said(item, "request", part)
    fixed = ""
    if name in OWN:
        fixed = "it is Koordinator's own"
    elif above == ROOT and rooted:
        fixed = "it is the root of a tree"
    elif number(deep(item, "spec", "max", part.resource)) is None:
        fixed = f"its max does not name {part.resource}"
    return Account(
        key_of(item),
        _min(item, part),
        by_name.get(above) if above != name else None,
        used,
        max(0.0, (asked or 0.0) - (used or 0.0)),
        _said(item, "non-preemptible-used", part) or 0.0,
        fixed=fixed,
    )


def _min(item: Object, part: Part) -> float | None:
    return number(deep(item, "spec", "min", part.resource))


def _used(item: Object, part: Part) -> float | None:
    """Return what is used; a status that leaves the resource out says 0, none says nothing."""
    used = deep(item, "status", "used")
    return None if used is None else number(used.get(part.resource)) or 0.0


def _said(item: Object, word: str, part: Part) -> float | None:
    """Return an amount that an annotation spells as JSON."""
    text = (item["metadata"].get("annotations") or {}).get(f"{LABELS}/{word}")
    try:
        amounts: Any = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return None
    return number(amounts.get(part.resource)) if isinstance(amounts, Mapping) else None


PLUGINS = System(
    "ElasticQuota",
    "ElasticQuota",
    "scheduling.x-k8s.io",
    plugins,
    fields,
    (Right("scheduling.x-k8s.io", "elasticquotas", ("get", "list", "patch")),),
)
KOORDINATOR = System(
    "ElasticQuota.koordinator",
    "ElasticQuota",
    "scheduling.sigs.k8s.io",
    koordinator,
    fields,
    (
        Right("scheduling.sigs.k8s.io", "elasticquotas", ("get", "list", "patch")),
        Right(PROFILES, "elasticquotaprofiles", ("list",)),
    ),
    sums=True,
    stuck=profiled,
)
NOS = System(
    "ElasticQuota.nos", "ElasticQuota", "nos.nebuly.com", nobody, fields, closed=unmaintained
)
NOS_COMPOSITE = msgspec.structs.replace(
    NOS, kind="CompositeElasticQuota.nos", api_kind="CompositeElasticQuota"
)
