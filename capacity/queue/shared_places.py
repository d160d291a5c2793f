"""Count the ways in of several workloads together: what one takes, no other one gets.

The workloads take their turn in the order of the queue, each the first of its ways that holds
beside those before it. Another order or other sets of ways may let more in: the count is what is
shown to hold at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from capacity.placement.fleet_state import NodeKey, WorkloadKey
from capacity.placement.node_capacities import PlacementNode, judge_node
from capacity.placement.pod_demand import FreeCapacity
from capacity.queue.holders import DeviceHolder, sum_freed
from capacity.queue.records import WayIn
from capacity.queue.single_ways import find_preemption, find_reclaim
from capacity.queue.stop_sets import StoppableHolders, WaitingDemand, explain_quota, place_demand
from capacity.quota.borrowing import BorrowedQuota, QuotaJudge, RaisedQuota

ListHolders = Callable[[str], Sequence[DeviceHolder]]
"""Returns the workloads that hold devices in a cluster."""


class SharedPlaces:
    """What free devices, holders and quotas leave after the ways that were taken."""

    def __init__(self, nodes: Iterable[PlacementNode], list_holders: ListHolders) -> None:
        self._nodes = {node.key: node for node in nodes}
        self._free: dict[NodeKey, FreeCapacity] = {n.key: n.free for n in self._nodes.values()}
        self._list_holders = list_holders
        self._stopped: dict[WorkloadKey, DeviceHolder] = {}
        self._changed: set[NodeKey] = set()
        self._closed: set[NodeKey] = set()
        """Those of ways with moves: what moves leave free is not known here."""
        self._lenders: set[tuple[str, str]] = set()
        self._without: set[object] = set()
        """What requests nothing else than one for which no further stop was found."""
        self._needs: dict[tuple[str, ...], Counter[str]] = {}
        """What was let in by cluster and namespace, and by cluster and queue."""

    def take_first(
        self,
        demand: WaitingDemand,
        quotas: QuotaJudge,
        stoppable: StoppableHolders,
        ways: Iterable[WayIn],
    ) -> bool:
        """Take the first way that holds beside those taken; return whether one does.

        Where none of its ways does, others may be stopped for it than those of its cheapest way.
        """
        if any(self._take(demand, quotas, way) for way in ways if way.state == "holds"):
            return True
        same = (demand.key[:2], demand.queue, demand.needs, id(stoppable))
        if same in self._without:
            return False
        again = (way for way in self._find_again(demand, quotas, stoppable) if way.state == "holds")
        if any(self._take(demand, quotas, way) for way in again):
            return True
        self._without.add(same)
        return False

    def _find_again(
        self, demand: WaitingDemand, quotas: QuotaJudge, stoppable: StoppableHolders
    ) -> Iterator[WayIn]:
        """Yield its stops of what still runs, on what is left of the nodes."""
        nodes = {
            key: msgspec.structs.replace(node, free=self._free[key])
            for key, node in demand.nodes.items()
        }
        rest = msgspec.structs.replace(demand, nodes=nodes)
        idle, lower = (
            [h for h in holders if h.key not in self._stopped and not h.nodes & self._closed]
            for holders in (stoppable.idle, stoppable.lower)
        )
        yield find_reclaim(rest, quotas, idle)
        yield find_preemption(rest, quotas, StoppableHolders(idle, lower, stoppable.never_preempts))

    def _take(self, demand: WaitingDemand, quotas: QuotaJudge, way: WayIn) -> bool:
        cluster = way.cluster or demand.key[0]
        elsewhere = cluster != demand.key[0]
        stops = [] if way.touched and not way.parts else self._list_stops(demand.key[0], way)
        if not elsewhere and not self._admits(demand, quotas, way, stops):
            return False
        if way.touched:
            used = self._hold_untouched(cluster, way, stops)
        else:
            used = self._place(self._move_to(demand, cluster) if elsewhere else demand, stops)
        if used is None:
            return False
        self._free |= used
        self._changed |= used.keys()
        self._closed |= used.keys() if way.touched else set()
        self._stopped |= {holder.key: holder for holder in stops}
        self._lenders |= {(cluster, name) for name in way.lenders}
        if not elsewhere:
            for key in _list_quota_keys(demand):
                self._needs.setdefault(key, Counter()).update(demand.by_resource)
        return True

    def _list_stops(self, cluster: str, way: WayIn) -> list[DeviceHolder]:
        """Return the holders that a way stops and that no way before it did."""
        parts = [part for part in way.parts or (way,) if not part.touched]
        keys = {key for part in parts for key in part.workloads} - self._stopped.keys()
        holders = [holder for holder in self._list_holders(cluster) if holder.key in keys]
        return [holder for holder in holders if not holder.nodes & self._closed]

    def _admits(
        self, demand: WaitingDemand, quotas: QuotaJudge, way: WayIn, stops: Sequence[DeviceHolder]
    ) -> bool:
        """Return whether quotas let it in beside those before it; what is lent is lent once."""
        kinds = {way.kind, *(part.kind for part in way.parts)}
        if self._lenders & {(demand.key[0], name) for name in way.lenders}:
            return False
        judge = BorrowedQuota(quotas) if "borrow" in kinds else quotas
        judge = RaisedQuota(quotas) if "raise_quota" in kinds else judge
        stopped = [*self._stopped.values(), *stops]
        for key in _list_quota_keys(demand):
            needs = Counter(demand.by_resource) + self._needs.get(key, Counter())
            queue = demand.queue if key[0] == "queue" else None
            both = msgspec.structs.replace(demand, by_resource=needs, queue=queue)
            if explain_quota(both, judge, stopped):
                return False
        return True

    def _place(
        self, demand: WaitingDemand, stops: Sequence[DeviceHolder]
    ) -> dict[NodeKey, FreeCapacity] | None:
        """Return what is left of the nodes that it and its stops change; None = it has no place."""
        freed = {k: self._free[k].add(f) for k, f in sum_freed(stops).items() if k in self._free}
        left, used = place_demand(demand, self._free | freed)
        return None if left else freed | dict(used)

    def _hold_untouched(
        self, cluster: str, way: WayIn, stops: Sequence[DeviceHolder]
    ) -> dict[NodeKey, FreeCapacity] | None:
        """Return nothing for the nodes of a way with moves; None = one has changed before."""
        nodes = {(cluster, name) for name in (*way.touched, *way.nodes)}
        nodes |= {key for holder in stops for key in holder.nodes}
        if nodes & self._changed:
            return None
        return {key: FreeCapacity({}, 0, 0) for key in nodes}

    def _move_to(self, demand: WaitingDemand, cluster: str) -> WaitingDemand:
        """Return the demand on the nodes of another cluster."""
        nodes = {key: node for key, node in self._nodes.items() if key[0] == cluster}
        legal = {
            need: frozenset(key for key, node in nodes.items() if not judge_node(node, need)[0])
            for need in set(demand.needs)
        }
        return msgspec.structs.replace(demand, nodes=nodes, legal=legal)


def _list_quota_keys(demand: WaitingDemand) -> list[tuple[str, ...]]:
    cluster, namespace, _, _ = demand.key
    own: list[tuple[str, ...]] = [("namespace", cluster, namespace)]
    return own if demand.queue is None else [*own, ("queue", cluster, demand.queue)]
