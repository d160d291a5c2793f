"""Weigh independent counts of a node's GPUs: the kubelet's, discovery's labels and the catalogue.

Inventory and actions ask here how many physical GPUs a node has, and how many shares each has.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import msgspec

from fallow.gpu_models import find_gpu_model
from fallow.kube.gpu_resources import MOST_DEVICES, SHARED_SUFFIX, GpuResource, select_gpus
from fallow.kube.gpu_shares import MIG_SLICES, WHOLE, find_memory_share, find_share
from fallow.kube.pod_requests import Amounts
from fallow.resources import read_table

_SUFFIX = re.compile(r"(-SHARED|-MIG-INVALID)$|-(MIG-[0-9]+g\.[0-9]+gb.*)$")
_PROFILE = re.compile(r"(\d{1,4})g\.(\d{1,4})gb", re.ASCII)
_SHARED = "-SHARED"
_REPLICAS = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")
_PARTITION = "cloud.google.com/gke-gpu-partition-size"
_CATALOGUE = "rate_card.csv"
DeviceCounts = Mapping[GpuResource, Fraction]


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs of one node; `count` is physical, null where it cannot be known."""

    resource: str | None = None
    count: int | None = 0
    model: str | None = None
    replicas: int | None = None
    sharing: str | None = None
    allocatable: int | None = None
    """Physical GPUs that the kubelet can allocate; null where instances or shares hide the GPUs."""
    doubts: tuple[str, ...] = ()
    """What speaks against the count."""
    part: Fraction = WHOLE
    """Of `find_part`."""


def count_gpus(
    labels: Mapping[str, str], device_counts: DeviceCounts, allocatable: Amounts
) -> Gpus:
    """Return the physical GPUs of a node from its capacity, by its labels and the catalogue."""
    product, profile = _split_product(labels)
    model = read_labels("gpu_model", labels)
    replicas = find_replicas(labels, device_counts)
    sharing = _find_sharing(labels, model, replicas, device_counts, profile)
    count = _count_physical(device_counts, replicas or 1, profile, product)
    replicas_sharing = replicas if sharing in {"time-slicing", "mps"} else None
    main = max(device_counts, key=lambda r: (r.share, device_counts[r]))
    counts, form = _list_counts(labels), _find_form(labels, device_counts)
    offered = count
    usable = None
    if profile is None:
        # A GPU that fell off the bus keeps its label until discovery runs again, and it is paid.
        count = max([count, *(c.count for c in counts if c.rules[form] == "more")])
        if form != "instances" and allocatable:
            usable = min(count, _count_whole(select_gpus(allocatable), replicas or 1))
    sources = [("the kubelet", offered), *((c.source, c.count) for c in counts)]
    doubts = [f"{name} says {n}, {count} are paid" for name, n in sources if n != count]
    part = find_part(labels, device_counts)
    return Gpus(main.name, count, product, replicas_sharing, sharing, usable, tuple(doubts), part)


def read_labelled_gpus(labels: Mapping[str, str]) -> Gpus:
    """Return the GPUs of discovery or of the machine that no plugin offers: they are paid."""
    product, profile = _split_product(labels)
    counts = sorted(_list_counts(labels), key=lambda c: c.kind != "label")
    count = counts[0].count if counts else None
    return Gpus() if count is None or profile else Gpus(None, count, product)


