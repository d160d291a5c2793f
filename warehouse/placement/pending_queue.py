"""Find who waits for GPUs, and whether freeing the GPUs of a case would admit them.

A pending workload counts as a whole: all of its pending pods are placed, or none counts. A pod is
placed on one node that is ready, whose taints it tolerates and whose labels it selects, with enough
free devices of the requested type (whole GPUs, or instances of one MIG profile), CPU and memory. A
pod that fits on free capacity does not wait for GPUs, and freeing more admits nobody.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from fallow.action_models import Waiter
from fallow.models import UNRESOLVED
from fallow.node_requirements import (
    BlockingTaint,
    NodeRequirements,
    read_requirements,
    read_taints,
)
from warehouse.placement.fleet_state import (
    FleetState,
    NodeKey,
    NodeRecord,
    PodRecord,
    WorkloadAllocation,
    WorkloadKey,
    convert_micros,
    to_micros,
)

ENOUGH_IS_FREE = "no wait for GPUs: what is free already would do"
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

    def fits(self, demand: PodDemand) -> bool:
        """Return whether a pod fits."""
        return (
            self.devices.get(demand.device_type, 0) >= demand.count
            and self.cpu_milli >= demand.cpu_milli
            and self.memory_bytes >= demand.memory_bytes
        )

    def take(self, demand: PodDemand) -> None:
        """Allocate a pod's demand here."""
        self.devices[demand.device_type] -= demand.count
        self.cpu_milli -= demand.cpu_milli
        self.memory_bytes -= demand.memory_bytes


class _PendingWorkload(msgspec.Struct, frozen=True):
    """One pending workload, and its pods that fit nowhere now."""

    key: WorkloadKey
    gpus: float
    since: datetime
    shape: WorkloadDemand | None
    left: tuple[PodDemand, ...] = ()
    """The pods without a placement; empty = all fit already."""
    rest: Mapping[NodeKey, FreeCapacity] = {}
    """The capacity that its other pods leave free."""
    why: str = ""


