"""Map nodes to rows of the `node` table: physical GPUs, location and price type."""

import logging
from datetime import datetime
from typing import Any

from collectors.inventory import (
    DOUBTS,
    PART,
    WHOLE,
    document,
    list_unknown_resources,
    mark_unreadable,
)
from collectors.kube.devices import Dra, read_hami_register
from collectors.kube.shapes import Meta, Node
from fallow.kube.gpu_resources import COUNTED, MOST_DEVICES, find_gpu_resource, select_gpus
from fallow.kube.node_gpus import Gpus, count_gpus, read_labelled_gpus, read_labels
from fallow.kube.pod_requests import read_amounts
from fallow.kube.quantities import LONGEST, parse_milli, parse_quantity, parse_whole

log = logging.getLogger("fallow.kube")

_PROVIDERS = {"aws": "aws", "gce": "gcp", "azure": "azure"}


def build_node_row(
    node: Node, *, cluster: str, now: datetime, dra: Dra, is_whole: bool = True
) -> dict[str, Any]:
    """Return one row of the `node` table; `first_seen` is the node's creation.

    What cannot be read is null, and the row's labels have the mark of an unreadable object. A whole
    object without labels or taints has none; a partial one does not tell (null).
    """
    meta = node.metadata
    faults = list(filter(None, [meta.unreadable]))
    try:
        row = _build_columns(node, cluster=cluster, now=now, dra=dra)
        if is_whole:
            row |= {"labels": row["labels"] or "{}", "taints": row["taints"] or "[]"}
            row[WHOLE] = True
    except Exception as error:
        log.exception("a node cannot be read", extra={"node": meta.name})
        faults.append(f"{type(error).__name__}: {error}")
        bare = Node(Meta(meta.name, uid=meta.uid, creation_timestamp=meta.creation_timestamp))
        row = {**_build_columns(bare, cluster=cluster, now=now, dra=Dra()), "gpu_count": None}
    for side in (node.status.capacity, node.status.allocatable):
        for name, text in (side or {}).items():
            amount, resource = parse_quantity(text), find_gpu_resource(name)
            counted = resource is not None and resource.form in COUNTED
            if amount is None or (counted and amount > MOST_DEVICES):
                faults.append(f"{name}: {str(text)[:LONGEST]!r} is no amount that one node has")
                row["gpu_count"] = row["gpu_count"] or None
    return mark_unreadable("node", row, faults)


def _build_columns(node: Node, *, cluster: str, now: datetime, dra: Dra) -> dict[str, Any]:
    meta, labels = node.metadata, node.metadata.labels or {}
    allocatable = read_amounts(node.status.allocatable)
    gpus_of_node = read_node_gpus(node, dra)
    ready = next((c for c in node.status.conditions or () if c.type == "Ready"), None)
    provider = _find_provider(node.spec.provider_id)
    return {
        "cluster": cluster,
        "node": meta.name,
        "uid": meta.uid or None,
        "first_seen": meta.creation_timestamp or now,
        "last_seen": now,
        "provider": provider,
        "region": read_labels("region", labels),
        "zone": read_labels("zone", labels),
        "instance_type": read_labels("instance_type", labels),
        "capacity_type": read_labels("capacity_type", labels)
        or ("on-demand" if provider in _PROVIDERS.values() else None),
        "pool": read_labels("pool", labels),
        "cpu_milli": parse_milli(allocatable.get("cpu")),
        "memory_bytes": parse_whole(allocatable.get("memory")),
        "gpu_resource": gpus_of_node.resource,
        "gpu_count": gpus_of_node.count,
        "gpu_allocatable": gpus_of_node.allocatable,
        "gpu_model": gpus_of_node.model,
        "gpu_replicas": gpus_of_node.replicas,
        "sharing": gpus_of_node.sharing,
        PART: gpus_of_node.part,
        "ready": None if ready is None else ready.status == "True",
        "unschedulable": bool(node.spec.unschedulable),
        "labels": document(meta.labels),
        "taints": document(node.spec.taints),
        DOUBTS: [
            *(("node", "gpu_count", doubt, 0.0) for doubt in gpus_of_node.doubts),
            *list_unknown_resources(read_amounts(node.status.capacity)),
        ],
    }


def read_node_gpus(node: Node, dra: Dra) -> Gpus:
    """Return a node's physical GPUs from capacity, labels, HAMi's register or DRA slices."""
    labels = node.metadata.labels or {}
    model = read_labels("gpu_model", labels)
    registered = read_hami_register(node.metadata.annotations)
    device_counts = select_gpus(read_amounts(node.status.capacity))
    if registered:
        name = max(device_counts, key=lambda r: device_counts[r]).name if device_counts else None
        model = model or registered[0].type or None
        return Gpus(name, len(registered), model, max(d.count for d in registered), "hami")
    if not device_counts:
        return _read_slices(node, dra, model)
    return count_gpus(labels, device_counts, read_amounts(node.status.allocatable))


def _read_slices(node: Node, dra: Dra, model: str | None) -> Gpus:
    slice_devices = dra.on_node(node.metadata.name)
    if not slice_devices:
        return read_labelled_gpus(node.metadata.labels or {})
    gpu_count = {d.parent or d.id for d in slice_devices}
    product = model or next((d.product for d in slice_devices if d.product), None)
    return Gpus(None, len(gpu_count), product, None, "none")


def _find_provider(provider_id: str | None) -> str | None:
    if not provider_id:
        return None
    return _PROVIDERS.get(provider_id.partition(":")[0], "other")
