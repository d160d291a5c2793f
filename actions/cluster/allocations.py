"""How many GPUs pods hold: by extended resources, by shares of one, by DRA claims.

A pod holds GPUs from the moment it is bound to a node until its containers have exited for good; a
pending pod holds none, whatever it asks for. The figures are physical GPUs, as in `pod.gpu_request`
of the inventory: a MIG instance is its compute slices, a time-sliced replica its part of a GPU.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from actions.cluster.objects import Object, annotations, deep, ended, labels, name, namespace, uid
from fallow.errors import RefusedError
from fallow.kube.gpu_resources import COUNTED, MIG_SLICES, GpuResource, gpu_resource
from fallow.kube.quantities import quantity
from fallow.seams import Cluster, Right

CLAIMS = Right("resource.k8s.io", "resourceclaims", ("list",))
BETTER = (
    Right("", "nodes", ("get",)),
    Right("resource.k8s.io", "resourceslices", ("list",)),
)
"""Without nodes a time-sliced replica counts as a whole GPU; without slices a device is known by
its driver and its name."""
SIDECAR = "Always"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that the scheduler made for a plain `nvidia.com/gpu`."""
SHARING = {
    "nvidia.com/gpu.sharing-strategy": "nvidia.com/gpu.replicas",
    "cloud.google.com/gke-gpu-sharing-strategy": (
        "cloud.google.com/gke-max-shared-clients-per-gpu"
    ),
}
"""Labels of nodes that share their GPUs in time, and those that say among how many."""
KAI_FRACTION, KAI_MEMORY, KAI_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
_MIG = re.compile(r"(?:^|-)mig-(?P<slices>\d+)g")
_WHOLE = Fraction(1)
_GROUP = "resource.k8s.io"


class Device(msgspec.Struct, frozen=True):
    """A device of a ResourceSlice: whether it is a GPU, what part of one, and its capacity."""

    gpu: bool
    share: Fraction
    capacity: dict[str, Fraction]


def allocated_gpus(pods: Iterable[Object], cluster: Cluster) -> dict[str, float]:
    """Return the physical GPUs that each pod holds, by its uid; those that wait hold 0.0.

    A device that several pods reserve counts in equal parts, a HAMi or KAI share as asked for, a
    KAI share in MiB as the whole GPU. Claims are listed once for each namespace, and only where a
    pod has one.

    Raises:
        RefusedError: claims may not be listed.
        TemporaryError: the API does not answer.
    """
    allocations = _Allocations(cluster)
    return {uid(pod): float(allocations.of(pod)) for pod in pods}


