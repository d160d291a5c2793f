"""Find the ways in of a waiting workload, each with a placement that holds against real nodes.

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

from warehouse.placement.fleet_state import NodeKey, WorkloadKey
from warehouse.placement.node_capacities import PlacementNode
from warehouse.placement.pending_places import PendingAnswer, PlaceAnswer
from warehouse.placement.pod_demand import FreeCapacity, PodDemand, place_pods
from warehouse.placement.quota_room import QuotaRoom
from warehouse.queue.holders import DeviceHolder, sum_freed
from warehouse.queue.records import WayIn, WayKind, WorkAtRisk

MOST_TRIED = 8
"""Candidates of which all subsets are tried: 255."""
MOST_DROPPED = 64
"""Of those chosen for a gang, the most expensive ones that are tried to be left out."""
ORDER: dict[WayKind, int] = {
    "free": 0, "borrow": 1, "reclaim_idle": 2, "after_moves": 3, "elsewhere": 4, "preempt": 5,
}  # fmt: skip
"""Of ways that lose equally much, the first one is cheaper."""
STATES = {"holds": 0, "unknown": 1, "refused": 2}


class WaitingDemand(msgspec.Struct, frozen=True):
    """What a waiting workload requests, and the nodes of its cluster that take its pods."""

    key: WorkloadKey
    queue: str | None
    needs: tuple[PodDemand, ...]
    by_resource: Mapping[str, float]
    nodes: Mapping[NodeKey, PlacementNode]
    legal: Mapping[PodDemand, frozenset[NodeKey]]

    @property
    def legal_nodes(self) -> frozenset[NodeKey]:
        """Return the nodes that take at least one of its pods."""
        return frozenset().union(*self.legal.values())

    def count_usable(self, holder: DeviceHolder) -> int:
        """Return how many devices of a holder are of its types and on nodes that take it."""
        return sum(
            any(kind == need.device_type and node in self.legal[need] for need in self.legal)
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

    def find(self, demand: WaitingDemand, left: tuple[PodDemand, ...]) -> WayIn:
        """Return the way `after_moves`; `left` are the pods without a place now."""
        ...


def find_ways(
    demand: WaitingDemand,
    answer: PendingAnswer,
    quotas: QuotaRoom,
    stoppable: StoppableHolders,
    planner: MovePlanner | None = None,
) -> tuple[WayIn, ...]:
    """Return the ways in, the cheapest that holds first; without a planner no moves."""
    ways = [
        _describe_free(demand, answer),
        _find_borrowing(demand, quotas),
        _find_reclaim(demand, quotas, stoppable.idle),
        _find_moves(demand, quotas, planner),
        _describe_elsewhere(demand, answer),
        _find_preemption(demand, quotas, stoppable),
    ]
    return tuple(sorted(filter(None, ways), key=rank_way))


def rank_way(way: WayIn) -> tuple[int, bool, float, int]:
    """Return the order of a way: it holds, what it loses is known, how much, its kind."""
    lost = way.lost.gpu_hours
    return STATES[way.state], lost is None, lost or 0.0, ORDER[way.kind]


def _describe_free(demand: WaitingDemand, answer: PendingAnswer) -> WayIn | None:
    """Return the way into what is free in the own cluster; None = nothing there is."""
    own = [p for p in answer.places if p.cluster == demand.key[0] and p.pool is None]
    if not own or own[0].state != "fits":
        return None
    return WayIn("free", "holds", answer.why, own[0].cluster, own[0].nodes)


def _describe_elsewhere(demand: WaitingDemand, answer: PendingAnswer) -> WayIn:
    others = [p for p in answer.places if p.cluster != demand.key[0] and p.pool is None]
    fitting = [place for place in others if place.state == "fits"]
    if fitting:
        place = fitting[0]
        return WayIn("elsewhere", "holds", _name_pools(place, answer), place.cluster, place.nodes)
    if not others:
        return WayIn("elsewhere", "refused", "there is no other cluster with GPUs")
    doubts = [place for place in others if place.state == "unknown"]
    if doubts:
        return WayIn("elsewhere", "unknown", f"cluster {doubts[0].cluster}: {doubts[0].why}")
    return WayIn("elsewhere", "refused", f"cluster {others[0].cluster}: {others[0].why}")


def _name_pools(place: PlaceAnswer, answer: PendingAnswer) -> str:
    pools = sorted(
        p.pool for p in answer.places if p.cluster == place.cluster and p.pool and p.state == "fits"
    )
    return f"pool {', '.join(pools)} of cluster {place.cluster}" if pools else ""


def _find_borrowing(demand: WaitingDemand, quotas: QuotaRoom) -> WayIn | None:
    """Return the way by borrowing; None = its own quota admits it, or it has none."""
    cluster, namespace, _, _ = demand.key
    admits = quotas.admits(cluster, namespace, demand.queue, demand.by_resource)
    if admits.admitted:
        return None
    if demand.queue is None:
        return WayIn("borrow", "refused", f"{admits.why}; a quota of a namespace cannot borrow")
    limit = quotas.admits(cluster, namespace, None, demand.by_resource)
    if not limit.admitted:
        return WayIn("borrow", "refused" if limit.admitted is False else "unknown", limit.why)
    borrowed = quotas.find_lenders(cluster, namespace, demand.queue, demand.by_resource)
    if not borrowed.admitted:
        return WayIn("borrow", "unknown" if borrowed.admitted is None else "refused", borrowed.why)
    left, used = _place(demand, {key: node.free for key, node in demand.nodes.items()})
    if left:
        why = "the quota could be borrowed, but no GPUs are free for it"
        return WayIn("borrow", "refused", why, lenders=borrowed.lenders)
    why = f"unused quota of {', '.join(borrowed.lenders)}" if borrowed.lenders else ""
    return WayIn("borrow", "holds", why, cluster, _name_nodes(used), lenders=borrowed.lenders)


def _find_reclaim(demand: WaitingDemand, quotas: QuotaRoom, idle: Sequence[DeviceHolder]) -> WayIn:
    open_to_stop = [holder for holder in idle if not holder.protected]
    if not open_to_stop:
        protected = next((holder.protected for holder in idle), "")
        why = "nobody holds GPUs idle that it could use"
        return WayIn("reclaim_idle", "refused", protected or why)
    way = _find_cheapest(
        "reclaim_idle", demand, quotas, open_to_stop, lambda holder: (0.0, len(holder.devices))
    )
    lost = WorkAtRisk(0.0, "none by the signals of its devices; what it holds in memory is lost")
    return msgspec.structs.replace(way, lost=lost if way.state == "holds" else way.lost)


def _find_moves(
    demand: WaitingDemand, quotas: QuotaRoom, planner: MovePlanner | None
) -> WayIn | None:
    """Return the way after moves; None = nobody plans them, or all pods fit without."""
    left, _ = _place(demand, {key: node.free for key, node in demand.nodes.items()})
    if planner is None or not left:
        return None
    quota = _explain_quota(demand, quotas, ())
    return WayIn("after_moves", "refused", quota) if quota else planner.find(demand, left)


def _find_preemption(
    demand: WaitingDemand, quotas: QuotaRoom, stoppable: StoppableHolders
) -> WayIn:
    if stoppable.never_preempts or not stoppable.lower:
        why = "nobody of a lower priority holds GPUs that it could use"
        return WayIn("preempt", "refused", stoppable.never_preempts or why)
    return _find_cheapest("preempt", demand, quotas, stoppable.lower, _measure_loss)


def _measure_loss(holder: DeviceHolder) -> tuple[float, int]:
    """Return what stopping a workload loses, infinite where it is not known, and its devices."""
    hours = holder.lost.gpu_hours
    return math.inf if hours is None else hours, len(holder.devices)


def _find_cheapest(
    kind: WayKind,
    demand: WaitingDemand,
    quotas: QuotaRoom,
    candidates: Sequence[DeviceHolder],
    cost: Callable[[DeviceHolder], tuple[float, int]],
) -> WayIn:
    """Return the cheapest set of candidates whose stop lets the workload in."""
    ordered = sorted(candidates, key=lambda holder: (cost(holder), holder.key))
    free = {key: node.free for key, node in demand.nodes.items()}
    left, rest = _place(demand, free)

    def explain(chosen: Sequence[DeviceHolder]) -> tuple[str, tuple[str, ...]]:
        """Return why these do not suffice, empty = they do; and the nodes of the placement."""
        quota = _explain_quota(demand, quotas, chosen)
        if quota:
            return quota, ()
        capacities = {
            key: _add(rest.get(key) or free[key], more)
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
        return (there + _count_devices(by_node[node], node, need)) // need.count

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


def _explain_quota(demand: WaitingDemand, quotas: QuotaRoom, chosen: Iterable[DeviceHolder]) -> str:
    """Return what quota refuses it although these stop, empty = none does."""
    cluster, namespace, _, _ = demand.key
    needs = dict(demand.by_resource)
    for holder in chosen:
        if holder.key[1] != namespace or holder.queue != demand.queue:
            continue
        for resource, amount in holder.resources.items():
            if resource in needs:
                needs[resource] = max(0.0, needs[resource] - amount)
    answer = quotas.admits(cluster, namespace, demand.queue, needs)
    return "" if answer.admitted else answer.why


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


def _place(
    demand: WaitingDemand, capacities: Mapping[NodeKey, FreeCapacity]
) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
    return place_pods(demand.needs, capacities, lambda need: sorted(demand.legal[need]))


def _add(capacity: FreeCapacity, more: FreeCapacity) -> FreeCapacity:
    total = capacity.copy()
    for kind, count in more.devices.items():
        total.devices[kind] = total.devices.get(kind, 0) + count
    total.cpu_milli += more.cpu_milli
    total.memory_bytes += more.memory_bytes
    return total


def _name_nodes(used: Mapping[NodeKey, FreeCapacity]) -> tuple[str, ...]:
    return tuple(sorted(key[1] for key in used))
