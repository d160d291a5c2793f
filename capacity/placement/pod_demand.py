"""Describe what pending pods request, and place them on free capacity.

A pod is placed on one node that takes it, with enough free devices of the requested type (whole
GPUs, or instances of one MIG profile), CPU and memory.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from capacity.placement.fleet_state import NodeKey, NodeRecord, PodRecord, WorkloadKey
from capacity.placement.node_fleet import MIB, UNKNOWN_AMOUNT, FleetNode, FleetPod, NodeFleet
from fallow.models import UNRESOLVED
from fallow.node_requirements import NodeRequirements, read_requirements
from fallow.stored_annotations import POD_SET

_MIG = re.compile(r".*/mig-(?:(\d+)c\.)?((\d+)g\.\d+gb(?:\..*)?)$")
_WHOLE = re.compile(
    r"^(?:nvidia\.com|amd\.com|habana\.ai|huawei\.com)/[a-z0-9.-]*(?:gpu|gaudi|Ascend.*)$",
    re.IGNORECASE,
)
_SLICES = 7
_ALMOST = 1e-6
DeviceType = str
"""Empty = whole GPUs; else the MIG profile."""


class PodDemand(msgspec.Struct, frozen=True):
    """What one pod requests of its node."""

    device_type: DeviceType
    count: int
    cpu_milli: int
    memory_bytes: int
    requirements: NodeRequirements = NodeRequirements()


class WorkloadDemand(msgspec.Struct, frozen=True):
    """What a pending workload requests: one demand per pod, the largest first."""

    cluster: str
    needs: tuple[PodDemand, ...]


class FreeCapacity(msgspec.Struct):
    """The free capacity of a node."""

    devices: dict[DeviceType, int]
    cpu_milli: float
    memory_bytes: float

    def copy(self) -> "FreeCapacity":
        """Return a copy that may be changed."""
        return FreeCapacity(dict(self.devices), self.cpu_milli, self.memory_bytes)

    def add(self, more: "FreeCapacity | None") -> "FreeCapacity":
        """Return the sum with another capacity of the same node; None = nothing more."""
        total = self.copy()
        if more is not None:
            for kind, count in more.devices.items():
                total.devices[kind] = total.devices.get(kind, 0) + count
            total.cpu_milli += more.cpu_milli
            total.memory_bytes += more.memory_bytes
        return total

    def fits(self, demand: PodDemand) -> bool:
        """Return whether a pod fits; without a request of CPU it does where too much is requested.

        Source: kube-scheduler's NodeResourcesFit.
        """
        return (
            self.devices.get(demand.device_type, 0) >= demand.count
            and (not demand.cpu_milli or self.cpu_milli >= demand.cpu_milli)
            and (not demand.memory_bytes or self.memory_bytes >= demand.memory_bytes)
        )

    def take(self, demand: PodDemand) -> None:
        """Allocate a pod's demand here."""
        if demand.count:
            self.devices[demand.device_type] -= demand.count
        self.cpu_milli -= demand.cpu_milli
        self.memory_bytes -= demand.memory_bytes


def place_pods(
    needs: Sequence[PodDemand],
    free: Mapping[NodeKey, FreeCapacity],
    find_legal: Callable[[PodDemand], Iterable[NodeKey]],
) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
    """Place pods on free capacity, each on one of its legal nodes.

    Return the pods that do not fit, and the remaining capacity of the nodes that take one.
    """
    numbers = {need: number for number, need in enumerate(dict.fromkeys(needs))}
    legal = {
        need: [key for key in find_legal(need) if key in free and free[key].fits(need)]
        for need in numbers
    }
    keys = {"/".join(key): key for nodes in legal.values() for key in nodes}
    fleet = NodeFleet(_build_node(name, free[key]) for name, key in keys.items())
    for need, number in numbers.items():
        fleet.set_eligible(number, ["/".join(key) for key in legal[need]])
    places = fleet.place_each([_build_pod(n, d, numbers[d]) for n, d in enumerate(needs)])
    node_of = {int(place.pod.uid): keys[place.node] for place in places}
    remaining: dict[NodeKey, FreeCapacity] = {}
    for n, key in node_of.items():
        remaining.setdefault(key, free[key].copy()).take(needs[n])
    return tuple(need for n, need in enumerate(needs) if n not in node_of), remaining


def _build_node(name: str, capacity: FreeCapacity) -> FleetNode:
    devices = [kind for kind, count in capacity.devices.items() for _ in range(count)]
    return FleetNode(
        name,
        int(min(capacity.cpu_milli, UNKNOWN_AMOUNT)),
        int(min(capacity.memory_bytes / MIB, UNKNOWN_AMOUNT)),
        len(devices),
        profiles=tuple(devices) if any(devices) else (),
    )


def _build_pod(n: int, need: PodDemand, requirements: int) -> FleetPod:
    memory = -(-need.memory_bytes // MIB)
    return FleetPod(
        str(n), need.cpu_milli, memory, need.count,
        requirements=requirements, profile=need.device_type,
    )  # fmt: skip


def compute_free_host(node: NodeRecord, requested: tuple[int, int]) -> tuple[float, float]:
    """Return a node's CPU and memory without a request; an unknown amount is no obstacle."""
    cpu = float("inf") if node.cpu_milli is None else node.cpu_milli - requested[0]
    memory = float("inf") if node.memory_bytes is None else node.memory_bytes - requested[1]
    return cpu, memory


def get_owner_key(pod: PodRecord) -> WorkloadKey:
    """Return the key of a pod's owner; a pod whose owner is unknown stands alone."""
    if pod.resolved:
        return pod.key
    return (pod.key[0], pod.key[1], UNRESOLVED, pod.pod)


def build_demand(cluster: str, pods: Iterable[PodRecord]) -> WorkloadDemand | None:
    """Return what pending pods request; None = a pod requests shares or claims of devices."""
    demands = []
    for pod in pods:
        device_type = _get_device_type(pod)
        if device_type is None:
            return None
        demands.append(
            PodDemand(
                *device_type,
                pod.cpu_milli or 0,
                pod.memory_bytes or 0,
                read_requirements(pod.annotation_map, pod.label_map.get("gpu_spec")),
            )
        )
    return WorkloadDemand(
        cluster, tuple(sorted(demands, key=lambda n: (-n.count, -n.cpu_milli, n.device_type)))
    )


def count_devices(pod: PodRecord) -> int:
    """Return the devices that a pod requests; of shares and claims none are counted."""
    device_type = _get_device_type(pod)
    return 0 if device_type is None else device_type[1]


def _get_device_type(pod: PodRecord) -> tuple[DeviceType, int] | None:
    """Return the device type and the number that a pod requests; None = shares or claims."""
    resource = pod.gpu_resource or ""
    if match := _MIG.match(resource):
        count = pod.gpus * _SLICES / int(match[3])
        return match[2], max(1, round(count))
    whole = round(pod.gpus)
    if _WHOLE.match(resource) and whole >= 1 and abs(pod.gpus - whole) < _ALMOST:
        return "", whole
    # Kueue lets the pods of a job in together, also those without GPUs.
    if not resource and pod.gpus == 0 and POD_SET in pod.annotation_map:
        return "", 0
    return None
