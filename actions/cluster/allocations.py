"""Count the GPUs that pods hold: extended resources, shares of one GPU, and DRA claims.

A pod holds GPUs from the time it is bound to a node until its containers have exited for good. A
pending pod holds none, whatever it requests. The figures are physical GPUs, as in `pod.gpu_request`
of the inventory: a MIG instance counts as its share of the compute slices, a time-sliced replica as
its part of a GPU.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from actions.cluster.objects import (
    Object,
    get_annotations,
    get_labels,
    get_namespace,
    get_path,
    get_uid,
    has_ended,
    name,
)
from fallow.errors import RefusedError
from fallow.kube.gpu_resources import COUNTED, MIG_SLICES, GpuResource, find_gpu_resource
from fallow.kube.pod_requests import Amounts, reserve
from fallow.kube.quantities import parse_quantity
from fallow.protocols import ClusterReader, Right
from fallow.resources import read_table

CLAIMS = Right("resource.k8s.io", "resourceclaims", ("list",))
OPTIONAL_RIGHTS = (
    Right("", "nodes", ("get",)),
    Right("resource.k8s.io", "resourceslices", ("list",)),
)
"""Messages. Without nodes a time-sliced replica counts as a whole GPU. Without slices a device is
known only by its driver and its name."""
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of the claim that the scheduler created for an extended resource `nvidia.com/gpu`."""
SHARING = {
    "nvidia.com/gpu.sharing-strategy": "nvidia.com/gpu.replicas",
    "cloud.google.com/gke-gpu-sharing-strategy": (
        "cloud.google.com/gke-max-shared-clients-per-gpu"
    ),
}
"""Labels of nodes that time-share their GPUs, and the labels that give the number of replicas."""
KAI_FRACTION, KAI_MEMORY, KAI_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
_MIG = re.compile(r"(?:^|-)mig-(?P<slices>\d+)g")
_WHOLE = Fraction(1)
_GROUP = "resource.k8s.io"


class GpuDevice(msgspec.Struct, frozen=True):
    """A device of a ResourceSlice: whether it is a GPU, its share of one GPU, and its capacity."""

    gpu: bool
    share: Fraction
    capacity: dict[str, Fraction]


def count_allocated_gpus(pods: Iterable[Object], cluster: ClusterReader) -> dict[str, float]:
    """Return the physical GPUs that each pod holds, by pod uid; a pending pod holds 0.0.

    A device that several pods reserve is divided equally among them. A HAMi or KAI share counts as
    requested; a KAI share in MiB counts as the whole GPU. Claims are listed once per namespace, and
    only where a pod has one.

    Raises:
        RefusedError: claims may not be listed.
        TemporaryError: the API does not answer.
    """
    allocations = _Allocations(cluster)
    return {get_uid(pod): float(allocations.of(pod)) for pod in pods}


def sum_requests(spec: Mapping[str, Any]) -> Amounts:
    """Return what a pod reserves of each extended resource that represents GPUs."""
    return reserve(
        map(_sum_amounts, spec.get("containers") or ()),
        ((_sum_amounts(c), c.get("restartPolicy")) for c in spec.get("initContainers") or ()),
    )