def requested(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return what a pod reserves of each extended resource that stands for GPUs.

    Init containers run one after the other, so the largest counts; sidecars stay and add.
    """
    running: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        _add(running, _amounts(container))
    for container in spec.get("initContainers") or ():
        own = _amounts(container)
        if container.get("restartPolicy") == SIDECAR:
            _add(running, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        _peak(peak, own)
    _peak(running, peak)
    return running


class _Allocations:
    """Counts the GPUs of pods and reads what that takes, each thing once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._replicas: dict[str, int] = {}
        self._claims: dict[str, list[Object]] = {}
        self._devices: dict[str, dict[tuple[str, str], Device]] = {}

    def of(self, pod: Object) -> Fraction:
        node = deep(pod, "spec", "nodeName")
        if not node or ended(pod):
            return Fraction(0)
        amounts = requested(pod["spec"])
        plain = self._extended(amounts, node) or _kai(pod)
        return plain + self._claimed(pod, counted=plain > 0)

    def _extended(self, amounts: Mapping[str, Fraction], node: str) -> Fraction:
        counts: dict[GpuResource, Fraction] = {}
        parts = []
        for key, value in amounts.items():
            known = gpu_resource(key)
            if known is not None and known.form in COUNTED and value > 0:
                counts[known] = value
            elif known is not None and known.form in ("memory_pct", "cores_pct") and value > 0:
                parts.append(value / 100)
        total = Fraction(0)
        for resource, count in counts.items():
            if resource.form == "mig":
                total += count * (resource.slices or MIG_SLICES) / MIG_SLICES
            else:
                total += count / self._shared_among(node)
        return total * min(max(parts, default=_WHOLE), _WHOLE)

    def _shared_among(self, node: str) -> int:
        """Return how many pods share one GPU of a node in time; 1 where that may not be read."""
        if node not in self._replicas:
            try:
                said = labels(self._cluster.get(f"/api/v1/nodes/{node}") or {})
            except RefusedError:
                said = {}
            asked = [said.get(many, "") for how, many in SHARING.items() if _shares(said.get(how))]
            self._replicas[node] = max((int(t) for t in asked if t.isdecimal()), default=1) or 1
        return self._replicas[node]

    def _claimed(self, pod: Object, *, counted: bool) -> Fraction:
        """Return what a pod holds by resource claims.

        The claim behind a plain extended resource is left out where the resource itself counted.
        """
        extended = deep(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        if not deep(pod, "spec", "resourceClaims") and not extended:
            return Fraction(0)
        total = Fraction(0)
        for claim in self._claims_in(namespace(pod)):
            if counted and (name(claim) == extended or annotations(claim).get(EXTENDED) == "true"):
                continue
            users = [u.get("uid") for u in deep(claim, "status", "reservedFor") or ()]
            if uid(pod) in users:
                results = deep(claim, "status", "allocation", "devices", "results") or ()
                total += sum(map(self._device, results), Fraction(0)) / len(users)
        return total

    def _claims_in(self, space: str) -> list[Object]:
        if space not in self._claims:
            path = self._cluster.collection("ResourceClaim", _GROUP, space)
            self._claims[space] = list(self._cluster.items(path)) if path else []
        return self._claims[space]

    def _device(self, result: Mapping[str, Any]) -> Fraction:
        """Return the part of a GPU that one allocated device is; 0 for what is none."""
        if result.get("adminAccess"):  # monitoring sees the device; it holds nothing
            return Fraction(0)
        driver = str(result.get("driver") or "")
        key = str(result.get("pool")), str(result.get("device"))
        found = self._offered(driver).get(key)
        if found is None:
            found = Device(driver in drivers(), _named_share(key[1]), {})
        if not found.gpu:
            return Fraction(0)
        used = result.get("consumedCapacity") or {}
        parts = [
            (quantity(text) or Fraction(0)) / found.capacity[what]
            for what, text in used.items()
            if found.capacity.get(what)
        ]
        return found.share * min(max(parts, default=_WHOLE), _WHOLE)

    def _offered(self, driver: str) -> dict[tuple[str, str], Device]:
        if driver not in self._devices:
            path = self._cluster.collection("ResourceSlice", _GROUP)
            try:
                slices = self._cluster.items(path, fields=f"spec.driver={driver}") if path else ()
            except RefusedError:
                slices = ()
            self._devices[driver] = dict(_devices(slices))
        return self._devices[driver]


@cache
def drivers() -> frozenset[str]:
    """Return the DRA drivers whose devices are GPUs (`gpu_drivers.csv`)."""
    text = files("fallow.kube").joinpath("gpu_drivers.csv").read_text(encoding="utf-8")
    return frozenset(row["driver"] for row in csv.DictReader(text.splitlines()))


def _devices(slices: Iterable[Object]) -> Iterable[tuple[tuple[str, str], Device]]:
    """Yield the devices of slices; those of a pool's newest generation come last and win."""
    for one in sorted(slices, key=lambda s: deep(s, "spec", "pool", "generation") or 0):
        pool = str(deep(one, "spec", "pool", "name"))
        for device in deep(one, "spec", "devices") or ():
            said = {**device, **(device.get("basic") or {})}  # before v1 all lay under `basic`
            attributes = said.get("attributes") or {}
            profile = str((attributes.get("profile") or {}).get("string") or "").partition("g")[0]
            share = Fraction(int(profile), MIG_SLICES) if profile.isdecimal() else _WHOLE
            sizes = {
                what: quantity(amount["value"]) or Fraction(0)
                for what, amount in (said.get("capacity") or {}).items()
                if "value" in amount
            }
            key = pool, str(device.get("name"))
            yield key, Device("uuid" in attributes, share, sizes)


def _named_share(device: str) -> Fraction:
    """Return the part of a GPU by the name that NVIDIA's driver gives: gpu-0-mig-1g10gb-19-0."""
    found = _MIG.search(device)
    return Fraction(int(found["slices"]), MIG_SLICES) if found else _WHOLE


def _kai(pod: Object) -> Fraction:
    said = annotations(pod)
    if KAI_FRACTION not in said and KAI_MEMORY not in said:
        return Fraction(0)
    part = quantity(said[KAI_FRACTION]) if KAI_FRACTION in said else None
    return (_WHOLE if part is None else part) * (quantity(said.get(KAI_DEVICES, "1")) or _WHOLE)


def _shares(strategy: str | None) -> bool:
    return (strategy or "").lower() in ("time-slicing", "mps", "time-sharing")


def _amounts(container: Mapping[str, Any]) -> dict[str, Fraction]:
    resources = container.get("resources") or {}
    listed = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: quantity(t) or Fraction(0) for key, t in listed.items() if gpu_resource(key)}


def _add(into: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for key, value in more.items():
        into[key] = into.get(key, Fraction(0)) + value


def _peak(into: dict[str, Fraction], other: Mapping[str, Fraction]) -> None:
    for key, value in other.items():
        into[key] = max(into.get(key, value), value)
