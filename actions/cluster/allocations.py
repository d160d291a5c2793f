"""Count the GPUs that pods hold: extended resources, shares of one GPU, and DRA claims.

A pod holds GPUs from the time it is bound to a node until its containers have exited for good. A
pending pod holds none, whatever it requests. The figures are physical GPUs, as in `pod.gpu_request`
of the inventory: a MIG instance counts as its share of the compute slices, a time-sliced replica as
its part of a GPU.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from fallow.errors import RefusedError
from fallow.kube.dra_devices import DeviceKey, SliceDevice, read_gpu_drivers, read_key, read_slices
from fallow.kube.gpu_resources import COUNTED, GpuResource, find_gpu_resource, select_gpus
from fallow.kube.gpu_shares import WHOLE, find_share
from fallow.kube.node_gpus import find_part
from fallow.kube.objects import (
    Object,
    get_annotations,
    get_labels,
    get_namespace,
    get_path,
    get_uid,
    has_ended,
    name,
)
from fallow.kube.pod_requests import read_amounts, sum_pod_amounts
from fallow.kube.quantities import parse_quantity
from fallow.protocols import ClusterReader, Right

CLAIMS = Right("resource.k8s.io", "resourceclaims", ("list",))
OPTIONAL_RIGHTS = (
    Right("", "nodes", ("get",)),
    Right("resource.k8s.io", "resourceslices", ("list",)),
)
"""Messages. Without nodes a time-sliced replica counts as a whole GPU. Without slices a device is
known only by its driver and its name."""
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of the claim that the scheduler created for an extended resource `nvidia.com/gpu`."""
KAI_FRACTION, KAI_MEMORY, KAI_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
_GROUP = "resource.k8s.io"


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


class _Allocations:
    """Counts the GPUs of pods, and reads each object that this needs once."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self._parts: dict[str, Fraction] = {}
        self._claims: dict[str, list[Object]] = {}
        self._devices: dict[str, dict[DeviceKey, SliceDevice | None]] = {}

    def of(self, pod: Object) -> Fraction:
        node = get_path(pod, "spec", "nodeName")
        if not node or has_ended(pod):
            return Fraction(0)
        amounts = sum_pod_amounts(pod["spec"])
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
            part = self._find_part(node) if resource.may_be_divided else WHOLE
            total += count * resource.share * part
        return total * min(max(parts, default=WHOLE), WHOLE)

    def _find_part(self, node: str) -> Fraction:
        """Return `find_part` of a node; 1 where it may not be read."""
        if node not in self._parts:
            try:
                read = self._cluster.get(f"/api/v1/nodes/{node}") or {}
            except RefusedError:
                read = {}
            offered = select_gpus(read_amounts(get_path(read, "status", "capacity")))
            self._parts[node] = find_part(get_labels(read), offered)
        return self._parts[node]

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
        key = read_key(result)
        device = self._offered(key[0]).get(key, SliceDevice("", share=find_share(key[2])))
        if device is None or (not device.id and key[0] not in read_gpu_drivers()):
            return Fraction(0)
        return device.compute_share(result)

    def _offered(self, driver: str) -> dict[DeviceKey, SliceDevice | None]:
        if driver not in self._devices:
            path = self._cluster.collection("ResourceSlice", _GROUP)
            try:
                slices = self._cluster.items(path, fields=f"spec.driver={driver}") if path else ()
            except RefusedError:
                slices = ()
            self._devices[driver] = read_slices(s.get("spec") or {} for s in slices)
        return self._devices[driver]


def _compute_kai_share(pod: Object) -> Fraction:
    notes = get_annotations(pod)
    if KAI_FRACTION not in notes and KAI_MEMORY not in notes:
        return Fraction(0)
    part = parse_quantity(notes[KAI_FRACTION]) if KAI_FRACTION in notes else None
    return (WHOLE if part is None else part) * (
        parse_quantity(notes.get(KAI_DEVICES, "1")) or WHOLE
    )