class _Allocations:
    """Counts the GPUs of pods, and reads each object that this needs once."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self._replicas: dict[str, int] = {}
        self._claims: dict[str, list[Object]] = {}
        self._devices: dict[str, dict[tuple[str, str], GpuDevice]] = {}

    def of(self, pod: Object) -> Fraction:
        node = get_path(pod, "spec", "nodeName")
        if not node or has_ended(pod):
            return Fraction(0)
        amounts = sum_requests(pod["spec"])
        plain = self._extended(amounts, node) or _compute_kai_share(pod)
        return plain + self._claimed(pod, counted=plain > 0)

    def _extended(self, amounts: Mapping[str, Fraction], node: str) -> Fraction:
        counts: dict[GpuResource, Fraction] = {}
        parts = []
        for key, value in amounts.items():
            gpu_kind = find_gpu_resource(key)
            if gpu_kind is not None and gpu_kind.form in COUNTED and value > 0:
                counts[gpu_kind] = value
            elif (
                gpu_kind is not None and gpu_kind.form in ("memory_pct", "cores_pct") and value > 0
            ):
                parts.append(value / 100)
        total = Fraction(0)
        for resource, count in counts.items():
            if resource.form == "mig":
                total += count * (resource.slices or MIG_SLICES) / MIG_SLICES
            else:
                total += count / self._shared_among(node)
        return total * min(max(parts, default=_WHOLE), _WHOLE)

    def _shared_among(self, node: str) -> int:
        """Return how many pods time-share one GPU of a node; 1 where the node may not be read."""
        if node not in self._replicas:
            try:
                node_labels = get_labels(self._cluster.get(f"/api/v1/nodes/{node}") or {})
            except RefusedError:
                node_labels = {}
            counts = [
                node_labels.get(count_label, "")
                for strategy_label, count_label in SHARING.items()
                if _is_shared(node_labels.get(strategy_label))
            ]
            self._replicas[node] = max((int(t) for t in counts if t.isdecimal()), default=1) or 1
        return self._replicas[node]

    def _claimed(self, pod: Object, *, counted: bool) -> Fraction:
        """Return what a pod holds by resource claims.

        The claim that the scheduler created for an extended resource is left out where the resource
        itself was counted.
        """
        extended = get_path(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        if not get_path(pod, "spec", "resourceClaims") and not extended:
            return Fraction(0)
        total = Fraction(0)
        for claim in self._claims_in(get_namespace(pod)):
            if counted and (
                name(claim) == extended or get_annotations(claim).get(EXTENDED) == "true"
            ):
                continue
            users = [u.get("uid") for u in get_path(claim, "status", "reservedFor") or ()]
            if get_uid(pod) in users:
                results = get_path(claim, "status", "allocation", "devices", "results") or ()
                total += sum(map(self._device, results), Fraction(0)) / len(users)
        return total

    def _claims_in(self, space: str) -> list[Object]:
        if space not in self._claims:
            path = self._cluster.collection("ResourceClaim", _GROUP, space)
            self._claims[space] = list(self._cluster.items(path)) if path else []
        return self._claims[space]

    def _device(self, result: Mapping[str, Any]) -> Fraction:
        """Return the share of a GPU that one allocated device is; 0 for a device that is no GPU."""
        if result.get("adminAccess"):  # admin access for monitoring: it allocates nothing
            return Fraction(0)
        driver = str(result.get("driver") or "")
        key = str(result.get("pool")), str(result.get("device"))
        device = self._offered(driver).get(key)
        if device is None:
            device = GpuDevice(driver in read_gpu_drivers(), _compute_named_share(key[1]), {})
        if not device.gpu:
            return Fraction(0)
        used = result.get("consumedCapacity") or {}
        parts = [
            (parse_quantity(text) or Fraction(0)) / device.capacity[capacity_name]
            for capacity_name, text in used.items()
            if device.capacity.get(capacity_name)
        ]
        return device.share * min(max(parts, default=_WHOLE), _WHOLE)

    def _offered(self, driver: str) -> dict[tuple[str, str], GpuDevice]:
        if driver not in self._devices:
            path = self._cluster.collection("ResourceSlice", _GROUP)
            try:
                slices = self._cluster.items(path, fields=f"spec.driver={driver}") if path else ()
            except RefusedError:
                slices = ()
            self._devices[driver] = dict(_list_devices(slices))
        return self._devices[driver]


@cache
def read_gpu_drivers() -> frozenset[str]:
    """Return the DRA drivers whose devices are GPUs (`gpu_drivers.csv`)."""
    return frozenset(row["driver"] for row in read_table("fallow.kube", "gpu_drivers.csv"))


def _list_devices(slices: Iterable[Object]) -> Iterable[tuple[tuple[str, str], GpuDevice]]:
    """Yield the devices of slices; those of a pool's newest generation come last and override."""
    for resource_slice in sorted(
        slices, key=lambda s: get_path(s, "spec", "pool", "generation") or 0
    ):
        pool = str(get_path(resource_slice, "spec", "pool", "name"))
        for device in get_path(resource_slice, "spec", "devices") or ():
            fields = {**device, **(device.get("basic") or {})}  # before v1 they were under `basic`
            attributes = fields.get("attributes") or {}
            profile = str((attributes.get("profile") or {}).get("string") or "").partition("g")[0]
            share = Fraction(int(profile), MIG_SLICES) if profile.isdecimal() else _WHOLE
            sizes = {
                capacity_name: parse_quantity(amount["value"]) or Fraction(0)
                for capacity_name, amount in (fields.get("capacity") or {}).items()
                if "value" in amount
            }
            key = pool, str(device.get("name"))
            yield key, GpuDevice("uuid" in attributes, share, sizes)


def _compute_named_share(device: str) -> Fraction:
    """Return the part of a GPU by the name that NVIDIA's driver gives: gpu-0-mig-1g10gb-19-0."""
    match = _MIG.search(device)
    return Fraction(int(match["slices"]), MIG_SLICES) if match else _WHOLE


def _compute_kai_share(pod: Object) -> Fraction:
    notes = get_annotations(pod)
    if KAI_FRACTION not in notes and KAI_MEMORY not in notes:
        return Fraction(0)
    part = parse_quantity(notes[KAI_FRACTION]) if KAI_FRACTION in notes else None
    return (_WHOLE if part is None else part) * (
        parse_quantity(notes.get(KAI_DEVICES, "1")) or _WHOLE
    )


def _is_shared(strategy: str | None) -> bool:
    return (strategy or "").lower() in ("time-slicing", "mps", "time-sharing")


def _sum_amounts(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {
        key: parse_quantity(t) or Fraction(0)
        for key, t in amounts.items()
        if find_gpu_resource(key)
    }
