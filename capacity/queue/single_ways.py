"""Find the ways in of one kind each, with a placement that holds against real nodes."""

from collections.abc import Sequence

import msgspec

from capacity.placement.pending_places import PendingAnswer, PlaceAnswer
from capacity.queue.holders import DeviceHolder
from capacity.queue.records import NO_LOSS, WayIn
from capacity.queue.stop_sets import (
    MovePlanner,
    StoppableHolders,
    WaitingDemand,
    explain_quota,
    find_cheapest,
    measure_loss,
    name_nodes,
    place_demand,
)
from capacity.quota.borrowing import QuotaJudge, check_loan


def find_single_ways(
    demand: WaitingDemand,
    answer: PendingAnswer,
    quotas: QuotaJudge,
    stoppable: StoppableHolders,
    planner: MovePlanner | None,
) -> list[WayIn]:
    """Return the ways of one kind each; without a planner no moves."""
    ways = [
        _describe_free(demand, answer),
        _find_borrowing(demand, quotas),
        find_reclaim(demand, quotas, stoppable.idle),
        find_moves(demand, quotas, planner),
        _describe_elsewhere(demand, answer),
        find_preemption(demand, quotas, stoppable),
    ]
    return [way for way in ways if way is not None]


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


def _find_borrowing(demand: WaitingDemand, quotas: QuotaJudge) -> WayIn | None:
    """Return the way by borrowing; None = its own quota admits it, or it has none."""
    cluster, namespace, _, _ = demand.key
    admits = quotas.admits(cluster, namespace, demand.queue, demand.by_resource)
    if admits.admitted:
        return None
    if demand.queue is None:
        return WayIn("borrow", "refused", f"{admits.why}; a quota of a namespace cannot borrow")
    borrowed = check_loan(quotas, demand.key, demand.queue, demand.by_resource)
    if not borrowed.admitted:
        return WayIn("borrow", "unknown" if borrowed.admitted is None else "refused", borrowed.why)
    left, used = place_demand(demand, {key: node.free for key, node in demand.nodes.items()})
    if left:
        why = "the quota could be borrowed, but no GPUs are free for it"
        return WayIn("borrow", "refused", why, lenders=borrowed.lenders)
    why = f"unused quota of {', '.join(borrowed.lenders)}" if borrowed.lenders else ""
    return WayIn("borrow", "holds", why, cluster, name_nodes(used), lenders=borrowed.lenders)


def find_reclaim(demand: WaitingDemand, quotas: QuotaJudge, idle: Sequence[DeviceHolder]) -> WayIn:
    """Return the way by stopping idle holders that nothing protects."""
    open_to_stop = [holder for holder in idle if not holder.protected]
    if not open_to_stop:
        protected = next((holder.protected for holder in idle), "")
        why = "nobody holds GPUs idle that it could use"
        return WayIn("reclaim_idle", "refused", protected or why)
    way = find_cheapest(
        "reclaim_idle", demand, quotas, open_to_stop, lambda holder: (0.0, len(holder.devices))
    )
    return msgspec.structs.replace(way, lost=NO_LOSS if way.state == "holds" else way.lost)


def find_moves(
    demand: WaitingDemand, quotas: QuotaJudge, planner: MovePlanner | None
) -> WayIn | None:
    """Return the way after moves; None = nobody plans them, or all pods fit without."""
    left, _ = place_demand(demand, {key: node.free for key, node in demand.nodes.items()})
    if planner is None or not left:
        return None
    quota = explain_quota(demand, quotas, ())
    return WayIn("after_moves", "refused", quota) if quota else planner.find(demand, left)


def find_preemption(
    demand: WaitingDemand, quotas: QuotaJudge, stoppable: StoppableHolders
) -> WayIn:
    """Return the way by stopping workloads of a lower priority, those that lose least."""
    if stoppable.never_preempts or not stoppable.lower:
        why = "nobody of a lower priority holds GPUs that it could use"
        return WayIn("preempt", "refused", stoppable.never_preempts or why)
    return find_cheapest("preempt", demand, quotas, stoppable.lower, measure_loss)