class PendingWorkloads:
    """The pending workloads at one time."""

    def __init__(self, fleet_state: FleetState, now: datetime) -> None:
        self._fleet_state, self._now, self._at = fleet_state, now, to_micros(now)

    def admits(
        self, allocations: Sequence[WorkloadAllocation], pods: Sequence[PodRecord]
    ) -> tuple[Waiter, ...] | None:
        """Return who waits, and whether they run once these allocations and pods are gone.

        None where the inventory has no pods at all: then it is unknown who waits.
        """
        if not self._fleet_state.all_pods:
            return None
        clusters = {h.key[0] for h in allocations}
        freed = self._freed(allocations, pods)
        by_demand: dict[WorkloadDemand, tuple[bool, str]] = {}
        waiters = []
        for pending in self._pending:
            if pending.key[0] not in clusters:
                continue
            if pending.shape is None or not pending.left:
                admitted, why = (None if pending.shape is None else False), pending.why
            else:
                if pending.shape not in by_demand:
                    by_demand[pending.shape] = self._check_admission(pending, freed)
                admitted, why = by_demand[pending.shape]
            _, namespace, kind, workload = pending.key
            waiters.append(
                Waiter(namespace, kind, workload, pending.gpus, pending.since, admitted, why)
            )
        return tuple(waiters)

    @cached_property
    def _pending(self) -> list[_PendingWorkload]:
        by_key: dict[WorkloadKey, list[PodRecord]] = {}
        for pod in self._fleet_state.pending_at(self._at):
            by_key.setdefault(get_owner_key(pod), []).append(pod)
        placements: dict[
            WorkloadDemand, tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]
        ] = {}
        pending_workloads = []
        for key, pods in sorted(by_key.items()):
            gpus, since = (
                round(sum(p.gpus for p in pods), 6),
                convert_micros(min(p.begin for p in pods)),
            )
            demand = build_demand(key[0], pods)
            if demand is None:
                why = f"whether {pods[0].gpu_resource} fits is not worked out"
                pending_workloads.append(_PendingWorkload(key, gpus, since, None, why=why))
                continue
            if demand not in placements:
                placements[demand] = self._place_pods(demand)
            without_node, remaining = placements[demand]
            pending_workloads.append(
                _PendingWorkload(
                    key,
                    gpus,
                    since,
                    demand,
                    without_node,
                    remaining,
                    "" if without_node else ENOUGH_IS_FREE,
                )
            )
        return pending_workloads

    def _place_pods(
        self, workload_demand: WorkloadDemand
    ) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
        """Place pods on free capacity.

        Return the pods that do not fit, and the remaining capacity.
        """
        return place_pods(
            workload_demand.needs,
            self._free,
            lambda demand: self._legal_nodes(workload_demand.cluster, demand),
        )

    def _check_admission(
        self, pending: _PendingWorkload, freed: Mapping[NodeKey, FreeCapacity]
    ) -> tuple[bool, str]:
        """Return whether the pods without a placement fit on the nodes that a case frees."""
        capacities: dict[NodeKey, FreeCapacity] = {}
        for node_key, freed_capacity in freed.items():
            capacity = self._capacity_of(pending.rest, node_key).copy()
            for device_type, count in freed_capacity.devices.items():
                capacity.devices[device_type] = capacity.devices.get(device_type, 0) + count
            capacity.cpu_milli += freed_capacity.cpu_milli
            capacity.memory_bytes += freed_capacity.memory_bytes
            capacities[node_key] = capacity
        for demand in pending.left:
            known_nodes = [p for p in capacities if self._fleet_state.nodes.get(p) is not None]
            legal_nodes = [p for p in known_nodes if not self._explain_unfit(p, demand)]
            fitting = [p for p in legal_nodes if capacities[p].fits(demand)]
            if not fitting:
                return False, self._explain_refusal(demand, known_nodes, legal_nodes, capacities)
            capacities[
                min(fitting, key=lambda p: (capacities[p].devices[demand.device_type], p))
            ].take(demand)
        return True, ""

    def _explain_refusal(
        self,
        demand: PodDemand,
        known_nodes: Sequence[NodeKey],
        legal_nodes: Sequence[NodeKey],
        capacities: Mapping[NodeKey, FreeCapacity],
    ) -> str:
        device_words = f"{demand.device_type} instances" if demand.device_type else "whole GPUs"
        if not known_nodes:
            return "nothing is known of the nodes that it would free"
        if not legal_nodes:
            return next(filter(None, (self._explain_unfit(p, demand) for p in sorted(known_nodes))))
        largest = max(capacities[p].devices.get(demand.device_type, 0) for p in legal_nodes)
        if largest < demand.count:
            return f"it needs {demand.count} {device_words} on one node, {largest} would be free"
        return "CPU or memory of the node would not do"

    def _freed(
        self, allocations: Sequence[WorkloadAllocation], pods: Sequence[PodRecord]
    ) -> dict[NodeKey, FreeCapacity]:
        """Return what a case frees on each node: only devices without another allocation."""
        capacities: dict[NodeKey, FreeCapacity] = {}
        for allocation in allocations:
            others = self._fleet_state.device_allocations_at(
                (allocation.key[0], allocation.device), self._at
            )
            if allocation.node is None or any(o.key != allocation.key for o in others):
                continue
            capacity = capacities.setdefault(
                (allocation.key[0], allocation.node), FreeCapacity({}, 0, 0)
            )
            capacity.devices[allocation.profile or ""] = (
                capacity.devices.get(allocation.profile or "", 0) + 1
            )
        for pod in pods:
            if pod.node and (pod.key[0], pod.node) in capacities:
                capacity = capacities[pod.key[0], pod.node]
                capacity.cpu_milli += pod.cpu_milli or 0
                capacity.memory_bytes += pod.memory_bytes or 0
        return capacities

    def _legal_nodes(self, cluster: str, demand: PodDemand) -> list[NodeKey]:
        return [
            p
            for p in self._nodes_by_type.get((cluster, demand.device_type), ())
            if not self._explain_unfit(p, demand)
        ]

    def _explain_unfit(self, node_key: NodeKey, demand: PodDemand) -> str:
        """Return why a pod may not run on a node, whatever is free on it; empty = it may."""
        node = self._fleet_state.nodes[node_key]
        if node.unschedulable or self._fleet_state.ready(node_key, self._at) is not True:
            return f"{node_key[1]} takes no pods: it is cordoned or not ready"
        labels, taints = self._labels_and_taints[node_key]
        refusal = demand.requirements.explain_refusal(labels, taints)
        return f"{node_key[1]} does not take it: {refusal}" if refusal else ""

    @cached_property
    def _labels_and_taints(
        self,
    ) -> dict[NodeKey, tuple[Mapping[str, str], frozenset[BlockingTaint]]]:
        return {
            key: (json.loads(node.labels) if node.labels else {}, read_taints(node.taints))
            for key, node in self._fleet_state.nodes.items()
        }

    def _capacity_of(
        self, remaining: Mapping[NodeKey, FreeCapacity], node_key: NodeKey
    ) -> FreeCapacity:
        return remaining.get(node_key) or self._free.get(node_key) or FreeCapacity({}, 0, 0)

    @cached_property
    def _free(self) -> dict[NodeKey, FreeCapacity]:
        """Return the current free capacity of each node."""
        requested = self._fleet_state.requested_at(self._now)
        capacities: dict[NodeKey, FreeCapacity] = {}
        for node_key, node in self._fleet_state.nodes.items():
            devices_in_use = {
                h.device for h in self._fleet_state.node_allocations_at(node_key, self._at)
            }
            capacity = FreeCapacity({}, *compute_free_host(node, requested.get(node_key, (0, 0))))
            for device in self._fleet_state.devices.get(node_key, ()):
                existed = device["first_us"] < self._at
                if existed and device["device"] not in devices_in_use:
                    device_type = device["profile"] or ""
                    capacity.devices[device_type] = capacity.devices.get(device_type, 0) + 1
            capacities[node_key] = capacity
        return capacities

    @cached_property
    def _nodes_by_type(self) -> dict[tuple[str, DeviceType], list[NodeKey]]:
        nodes: dict[tuple[str, DeviceType], list[NodeKey]] = {}
        for node_key, capacity in self._free.items():
            for device_type, count in capacity.devices.items():
                if count:
                    nodes.setdefault((node_key[0], device_type), []).append(node_key)
        return nodes


