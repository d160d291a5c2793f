"""Write responses in the requested form: whole objects, their metadata only, or table rows."""

from collections.abc import Callable, Sequence
from typing import Any

from simulator.kube.paths import RequestTarget
from simulator.kube.server_metadata import parse_time

Object = dict[str, Any]

WHOLE, PARTIAL, TABLE = "", "PartialObjectMetadata", "Table"
_LIST = "PartialObjectMetadataList"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def find_requested_form(accept: str) -> str:
    """Return the first form of the Accept header that is served."""
    for media in accept.split(","):
        words = {w.strip() for w in media.split(";")}
        if words & {f"as={PARTIAL}", f"as={_LIST}"}:
            return PARTIAL
        if {"as=Table", "v=v1"} <= words:
            return TABLE
        if words & {"application/json", "*/*"} and not any(w.startswith("as=") for w in words):
            return WHOLE
    return WHOLE


def convert_to_form(target: RequestTarget, item: Object, form: str, now: float) -> Object:
    """Return one object in the requested form and version."""
    if form == TABLE:
        return build_table(target, [item], {"resourceVersion": get_version(item)}, now)
    if form == PARTIAL:
        return convert_to_partial(item)
    return convert_to_version(target, item)


def get_version(item: Object) -> str:
    """Return an object's version."""
    return str((item.get("metadata") or {}).get("resourceVersion", ""))


def list_in_form(
    target: RequestTarget, items: Sequence[Object], metadata: Object, form: str, now: float
) -> Object:
    """Return a list in the requested form and version."""
    if form == TABLE:
        return build_table(target, items, metadata, now)
    if form == PARTIAL:
        kind, api = _LIST, "meta.k8s.io/v1"
        return {
            "kind": kind,
            "apiVersion": api,
            "metadata": metadata,
            "items": [convert_to_partial(i) for i in items],
        }
    if target.kind.custom:
        bodies = [convert_to_version(target, i) for i in items]
    else:  # items of built-in kinds have no kind
        bodies = [{k: v for k, v in i.items() if k not in {"apiVersion", "kind"}} for i in items]
    kind = f"{target.kind.kind}List"
    return {"kind": kind, "apiVersion": target.api_version, "metadata": metadata, "items": bodies}


def convert_to_version(target: RequestTarget, item: Object) -> Object:
    """Return an object in the requested version: the fields are the same in all versions."""
    if item.get("apiVersion") in {target.api_version, "autoscaling/v1"}:
        return item
    return {**item, "apiVersion": target.api_version}


def convert_to_partial(item: Object) -> Object:
    """Return an object's metadata only."""
    return {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def build_table(
    target: RequestTarget, items: Sequence[Object], metadata: Object, now: float
) -> Object:
    """Return objects as rows for a terminal, with few columns."""
    cells = [*_COLUMNS.get(target.kind.key, ()), ("Age", lambda i: format_age(i, now))]
    names = ["Name", *(name for name, _ in cells)]
    rows = [
        {
            "cells": [i["metadata"]["name"], *(cell(i) for _, cell in cells)],
            "object": convert_to_partial(i),
        }
        for i in items
    ]
    columns = [
        {
            "name": n,
            "type": "string",
            "format": "name" if n == "Name" else "",
            "description": n,
            "priority": 0,
        }
        for n in names
    ]
    return {
        "kind": TABLE,
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    }


def format_age(item: Object, now: float) -> str:
    """Return how old an object is, in its largest unit."""
    created_at = item["metadata"].get("creationTimestamp")
    if not created_at:
        return "<unknown>"
    seconds = max(int(now - parse_time(created_at)), 0)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def _format_ready(item: Object) -> str:
    status = item.get("status") or {}
    return f"{status.get('readyReplicas') or 0}/{(item.get('spec') or {}).get('replicas') or 0}"


def _format_pod_ready(item: Object) -> str:
    states = (item.get("status") or {}).get("containerStatuses") or ()
    total = len(item["spec"].get("containers") or ())
    return f"{sum(bool(s.get('ready')) for s in states)}/{total}"


def _find_pod_phase(item: Object) -> str:
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    return str((item.get("status") or {}).get("phase", "Unknown"))


def _format_node_status(item: Object) -> str:
    conditions = (item.get("status") or {}).get("conditions") or ()
    good = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    words = ["Ready" if good else "NotReady"]
    if (item.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _format_allowed(item: Object) -> str:
    return str((item.get("status") or {}).get("disruptionsAllowed", 0))


_COLUMNS: dict[str, tuple[tuple[str, Callable[[Object], str]], ...]] = {
    "Pod": (("Ready", _format_pod_ready), ("Status", _find_pod_phase)),
    "Node": (("Status", _format_node_status),),
    "Namespace": (("Status", lambda i: str((i.get("status") or {}).get("phase", ""))),),
    "Deployment": (("Ready", _format_ready),),
    "StatefulSet": (("Ready", _format_ready),),
    "ReplicaSet": (("Ready", _format_ready),),
    "PodDisruptionBudget": (("Allowed Disruptions", _format_allowed),),
}
