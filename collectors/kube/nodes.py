"""Nodes to rows of the `node` table: physical GPUs, where they stand and how they are paid for."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from collectors.inventory import document
from collectors.kube.devices import Dra, hami_registered
from collectors.kube.quantities import milli, whole
from collectors.kube.resources import amounts, gpus
from collectors.kube.shapes import Node
from collectors.kube.table import table
from fallow.gpu_models import canonical
from fallow.kube.gpu_resources import MIG_SLICES, GpuResource

_PROVIDERS = {"aws": "aws", "gce": "gcp", "azure": "azure"}
_SUFFIX = re.compile(r"(-SHARED)$|-(MIG-[0-9]+g\.[0-9]+gb.*)$")
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb")
_SHARED = "-SHARED"
_REPLICAS = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs of one node; `count` is physical, null where it cannot be known."""

    resource: str | None = None
    count: int | None = 0
    model: str | None = None
    replicas: int | None = None
    sharing: str | None = None
    allocatable: int | None = None
    """Physical GPUs that the kubelet can give out; null where instances or shares hide boards."""


def node_row(node: Node, *, cluster: str, now: datetime, dra: Dra) -> dict[str, Any]:
    """Return one row of the `node` table; `first_seen` is the node's creation."""
    meta, labels = node.metadata, node.metadata.labels or {}
    allocatable = amounts(node.status.allocatable)
    found = node_gpus(node, dra)
    ready = next((c for c in node.status.conditions or () if c.type == "Ready"), None)
    provider = _provider(node.spec.provider_id)
    return {
        "cluster": cluster,
        "node": meta.name,
        "uid": meta.uid or None,
        "first_seen": meta.creation_timestamp or now,
        "last_seen": now,
        "provider": provider,
        "region": labelled("region", labels),
        "zone": labelled("zone", labels),
        "instance_type": labelled("instance_type", labels),
        "capacity_type": labelled("capacity_type", labels)
        or ("on-demand" if provider in _PROVIDERS.values() else None),
        "pool": labelled("pool", labels),
        "cpu_milli": milli(allocatable.get("cpu")),
        "memory_bytes": whole(allocatable.get("memory")),
        "gpu_resource": found.resource,
        "gpu_count": found.count,
        "gpu_allocatable": found.allocatable,
        "gpu_model": found.model,
        "gpu_replicas": found.replicas,
        "sharing": found.sharing,
        "ready": None if ready is None else ready.status == "True",
        "unschedulable": bool(node.spec.unschedulable),
        "labels": document(labels),
        "taints": document(node.spec.taints),
    }


def node_gpus(node: Node, dra: Dra) -> Gpus:
    """Return a node's physical GPUs from capacity, labels, HAMi's register or DRA slices."""
    labels = node.metadata.labels or {}
    model = labelled("gpu_model", labels)
    registered = hami_registered(node.metadata.annotations)
    counted = gpus(amounts(node.status.capacity))
    if registered:
        name = max(counted, key=lambda r: counted[r]).name if counted else None
        model = model or registered[0].type or None
        return Gpus(name, len(registered), model, max(d.count for d in registered), "hami")
    if not counted:
        return _from_slices(node, dra, model)
    replicas = next(filter(None, (_integer(labels.get(label)) for label in _REPLICAS)), None)
    product, profile = model, None
    if model is not None and (cut := _SUFFIX.search(model)):
        product, profile = model[: cut.start()], cut.group(2)
    sharing = _sharing(labels, model, replicas, counted, profile)
    count = _physical(counted, labels, replicas or 1, profile, product)
    shown = replicas if sharing in {"time-slicing", "mps"} else None
    main = max(counted, key=lambda r: (r.form != "mig", counted[r]))
    plain = profile is None and all(r.form != "mig" for r in counted)
    offered = amounts(node.status.allocatable)
    allocatable = None
    if plain:
        # A board that fell off its bus is still labelled until discovery runs again, and paid for.
        count = max(count, _integer(labels.get("nvidia.com/gpu.count")) or 0)
        if offered:
            allocatable = min(count, _boards(gpus(offered), replicas or 1))
    return Gpus(main.name, count, product, shown, sharing, allocatable)


