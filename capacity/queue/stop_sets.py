"""Choose the workloads whose stop lets a waiting one in, and place it on what they free.

Every placement is made by the same judge as `fallow why-pending`: labels, taints, readiness, free
devices, CPU and memory. Of up to `MOST_TRIED` candidates all subsets are tried, the cheapest
first. Of more, a single pod gets the cheapest holders of one node, and a gang the nodes whose
holders lose least per pod, without those that are not needed: another set may be cheaper then.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Protocol

import msgspec

from capacity.placement.flavors import CPU, MEMORY
from capacity.placement.fleet_state import NodeKey, WorkloadKey
from capacity.placement.node_capacities import PlacementNode
from capacity.placement.pod_demand import FreeCapacity, PodDemand, place_pods
from capacity.queue.holders import DeviceHolder, sum_freed
from capacity.queue.records import WayIn, WayKind, WorkAtRisk
from capacity.quota.borrowing import QuotaJudge
from capacity.quota.room import split_resource

MOST_TRIED = 8
"""Candidates of which all subsets are tried: 255."""
MOST_DROPPED = 64
"""Of those chosen for a gang, the most expensive ones that are tried to be left out."""


class WaitingDemand(msgspec.Struct, frozen=True):
    """What a waiting workload requests, and the nodes of its cluster that take its pods."""

    key: WorkloadKey
    queue: str | None
    needs: tuple[PodDemand, ...]
    by_resource: Mapping[str, float]
    """What it needs of quotas; with flavors of Kueue by `resource@flavor`, else by resource."""
    nodes: Mapping[NodeKey, PlacementNode]
    legal: Mapping[PodDemand, frozenset[NodeKey]]
    flavor_nodes: Mapping[str, frozenset[NodeKey]] = {}
    """The nodes of each of its flavors of Kueue that are of no other one."""

    @property
    def legal_nodes(self) -> frozenset[NodeKey]:
        """Return the nodes that take at least one of its pods."""
        return frozenset().union(*self.legal.values())

    @property
    def gpu_nodes(self) -> frozenset[NodeKey]:
        """Return the nodes that take at least one of its pods with GPUs."""
        return frozenset().union(*(nodes for need, nodes in self.legal.items() if need.count))

    def shares_quota(self, holder: DeviceHolder) -> bool:
        """Return whether a holder's stop frees quota that this demand needs."""
        return (holder.key[1], holder.queue) == (self.key[1], self.queue)

    def count_usable(self, holder: DeviceHolder) -> int:
        """Return how many devices of a holder are of its types and on nodes that take it."""
        needs = [need for need in self.legal if need.count]
        return sum(
            any(kind == need.device_type and node in self.legal[need] for need in needs)
            for node, kind in holder.devices
        )


class StoppableHolders(msgspec.Struct, frozen=True):
    """Who holds GPUs that a waiting workload could use and may be stopped for it."""

    idle: Sequence[DeviceHolder]
    lower: Sequence[DeviceHolder]
    """Those of a lower priority."""
    never_preempts: str = ""
    """Why the waiting workload evicts nobody; empty = it may."""


class MovePlanner(Protocol):
    """Finds moves of running pods that let a waiting workload in."""

    def find(
        self,
        demand: WaitingDemand,
        left: tuple[PodDemand, ...],
        stopped: frozenset[WorkloadKey] = frozenset(),
    ) -> WayIn:
        """Return the way `after_moves`; `left` are the pods without a place now.

        `stopped`: workloads that stop before; what they free is free in `demand` already.
        """
        ...


def measure_loss(holder: DeviceHolder) -> tuple[float, int]:
    """Return what stopping a workload loses, infinite where it is not known, and its devices."""
    hours = holder.lost.gpu_hours
    return math.inf if hours is None else hours, len(holder.devices)