def place_pods(
    needs: Sequence[PodDemand],
    free: Mapping[NodeKey, FreeCapacity],
    find_legal: Callable[[PodDemand], Iterable[NodeKey]],
) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
    """Place pods on free capacity, each on one of its legal nodes.

    Return the pods that do not fit, and the remaining capacity of the nodes that take one.
    """
    remaining: dict[NodeKey, FreeCapacity] = {}
    nothing = FreeCapacity({}, 0, 0)

    def measure(node_key: NodeKey) -> FreeCapacity:
        return remaining.get(node_key) or free.get(node_key) or nothing

    without_node = []
    for demand in needs:
        fitting_nodes = [p for p in find_legal(demand) if measure(p).fits(demand)]
        if not fitting_nodes:
            without_node.append(demand)
            continue
        # Use the fullest node that fits, so that large gaps remain for large pods.
        node_key = min(fitting_nodes, key=lambda p: (measure(p).devices[demand.device_type], p))
        remaining.setdefault(node_key, free[node_key].copy()).take(demand)
    return tuple(without_node), remaining


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
                read_requirements(pod.annotation_map),
            )
        )
    return WorkloadDemand(
        cluster, tuple(sorted(demands, key=lambda n: (-n.count, -n.cpu_milli, n.device_type)))
    )


def _get_device_type(pod: PodRecord) -> tuple[DeviceType, int] | None:
    """Return the device type and the number that a pod requests; None = shares or claims."""
    resource = pod.gpu_resource or ""
    if match := _MIG.match(resource):
        count = pod.gpus * _SLICES / int(match[3])
        return match[2], max(1, round(count))
    whole = round(pod.gpus)
    if _WHOLE.match(resource) and whole >= 1 and abs(pod.gpus - whole) < _ALMOST:
        return "", whole
    return None