def _split_product(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return a node's model without what its name says of sharing, and the profile of MIG."""
    model, profile = read_labels("gpu_model", labels), labels.get(_PARTITION)
    if model is not None and (suffix := _SUFFIX.search(model)):
        return model[: suffix.start()], suffix.group(2) or profile
    return model, profile


def find_replicas(labels: Mapping[str, str], device_counts: DeviceCounts) -> int | None:
    """Return into how many shares the plugin divides each device; None = nothing tells it."""
    named = (r.name for r in device_counts if r.form == "mig" and r.is_divided)
    keys = (f"{name.removesuffix(SHARED_SUFFIX)}.replicas" for name in named)
    replicas = next(
        filter(None, (_parse_integer(labels.get(label)) for label in (*keys, *_REPLICAS))), None
    )
    if _split_product(labels)[1] is not None:
        return replicas
    form, offered = _find_form(labels, device_counts), _count_whole(device_counts, replicas or 1)
    limits = [c.count for c in _list_counts(labels) if c.rules[form] == "less"]
    if limits and offered > limits[0]:
        # The label of the replicas is that of another configuration, or is not there.
        return math.ceil(sum(device_counts.values()) / limits[0])
    return replicas


def find_part(labels: Mapping[str, str], device_counts: DeviceCounts) -> Fraction:
    """Return what a pod gets of a GPU where it requests a whole one.

    It is a share (time slicing, MPS), an instance (MIG's single strategy), or a share of one.
    """
    instance = find_share((_split_product(labels)[1] or "").lower())
    return instance / (find_replicas(labels, device_counts) or 1)


class _Count(msgspec.Struct, frozen=True):
    """What one kind of source says of a node's GPUs, and how it weighs (`gpu_counts.csv`)."""

    kind: str
    source: str
    count: int
    rules: Mapping[str, str]


def _list_counts(labels: Mapping[str, str]) -> list[_Count]:
    """Return one count per kind of source, the smallest of its kind, in the order of the table."""
    counts: dict[str, _Count] = {}
    for row in read_table("fallow.kube", "gpu_counts.csv"):
        kind, source = row["kind"], row["source"]
        machine = read_labels("instance_type", labels) or ""
        count = _parse_integer(labels.get(source))
        if source == _CATALOGUE:
            count, source = _read_machines().get(machine), f"the list of {machine}"
        if count is not None and (kind not in counts or count < counts[kind].count):
            counts[kind] = _Count(kind, source, count, row)
    return list(counts.values())


def _find_form(labels: Mapping[str, str], device_counts: DeviceCounts) -> str:
    """Return how the kubelet offers GPUs: a column of `gpu_counts.csv`."""
    if any(r.share < 1 for r in device_counts):
        return "instances"
    is_shared = (read_labels("gpu_model", labels) or "").endswith(_SHARED)
    return "shared" if is_shared or any(r.is_divided for r in device_counts) else "plain"


@cache
def _read_machines() -> dict[str, int]:
    """Return the GPUs of each type of machine on the rate card."""
    rows = read_table("collectors.prices", _CATALOGUE)
    return {row["instance_type"]: int(row["gpu_count"]) for row in rows if row["instance_type"]}


def _find_sharing(
    labels: Mapping[str, str],
    model: str | None,
    replicas: int | None,
    device_counts: DeviceCounts,
    profile: str | None,
) -> str:
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "").lower()
    if strategy in {"time-slicing", "mps"}:
        return strategy
    gke = labels.get("cloud.google.com/gke-gpu-sharing-strategy", "").lower()
    if gke in {"time-sharing", "mps"}:
        return "time-slicing" if gke == "time-sharing" else gke
    shared = (model or "").endswith(_SHARED) or any(r.is_divided for r in device_counts)
    if shared or (replicas or 1) > 1:
        return "time-slicing"
    return "mig" if profile or any(r.form == "mig" for r in device_counts) else "none"


def _count_physical(
    device_counts: DeviceCounts,
    replicas: int,
    profile: str | None,
    product: str | None,
) -> int:
    """Count GPUs: devices divided by replicas; instances divided by how many fill a GPU.

    The single strategy counts instances as GPUs. The mixed strategy names each profile and has a
    label with the number of GPUs. The GPUs are assumed to be fully partitioned; telemetry corrects
    this later.
    """
    gpu_count = _count_whole(device_counts, replicas)
    if profile:
        return math.ceil(Fraction(gpu_count, count_instances_per_gpu(profile, product)))
    parts = [
        (r.share, n / (replicas if r.is_divided else 1))
        for r, n in device_counts.items()
        if r.share < 1
    ]
    compute = sum((share * n for share, n in parts), Fraction(0))
    memory = sum((find_memory_share(share) * n for share, n in parts), Fraction(0))
    return gpu_count + math.ceil(max(compute, memory))


def _count_whole(device_counts: DeviceCounts, replicas: int) -> int:
    whole_or_shared = sum((n for r, n in device_counts.items() if r.share == 1), Fraction(0))
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
    for row in read_table("fallow.kube", "node_labels.csv"):
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


def _parse_integer(text: str | None) -> int | None:
    """Return a label's number of devices; None = it is no number, or an impossible one."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > len(str(MOST_DEVICES)):
        return None
    return int(text) if 0 < int(text) <= MOST_DEVICES else None