def find_cheapest(
    kind: WayKind,
    demand: WaitingDemand,
    quotas: QuotaJudge,
    candidates: Sequence[DeviceHolder],
    cost: Callable[[DeviceHolder], tuple[float, int]],
) -> WayIn:
    """Return the cheapest set of candidates whose stop lets the workload in."""
    ordered = sorted(candidates, key=lambda holder: (cost(holder), holder.key))
    free = {key: node.free for key, node in demand.nodes.items()}
    left, rest = place_demand(demand, free)

    def explain(chosen: Sequence[DeviceHolder]) -> tuple[str, tuple[str, ...]]:
        """Return why these do not suffice, empty = they do; and the nodes of the placement."""
        quota = explain_quota(demand, quotas, chosen)
        if quota:
            return quota, ()
        capacities = {
            key: (rest.get(key) or free[key]).add(more)
            for key, more in sum_freed(chosen).items()
            if key in free
        }
        without, used = place_pods(
            left, capacities, lambda need: [k for k in capacities if k in demand.legal[need]]
        )
        if without:
            return _explain_lack(without[0], len(without), demand, capacities), ()
        return "", tuple(sorted({key[1] for key in (*rest, *used)}))

    def total(chosen: Iterable[DeviceHolder]) -> tuple[float, int]:
        costs = [cost(holder) for holder in chosen]
        return sum(loss for loss, _ in costs), sum(count for _, count in costs)

    why = explain(ordered)[0]
    if why:
        return WayIn(kind, "refused", why)
    if len(ordered) <= MOST_TRIED:
        sets = _list_subsets(ordered, total)
    elif not left:  # it has a place, and what stops frees quota
        sets = iter([ordered[:count] for count in range(1, len(ordered) + 1)])
    elif len(left) == 1:
        sets = _list_node_sets(ordered, left[0], demand, free, total)
    else:
        sets = iter([_choose_nodes(ordered, left[0], demand, free, lambda c: not explain(c)[0])])
    chosen = next((c for c in sets if not explain(c)[0]), ordered)
    return _describe_stop(kind, demand, chosen, explain(chosen)[1])


def _describe_stop(
    kind: WayKind, demand: WaitingDemand, chosen: Sequence[DeviceHolder], nodes: tuple[str, ...]
) -> WayIn:
    lost = [holder.lost for holder in chosen]
    hours = [loss.gpu_hours for loss in lost]
    return WayIn(
        kind,
        "holds",
        "",
        demand.key[0],
        nodes,
        tuple(holder.key for holder in chosen),
        gpus=sum(len(holder.devices) for holder in chosen),
        lost=WorkAtRisk(
            None if None in hours else round(sum(h or 0.0 for h in hours), 6),
            "; ".join(sorted({loss.why for loss in lost})),
            estimated=any(loss.estimated for loss in lost),
        ),
    )


def _list_subsets(
    ordered: Sequence[DeviceHolder], total: Callable[[Iterable[DeviceHolder]], tuple[float, int]]
) -> Iterator[Sequence[DeviceHolder]]:
    """Yield all subsets, the cheapest first."""
    subsets = [c for n in range(1, len(ordered) + 1) for c in combinations(ordered, n)]
    yield from sorted(subsets, key=lambda chosen: (total(chosen), [h.key for h in chosen]))


def _list_node_sets(
    ordered: Sequence[DeviceHolder],
    need: PodDemand,
    demand: WaitingDemand,
    free: Mapping[NodeKey, FreeCapacity],
    total: Callable[[Iterable[DeviceHolder]], tuple[float, int]],
) -> Iterator[Sequence[DeviceHolder]]:
    """Yield for each node the cheapest holders that free enough devices for a pod, cheapest first.

    Holders that free enough devices and too little CPU or memory are followed by all of the node.
    """
    chosen_by_node = []
    for node, listed in _group_by_node(ordered, demand.legal[need]).items():
        there = free[node].devices.get(need.device_type, 0)
        for least in range(1, len(listed) + 1):
            if there + _count_devices(listed[:least], node, need) >= need.count:
                chosen_by_node.append(_drop_spare(listed[:least], node, need, there))
                break
        chosen_by_node.append(list(listed))
    yield from sorted(chosen_by_node, key=lambda chosen: (total(chosen), [h.key for h in chosen]))