def _from_slices(node: Node, dra: Dra, model: str | None) -> Gpus:
    offered = dra.on_node(node.metadata.name)
    labels = node.metadata.labels or {}
    if not offered:  # boards that discovery saw although no plug-in offers them are paid for too
        seen = _integer(labels.get("nvidia.com/gpu.count"))
        cut = _SUFFIX.search(model or "")
        if seen is None or (cut is not None and cut.group(2)):
            return Gpus()
        return Gpus(None, seen, model[: cut.start()] if model and cut else model)
    boards = {d.parent or d.uuid for d in offered}
    product = model or next((d.product for d in offered if d.product), None)
    return Gpus(None, len(boards), product, None, "none")


def _sharing(
    labels: Mapping[str, str],
    model: str | None,
    replicas: int | None,
    counted: Mapping[GpuResource, Fraction],
    profile: str | None,
) -> str:
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "").lower()
    if strategy in {"time-slicing", "mps"}:
        return strategy
    gke = labels.get("cloud.google.com/gke-gpu-sharing-strategy", "").lower()
    if gke in {"time-sharing", "mps"}:
        return "time-slicing" if gke == "time-sharing" else gke
    shared = (model or "").endswith(_SHARED) or any(r.form == "shared" for r in counted)
    if shared or (replicas or 1) > 1:
        return "time-slicing"
    return "mig" if profile or any(r.form == "mig" for r in counted) else "none"


def _physical(
    counted: Mapping[GpuResource, Fraction],
    labels: Mapping[str, str],
    replicas: int,
    profile: str | None,
    product: str | None,
) -> int:
    """Count boards: devices over replicas; instances over how many of them fill a board.

    The single strategy counts instances as GPUs; the mixed one names each profile and labels the
    boards' own number. A board is taken to be cut up whole: telemetry knows better later.
    """
    boards = _boards(counted, replicas)
    if profile:
        return math.ceil(Fraction(boards, instances_per_board(profile, product)))
    slices = sum((n * (r.slices or 0) for r, n in counted.items() if r.form == "mig"), Fraction(0))
    if slices:
        boards += math.ceil(slices / MIG_SLICES)
        boards = max(boards, _integer(labels.get("nvidia.com/gpu.count")) or 0)
    return boards


def _boards(counted: Mapping[GpuResource, Fraction], replicas: int) -> int:
    whole_or_shared = sum((n for r, n in counted.items() if r.form != "mig"), Fraction(0))
    return math.ceil(whole_or_shared / replicas)


def instances_per_board(profile: str, model: str | None) -> int:
    """Return how many instances of one profile fill a board.

    Compute slices: 7 (A30: 4); memory slices: 8 (A30: 4). Source:
    telemetry-and-waste.md#fragmentation-and-mig.
    """
    match = _PROFILE.search(profile)
    if match is None:
        return 1
    compute, gigabytes = int(match.group(1)), int(match.group(2))
    known = canonical(model)
    slices = (known.mig_slices if known else None) or MIG_SLICES
    memory_slices = 8 if slices == MIG_SLICES else slices
    per_instance = max(round(gigabytes / (known.memory_gib / memory_slices)) if known else 1, 1)
    return max(min(slices // compute, memory_slices // per_instance), 1)


@cache
def _labels() -> dict[str, list[tuple[str, str, str]]]:
    out: dict[str, list[tuple[str, str, str]]] = {}
    for row in table("node_labels"):
        out.setdefault(row["field"], []).append(
            (row["label"].lower(), row["value"].lower(), row["means"])
        )
    return out


def labelled(field: str, labels: Mapping[str, str]) -> str | None:
    """Return what `node_labels.csv` makes of a node's labels; case differs between clouds."""
    lowered = {key.lower(): value for key, value in labels.items()}
    for label, value, means in _labels()[field]:
        have = lowered.get(label)
        if have and not value:
            return have
        if have and have.lower() == value:
            return means
    return None


def _provider(provider_id: str | None) -> str | None:
    if not provider_id:
        return None
    return _PROVIDERS.get(provider_id.partition(":")[0], "other")


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) > 0 else None
