"""Map quotas of every scheduler to rows of the `quota` table: one per object and resource.

Resources keep Kubernetes' names (`nvidia.com/gpu`, `cpu` in cores, `memory` in bytes); a Kueue
flavor follows an @: `nvidia.com/gpu@a100`.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from collectors.kube.queues import Queues
from collectors.kube.shapes import CustomObject
from collectors.kube.table import parse_table
from fallow.errors import UNREADABLE_JSON
from fallow.kube.values import get_map, list_maps, parse_number

UNLIMITED = -1
"""KAI's value for no limit."""

_KAI = {"gpu": ("nvidia.com/gpu", 1.0), "cpu": ("cpu", 1e-3), "memory": ("memory", 1e6)}
_METERED_LIMITS = ("limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores")
"""Limits that HAMi's webhook enforces; Kubernetes enforces no limits.* of extended resources."""

_KOORDINATOR = "quota.scheduling.koordinator.sh"

Row = dict[str, Any]


class QuotaKind(msgspec.Struct, frozen=True):
    """A kind of object that limits resources, and its shape."""

    kind: str
    group: str
    plural: str
    shape: str
    namespaced: str


@cache
def read_quota_kinds() -> tuple[QuotaKind, ...]:
    """Return the kinds of `quota_kinds.csv`."""
    return tuple(QuotaKind(**row) for row in parse_table("quota_kinds"))


def list_quota_rows(
    kind: QuotaKind,
    item: CustomObject,
    *,
    cluster: str,
    now: datetime,
    queues: Queues | None = None,
) -> Iterator[Row]:
    """Yield the rows of one object; a field of an unexpected shape counts as absent.

    `queues` has the pending requests that the objects do not have; a LocalQueue's row of them names
    no flavor.
    """
    rows = _SHAPES[kind.shape](item)
    if queues is not None:
        for resource, amount in queues.waiting(
            kind.kind, item.metadata.namespace, item.metadata.name
        ).items():
            rows.setdefault(resource, {})["waiting"] = amount
    if kind.shape == "local_queue":
        for row in rows.values():
            row["parent"] = get_map(item.spec).get("clusterQueue")
    for resource, amounts in rows.items():
        yield {
            "cluster": cluster,
            "ts": now,
            "kind": kind.kind,
            "namespace": item.metadata.namespace,
            "name": item.metadata.name,
            "resource": resource,
            **amounts,
        }


def _read_resource_quota(item: CustomObject) -> dict[str, Row]:
    hard = get_map(get_map(item.status).get("hard")) or get_map(get_map(item.spec).get("hard"))
    used = get_map(get_map(item.status).get("used"))
    out: dict[str, Row] = {}
    for name, amount in hard.items():
        if name.startswith("limits.") and name not in _METERED_LIMITS:
            continue
        value = parse_number(amount)
        out[name.removeprefix("requests.")] = {
            "nominal": value,
            "limit": value,
            "used": parse_number(used.get(name)),
        }
    return out


def _read_cluster_queue(item: CustomObject) -> dict[str, Row]:
    spec, status = get_map(item.spec), get_map(item.status)
    cohort = spec.get("cohortName") or spec.get("cohort") or None
    usage = _group_by_flavor(status.get("flavorsUsage"))
    out: dict[str, Row] = {}
    for name, amounts in _read_quotas(spec, borrows=bool(cohort)).items():
        used = usage.get(name, {})
        out[name] = {
            **amounts,
            "used": parse_number(used.get("total")),
            "borrowed": parse_number(used.get("borrowed")),
            "pending": _parse_integer(status.get("pendingWorkloads")),
            "parent": cohort,
        }
    return out


def _read_cohort(item: CustomObject) -> dict[str, Row]:
    """Read a cohort's own quota and limits; a cohort without any still names its parent."""
    spec = get_map(item.spec)
    parent = spec.get("parentName") or None
    rows = _read_quotas(spec, borrows=bool(parent))
    return {name: {**row, "parent": parent} for name, row in rows.items()} or {
        "cohorts": {"parent": parent}
    }


def _read_quotas(spec: Mapping[str, Any], *, borrows: bool) -> dict[str, Row]:
    """Return nominal quota, limit and lending limit of resource groups, by resource and flavor."""
    out: dict[str, Row] = {}
    for flavor, resource in _list_flavors(spec.get("resourceGroups")):
        nominal, limit = parse_number(resource.get("nominalQuota")), None
        if borrows:
            extra = parse_number(resource.get("borrowingLimit"))
            limit = None if extra is None or nominal is None else nominal + extra
        else:
            limit = nominal
        out[f"{resource.get('name')}@{flavor}"] = {
            "nominal": nominal,
            "limit": limit,
            "lending": parse_number(resource.get("lendingLimit")),
        }
    return out