def _choose_nodes(
    ordered: Sequence[DeviceHolder],
    need: PodDemand,
    demand: WaitingDemand,
    free: Mapping[NodeKey, FreeCapacity],
    suffice: Callable[[Sequence[DeviceHolder]], bool],
) -> Sequence[DeviceHolder]:
    """Return the holders of enough nodes for a gang: those that lose least per pod come first."""
    rank = {holder.key: n for n, holder in enumerate(ordered)}
    by_node = _group_by_node(ordered, demand.legal[need])

    def count_pods(node: NodeKey) -> int:
        there = free[node].devices.get(need.device_type, 0)
        return (there + _count_devices(by_node[node], node, need)) // max(1, need.count)

    nodes = sorted(
        filter(count_pods, by_node),
        key=lambda node: (sum(rank[h.key] for h in by_node[node]) / count_pods(node), node),
    )
    low, high = 1, len(nodes)

    def join(count: int) -> list[DeviceHolder]:
        return list({h.key: h for node in nodes[:count] for h in by_node[node]}.values())

    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffice(join(middle)) else (middle + 1, high)
    chosen = join(low)
    for holder in sorted(chosen, key=lambda h: -rank[h.key])[:MOST_DROPPED]:
        fewer = [other for other in chosen if other is not holder]
        if fewer and suffice(fewer):
            chosen = fewer
    return chosen


def _group_by_node(
    ordered: Sequence[DeviceHolder], legal: Collection[NodeKey]
) -> dict[NodeKey, list[DeviceHolder]]:
    by_node: dict[NodeKey, list[DeviceHolder]] = {}
    for holder in ordered:
        for node in sorted(holder.nodes):
            if node in legal:
                by_node.setdefault(node, []).append(holder)
    return by_node


def _count_devices(holders: Iterable[DeviceHolder], node: NodeKey, need: PodDemand) -> int:
    wanted = (node, need.device_type)
    return sum(device == wanted for holder in holders for device in holder.devices)


def _drop_spare(
    chosen: Sequence[DeviceHolder], node: NodeKey, need: PodDemand, there: int
) -> list[DeviceHolder]:
    """Return the holders without those whose devices are not needed, the most expensive last."""
    needed = list(chosen)
    for holder in reversed(chosen):
        fewer = [other for other in needed if other is not holder]
        if there + _count_devices(fewer, node, need) >= need.count:
            needed = fewer
    return needed


def explain_quota(demand: WaitingDemand, quotas: QuotaJudge, chosen: Iterable[DeviceHolder]) -> str:
    """Return what quota refuses it although these stop, empty = none does."""
    cluster, namespace, _, _ = demand.key
    needs = dict(demand.by_resource)
    for holder in chosen:
        if not demand.shares_quota(holder):
            continue
        needs = {
            name: max(0.0, need - _count_freed(demand, holder, name))
            for name, need in needs.items()
        }
    answer = quotas.admits(cluster, namespace, demand.queue, needs)
    return "" if answer.admitted else answer.why


def _count_freed(demand: WaitingDemand, holder: DeviceHolder, name: str) -> float:
    """Return how much of a quota the stop of a holder frees, by resource or `resource@flavor`.

    Of a flavor it is what the holder has on nodes of that flavor only.
    """
    resource, flavor = split_resource(name)
    if not flavor:
        return holder.resources.get(resource, 0.0)
    nodes = demand.flavor_nodes.get(flavor, frozenset())
    if resource in {CPU, MEMORY}:
        amounts = [host for node, host in holder.host.items() if node in nodes]
        return sum(cpu / 1000 if resource == CPU else float(memory) for cpu, memory in amounts)
    devices = sum(node in nodes for node, _ in holder.devices)
    return min(holder.resources.get(resource, 0.0), float(devices))


def _explain_lack(
    need: PodDemand, count: int, demand: WaitingDemand, capacities: Mapping[NodeKey, FreeCapacity]
) -> str:
    devices = f"{need.device_type} instances" if need.device_type else "whole GPUs"
    legal = [key for key in capacities if key in demand.legal[need]]
    most = max((capacities[key].devices.get(need.device_type, 0) for key in legal), default=0)
    if most < need.count:
        return f"it needs {need.count} {devices} on one node, {most} would be free"
    if len(demand.needs) > 1:
        return f"{len(demand.needs) - count} of its {len(demand.needs)} pods would fit"
    return "CPU or memory of the nodes with enough devices would not do"


def place_demand(
    demand: WaitingDemand, capacities: Mapping[NodeKey, FreeCapacity]
) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
    """Place a demand's pods; return those that do not fit, and what remains of the nodes used."""
    return place_pods(demand.needs, capacities, lambda need: sorted(demand.legal[need]))


def name_nodes(used: Mapping[NodeKey, FreeCapacity]) -> tuple[str, ...]:
    """Return the names of the nodes that are used, in order."""
    return tuple(sorted(key[1] for key in used))
