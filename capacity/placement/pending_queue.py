"""Find who waits for GPUs, and whether freeing the GPUs of a case would admit them.

A pending workload counts as a whole: all of its pending pods are placed, or none counts. A pod is
placed on one node that is ready, whose taints it tolerates and whose labels it selects, with enough
free devices of the requested type (whole GPUs, or instances of one MIG profile), CPU and memory. A
pod that fits on free capacity does not wait for GPUs, and freeing more admits nobody.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial

import msgspec

from capacity.placement.fleet_state import (
    FleetState,
    NodeKey,
    PodRecord,
    WorkloadAllocation,
    WorkloadKey,
    convert_micros,
    to_micros,
)
from capacity.placement.node_capacities import PlacementNode, judge_node, measure_nodes
from capacity.placement.pod_demand import (
    FreeCapacity,
    PodDemand,
    WorkloadDemand,
    build_demand,
    get_owner_key,
    place_pods,
)
from fallow.action_models import Waiter

ENOUGH_IS_FREE = "no wait for GPUs: what is free already would do"
ENOUGH_MAY_BE_FREE = "whether it waits for GPUs is not known: devices without a sample would do"


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
    number: int = -1
    """Equal for equal demands, whose hashes take long."""


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
        by_demand: dict[int, tuple[bool, str]] = {}
        waiters = []
        for pending, waiter in self._waiters:
            if pending.key[0] not in clusters:
                continue
            if pending.shape is None or not pending.left:
                waiters.append(waiter)
                continue
            if pending.number not in by_demand:
                by_demand[pending.number] = self._check_admission(pending, freed)
            admitted, why = by_demand[pending.number]
            namespace, kind, workload = waiter.namespace, waiter.workload_kind, waiter.workload
            waiters.append(
                Waiter(namespace, kind, workload, pending.gpus, pending.since, admitted, why)
            )
        return tuple(waiters)

    @cached_property
    def _waiters(self) -> list[tuple[_PendingWorkload, Waiter]]:
        """Return each pending workload, and the waiter that it is without a placement to judge."""
        waiters = []
        for pending in self._pending:
            _, namespace, kind, workload = pending.key
            admitted = None if pending.shape is None else False
            waiter = Waiter(
                namespace, kind, workload, pending.gpus, pending.since, admitted, pending.why
            )
            waiters.append((pending, waiter))
        return waiters

    def fits_without(
        self,
        allocations: Sequence[WorkloadAllocation],
        pods: Sequence[PodRecord],
        excluded: Collection[str],
    ) -> bool | None:
        """Return whether running pods fit on other nodes once they stop; None = unknown."""
        running = [pod for pod in pods if pod.gpus > 0]
        demand = build_demand(running[0].key[0], running) if running else None
        if demand is None:
            return None
        freed = self._freed(allocations, running)
        capacities = {
            node_key: free.add(freed.get(node_key))
            for node_key, free in self._free.items()
            if node_key[0] == demand.cluster and node_key[1] not in excluded
        }
        without, _ = place_pods(
            demand.needs,
            capacities,
            lambda need: [p for p in capacities if not self._explain_unfit(p, need)],
        )
        return not without

    @cached_property
    def _pending(self) -> list[_PendingWorkload]:
        by_key: dict[WorkloadKey, list[PodRecord]] = {}
        for pod in self._fleet_state.pending_at(self._at):
            by_key.setdefault(get_owner_key(pod), []).append(pod)
        placements: dict[
            WorkloadDemand, tuple[int, tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]
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
                placements[demand] = (len(placements), *self._place(demand, self._free))
            number, without_node, remaining = placements[demand]
            if without_node and not self._place(demand, self._possible)[0]:
                pending_workloads.append(
                    _PendingWorkload(key, gpus, since, None, why=ENOUGH_MAY_BE_FREE)
                )
                continue
            pending_workloads.append(
                _PendingWorkload(
                    key,
                    gpus,
                    since,
                    demand,
                    without_node,
                    remaining,
                    "" if without_node else ENOUGH_IS_FREE,
                    number,
                )
            )
        return pending_workloads

    def _place(
        self, demand: WorkloadDemand, capacities: Mapping[NodeKey, FreeCapacity]
    ) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
        return place_pods(
            demand.needs, capacities, partial(self._legal_nodes, demand.cluster, capacities)
        )

    def _check_admission(
        self, pending: _PendingWorkload, freed: Mapping[NodeKey, FreeCapacity]
    ) -> tuple[bool, str]:
        """Return whether the pods without a placement fit on the nodes that a case frees."""
        capacities = {
            node_key: self._capacity_of(pending.rest, node_key).add(more)
            for node_key, more in freed.items()
        }
        nodes = [p for p in capacities if p in self._fleet_state.nodes]
        legal = {d: [p for p in nodes if not self._explain_unfit(p, d)] for d in {*pending.left}}
        without, remaining = place_pods(pending.left, capacities, legal.__getitem__)
        if not without:
            return True, ""
        rest = capacities | dict(remaining)
        return False, self._explain_refusal(without[0], nodes, legal[without[0]], rest)

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

    def _legal_nodes(
        self, cluster: str, capacities: Mapping[NodeKey, FreeCapacity], demand: PodDemand
    ) -> list[NodeKey]:
        return [
            key
            for key, capacity in capacities.items()
            if key[0] == cluster
            and capacity.devices.get(demand.device_type)
            and not self._explain_unfit(key, demand)
        ]

    def _explain_unfit(self, node_key: NodeKey, demand: PodDemand) -> str:
        """Return why a pod may not run on a node, whatever is free on it; empty = it may."""
        return judge_node(self._known_nodes[node_key], demand)[0]

    @cached_property
    def _known_nodes(self) -> dict[NodeKey, PlacementNode]:
        return {node.key: node for node in measure_nodes(self._fleet_state, self._now)}

    @cached_property
    def _free(self) -> dict[NodeKey, FreeCapacity]:
        """Return what is known to be free on each node."""
        return {key: node.free for key, node in self._known_nodes.items()}

    @cached_property
    def _possible(self) -> dict[NodeKey, FreeCapacity]:
        """Return what may be free on each node: what is unknown counts too."""
        return {key: node.possible for key, node in self._known_nodes.items()}

    def _capacity_of(
        self, remaining: Mapping[NodeKey, FreeCapacity], node_key: NodeKey
    ) -> FreeCapacity:
        return remaining.get(node_key) or self._free.get(node_key) or FreeCapacity({}, 0, 0)
