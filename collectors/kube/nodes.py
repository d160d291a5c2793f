"""Map nodes to rows of the `node` table: physical GPUs, location and price type."""

import logging
import math
import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from collectors.inventory import document, mark_unreadable
from collectors.kube.devices import Dra, read_hami_register
from collectors.kube.resources import select_gpus
from collectors.kube.shapes import Meta, Node
from collectors.kube.table import parse_table
from fallow.gpu_models import find_gpu_model
from fallow.kube.gpu_resources import (
    COUNTED,
    MIG_SLICES,
    MOST_DEVICES,
    GpuResource,
    find_gpu_resource,
)
from fallow.kube.pod_requests import read_amounts
from fallow.kube.quantities import LONGEST, parse_milli, parse_quantity, parse_whole
from fallow.resources import read_table

log = logging.getLogger("fallow.kube")

_PROVIDERS = {"aws": "aws", "gce": "gcp", "azure": "azure"}
_SUFFIX = re.compile(r"(-SHARED)$|-(MIG-[0-9]+g\.[0-9]+gb.*)$")
_PROFILE = re.compile(r"(\d{1,4})g\.(\d{1,4})gb", re.ASCII)
_SHARED = "-SHARED"
_REPLICAS = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")
_COUNT = "nvidia.com/gpu.count"
_PARTITION = "cloud.google.com/gke-gpu-partition-size"
SHARED_SUFFIX = ".shared"
"""What the device plugin adds to the name of a resource whose devices it shares."""


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs of one node; `count` is physical, null where it cannot be known."""

    resource: str | None = None
    count: int | None = 0
    model: str | None = None
    replicas: int | None = None
    sharing: str | None = None
    allocatable: int | None = None
    """Physical GPUs that the kubelet can allocate; null where instances or shares hide the GPUs."""


def build_node_row(node: Node, *, cluster: str, now: datetime, dra: Dra) -> dict[str, Any]:
    """Return one row of the `node` table; `first_seen` is the node's creation.

    What cannot be read is null, and the row's labels have the mark of an unreadable object.
    """
    meta = node.metadata
    faults = list(filter(None, [meta.unreadable]))
    try:
        row = _build_columns(node, cluster=cluster, now=now, dra=dra)
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
        "ready": None if ready is None else ready.status == "True",
        "unschedulable": bool(node.spec.unschedulable),
        "labels": document(labels),
        "taints": document(node.spec.taints),
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
    product, profile = model, labels.get(_PARTITION)
    if model is not None and (cut := _SUFFIX.search(model)):
        product, profile = model[: cut.start()], cut.group(2) or profile
    replicas = _find_replicas(labels, device_counts, profile)
    sharing = _find_sharing(labels, model, replicas, device_counts, profile)
    count = _count_physical(device_counts, labels, replicas or 1, profile, product)
    replicas_sharing = replicas if sharing in {"time-slicing", "mps"} else None
    main = max(device_counts, key=lambda r: (r.form != "mig", device_counts[r]))
    plain = profile is None and all(r.form != "mig" for r in device_counts)
    slice_devices = read_amounts(node.status.allocatable)
    allocatable = None
    if plain:
        # A GPU that fell off the bus keeps its label until discovery runs again, and it is paid
        # for.
        count = max(count, _parse_integer(labels.get(_COUNT)) or 0)
        if slice_devices:
            allocatable = min(count, _count_gpus(select_gpus(slice_devices), replicas or 1))
    return Gpus(main.name, count, product, replicas_sharing, sharing, allocatable)


def _find_replicas(
    labels: Mapping[str, str], device_counts: Mapping[GpuResource, Fraction], profile: str | None
) -> int | None:
    """Return into how many shares the plugin divides each device; None = nothing tells it."""
    named = (r.name for r in device_counts if r.form == "mig" and r.name.endswith(SHARED_SUFFIX))
    keys = (f"{name.removesuffix(SHARED_SUFFIX)}.replicas" for name in named)
    replicas = next(
        filter(None, (_parse_integer(labels.get(label)) for label in (*keys, *_REPLICAS))), None
    )
    gpu_limit = _find_gpu_limit(labels, device_counts) if profile is None else None
    if gpu_limit is not None and _count_gpus(device_counts, replicas or 1) > gpu_limit:
        # The label of the replicas is that of another configuration, or is not there.
        return math.ceil(sum(device_counts.values()) / gpu_limit)
    return replicas


def _find_gpu_limit(
    labels: Mapping[str, str], device_counts: Mapping[GpuResource, Fraction]
) -> int | None:
    """Return the GPUs of a node whose plugin offers shares or more than its machine has.

    A machine of a cloud's list has no more GPUs than its type. Without one, the count that
    discovery has found holds against a resource whose name says that it is shared.
    """
    if any(r.form == "mig" for r in device_counts):
        return None
    listed = _read_machines().get(read_labels("instance_type", labels) or "")
    shared = any(r.form == "shared" for r in device_counts)
    return listed or (_parse_integer(labels.get(_COUNT)) if shared else None)


@cache
def _read_machines() -> dict[str, int]:
    """Return the GPUs of each type of machine on the rate card."""
    rows = read_table("collectors.prices", "rate_card.csv")
    return {row["instance_type"]: int(row["gpu_count"]) for row in rows if row["instance_type"]}


def _read_slices(node: Node, dra: Dra, model: str | None) -> Gpus:
    slice_devices = dra.on_node(node.metadata.name)
    labels = node.metadata.labels or {}
    if (
        not slice_devices
    ):  # GPUs that discovery found although no device plugin offers them are paid for too
        labelled_count = _parse_integer(labels.get(_COUNT))
        cut = _SUFFIX.search(model or "")
        if labelled_count is None or (cut is not None and cut.group(2)):
            return Gpus()
        return Gpus(None, labelled_count, model[: cut.start()] if model and cut else model)
    gpu_count = {d.parent or d.uuid for d in slice_devices}
    product = model or next((d.product for d in slice_devices if d.product), None)
    return Gpus(None, len(gpu_count), product, None, "none")


def _find_sharing(
    labels: Mapping[str, str],
    model: str | None,
    replicas: int | None,
    device_counts: Mapping[GpuResource, Fraction],
    profile: str | None,
) -> str:
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "").lower()
    if strategy in {"time-slicing", "mps"}:
        return strategy
    gke = labels.get("cloud.google.com/gke-gpu-sharing-strategy", "").lower()
    if gke in {"time-sharing", "mps"}:
        return "time-slicing" if gke == "time-sharing" else gke
    shared = (model or "").endswith(_SHARED) or any(
        r.form == "shared" or r.name.endswith(SHARED_SUFFIX) for r in device_counts
    )
    if shared or (replicas or 1) > 1:
        return "time-slicing"
    return "mig" if profile or any(r.form == "mig" for r in device_counts) else "none"


def _count_physical(
    device_counts: Mapping[GpuResource, Fraction],
    labels: Mapping[str, str],
    replicas: int,
    profile: str | None,
    product: str | None,
) -> int:
    """Count GPUs: devices divided by replicas; instances divided by how many fill a GPU.

    The single strategy counts instances as GPUs. The mixed strategy names each profile and has a
    label with the number of GPUs. The GPUs are assumed to be fully partitioned; telemetry corrects
    this later.
    """
    gpu_count = _count_gpus(device_counts, replicas)
    if profile:
        return math.ceil(Fraction(gpu_count, count_instances_per_gpu(profile, product)))
    slices = sum(
        (
            n * (r.slices or 0) / (replicas if r.name.endswith(SHARED_SUFFIX) else 1)
            for r, n in device_counts.items()
            if r.form == "mig"
        ),
        Fraction(0),
    )
    if slices:
        gpu_count += math.ceil(slices / MIG_SLICES)
        gpu_count = max(gpu_count, _parse_integer(labels.get(_COUNT)) or 0)
    return gpu_count


def _count_gpus(device_counts: Mapping[GpuResource, Fraction], replicas: int) -> int:
    whole_or_shared = sum((n for r, n in device_counts.items() if r.form != "mig"), Fraction(0))
    return math.ceil(whole_or_shared / replicas)


def count_instances_per_gpu(profile: str, model: str | None) -> int:
    """Return how many instances of one profile fill a GPU.

    Compute slices: 7 (A30: 4); memory slices: 8 (A30: 4). Source:
    telemetry-and-waste.md#fragmentation-and-mig.
    """
    match = _PROFILE.search(profile)
    if match is None:
        return 1
    compute, gigabytes = int(match.group(1)), int(match.group(2))
    gpu_model = find_gpu_model(model)
    slices = (gpu_model.mig_slices if gpu_model else None) or MIG_SLICES
    memory_slices = 8 if slices == MIG_SLICES else slices
    per_instance = max(
        round(gigabytes / (gpu_model.memory_gib / memory_slices)) if gpu_model else 1, 1
    )
    return max(min(slices // compute, memory_slices // per_instance), 1)


@cache
def _select_labels() -> dict[str, list[tuple[str, str, str]]]:
    out: dict[str, list[tuple[str, str, str]]] = {}
    for row in parse_table("node_labels"):
        out.setdefault(row["field"], []).append(
            (row["label"].lower(), row["value"].lower(), row["means"])
        )
    return out


def read_labels(field: str, labels: Mapping[str, str]) -> str | None:
    """Return a node's labels by `node_labels.csv`; upper and lower case differ between clouds."""
    lowered = {key.lower(): value for key, value in labels.items()}
    for label, value, means in _select_labels()[field]:
        label_value = lowered.get(label)
        if label_value and not value:
            return label_value
        if label_value and label_value.lower() == value:
            return means
    return None


def _find_provider(provider_id: str | None) -> str | None:
    if not provider_id:
        return None
    return _PROVIDERS.get(provider_id.partition(":")[0], "other")


def _parse_integer(text: str | None) -> int | None:
    """Return a label's number of devices; None = it is no number, or an impossible one."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > len(str(MOST_DEVICES)):
        return None
    return int(text) if 0 < int(text) <= MOST_DEVICES else None