def _read_local_queue(item: CustomObject) -> dict[str, Row]:
    spec, status = get_map(item.spec), get_map(item.status)
    usage = _group_by_flavor(status.get("flavorsUsage") or status.get("flavorUsage"))
    pending, parent = _parse_integer(status.get("pendingWorkloads")), spec.get("clusterQueue")
    rows: dict[str, Row] = {
        name: {"used": parse_number(used.get("total")), "pending": pending, "parent": parent}
        for name, used in usage.items()
    }
    return rows or {"workloads": {"pending": pending, "parent": parent}}


def _read_volcano_queue(item: CustomObject) -> dict[str, Row]:
    spec, status = get_map(item.spec), get_map(item.status)
    nominal, limit = get_map(spec.get("deserved")), get_map(spec.get("capability"))
    used = get_map(status.get("allocated"))
    shared = {
        "pending": _parse_integer(status.get("pending")),
        "parent": spec.get("parent") or None,
    }
    names = sorted({*nominal, *limit, *used}) or ["podgroups"]
    return {name: {**_build_quota_row(nominal, limit, used, name), **shared} for name in names}


def _read_kai_queue(item: CustomObject) -> dict[str, Row]:
    spec, status = get_map(item.spec), get_map(item.status)
    used, parent = get_map(status.get("allocated")), spec.get("parentQueue") or None
    requested = get_map(status.get("requested"))
    out: dict[str, Row] = {}
    for field, amounts in get_map(spec.get("resources")).items():
        if field not in _KAI:
            continue
        name, scale = _KAI[field]
        quota, limit = (parse_number(get_map(amounts).get(k)) for k in ("quota", "limit"))
        out[name] = {
            "nominal": None if quota in {None, UNLIMITED} else (quota or 0) * scale,
            "limit": None if limit in {None, UNLIMITED} else (limit or 0) * scale,
            "used": parse_number(used.get(name)),
            "parent": parent,
            **_build_waiting_row(requested, used, name),
        }
    return out


def _read_elastic_quota(item: CustomObject) -> dict[str, Row]:
    spec, used = get_map(item.spec), get_map(get_map(item.status).get("used"))
    nominal, limit = get_map(spec.get("min")), get_map(spec.get("max"))
    parent = (item.metadata.labels or {}).get(f"{_KOORDINATOR}/parent")
    requested = _parse_amounts((item.metadata.annotations or {}).get(f"{_KOORDINATOR}/request"))
    names = sorted({*nominal, *limit, *used})
    return {
        name: {
            **_build_quota_row(nominal, limit, used, name),
            "parent": parent,
            **_build_waiting_row(requested, used, name),
        }
        for name in names
    }


_SHAPES: dict[str, Callable[[CustomObject], dict[str, Row]]] = {
    "resource_quota": _read_resource_quota,
    "cluster_queue": _read_cluster_queue,
    "cohort": _read_cohort,
    "local_queue": _read_local_queue,
    "volcano_queue": _read_volcano_queue,
    "kai_queue": _read_kai_queue,
    "elastic_quota": _read_elastic_quota,
}


def _build_quota_row(
    nominal: Mapping[str, Any], limit: Mapping[str, Any], used: Mapping[str, Any], name: str
) -> Row:
    return {
        "nominal": parse_number(nominal.get(name)),
        "limit": parse_number(limit.get(name)),
        "used": parse_number(used.get(name)),
    }


def _build_waiting_row(requested: Mapping[str, Any], used: Mapping[str, Any], name: str) -> Row:
    """Return the requests above what is allocated, where the object has the requests."""
    requested_amount = parse_number(requested.get(name))
    if requested_amount is None:
        return {}
    return {"waiting": max(0.0, requested_amount - (parse_number(used.get(name)) or 0.0))}


def _parse_amounts(text: str | None) -> Mapping[str, Any]:
    """Return the amounts in an annotation's JSON."""
    try:
        return get_map(msgspec.json.decode(text or "{}"))
    except UNREADABLE_JSON:
        return {}


def _list_flavors(groups: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in list_maps(groups):
        for flavor in list_maps(group.get("flavors")):
            for resource in list_maps(flavor.get("resources")):
                yield str(flavor.get("name")), resource


def _group_by_flavor(usage: object) -> dict[str, Mapping[str, Any]]:
    return {
        f"{resource.get('name')}@{flavor.get('name')}": resource
        for flavor in list_maps(usage)
        for resource in list_maps(flavor.get("resources"))
    }


def _parse_integer(value: object) -> int | None:
    return value if isinstance(value, int) else None
