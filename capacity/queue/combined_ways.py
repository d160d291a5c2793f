"""Find the way in that combines kinds: what no kind alone achieves, or only with more lost work.

borrowed quota ─┬─► reclaim_idle, after_moves, preempt: then the quota is no obstacle
                └─► reclaim_idle with preempt: idle holders stop before others lose work
                    reclaim_idle with after_moves: pods move to what idle holders leave
raised quota ───┴─► the same, where no way holds under the quotas as they are
"""

import math
from collections.abc import Iterator, Sequence

import msgspec

from capacity.queue.holders import DeviceHolder, sum_freed
from capacity.queue.records import NO_LOSS, WayIn, WorkAtRisk
from capacity.queue.single_ways import find_moves, find_preemption, find_reclaim
from capacity.queue.stop_sets import (
    MOST_DROPPED,
    MovePlanner,
    StoppableHolders,
    WaitingDemand,
    explain_quota,
    find_cheapest,
    measure_loss,
    name_nodes,
    place_demand,
)
from capacity.quota.borrowing import BorrowedQuota, QuotaJudge, RaisedQuota, check_loan

WITHOUT_MOVES = WayIn("after_moves", "holds")
"""The answer where stops alone suffice: a way of its own kind, and no combination."""


def find_combined(
    demand: WaitingDemand,
    quotas: QuotaJudge,
    stoppable: StoppableHolders,
    planner: MovePlanner | None,
) -> WayIn | None:
    """Return the combination that loses least; None = none holds."""
    ways = [*_list_combined(demand, quotas, stoppable, planner, ())]
    loan = _find_loan(demand, quotas)
    if loan is not None:
        ways += _list_after(loan, demand, BorrowedQuota(quotas), stoppable, planner)
    return min(ways, key=_rank, default=None)


def find_raise(
    demand: WaitingDemand,
    quotas: QuotaJudge,
    stoppable: StoppableHolders,
    planner: MovePlanner | None,
) -> WayIn | None:
    """Return the way whose first step raises the quota that refuses it; None = none refuses it."""
    cluster, namespace, _, _ = demand.key
    refusal = quotas.admits(cluster, namespace, demand.queue, demand.by_resource)
    if refusal.admitted is not False or refusal.is_final:
        return None
    first, raised = WayIn("raise_quota", "holds", refusal.why, cluster), RaisedQuota(quotas)
    left, used = place_demand(demand, {key: node.free for key, node in demand.nodes.items()})
    if not left:
        return msgspec.structs.replace(first, nodes=name_nodes(used))
    why = f"nor with more quota: {find_reclaim(demand, raised, stoppable.idle).why}"
    none = WayIn("raise_quota", "refused", why)
    return min(_list_after(first, demand, raised, stoppable, planner), key=_rank, default=none)


def _list_after(
    first: WayIn,
    demand: WaitingDemand,
    room: QuotaJudge,
    stoppable: StoppableHolders,
    planner: MovePlanner | None,
) -> Iterator[WayIn]:
    """Yield what a first step about quotas achieves together with stops and moves."""
    singles = (
        find_reclaim(demand, room, stoppable.idle),
        find_moves(demand, room, planner),
        find_preemption(demand, room, stoppable),
    )
    yield from (_combine((first, way)) for way in singles if way and way.state == "holds")
    yield from _list_combined(demand, room, stoppable, planner, (first,))


def _find_loan(demand: WaitingDemand, quotas: QuotaJudge) -> WayIn | None:
    """Return the loan that its queue may take; None = it needs none, or gets none."""
    cluster, namespace, _, _ = demand.key
    queue, needs = demand.queue, demand.by_resource
    if queue is None or quotas.admits(cluster, namespace, queue, needs).admitted:
        return None
    loan = check_loan(quotas, demand.key, queue, needs)
    return WayIn("borrow", "holds", lenders=loan.lenders) if loan.admitted else None


def _list_combined(
    demand: WaitingDemand,
    quotas: QuotaJudge,
    stoppable: StoppableHolders,
    planner: MovePlanner | None,
    before: tuple[WayIn, ...],
) -> Iterator[WayIn]:
    """Yield the stop of idle holders together with moves, and with that of lower priorities."""
    idle = [holder for holder in stoppable.idle if not holder.protected]
    if not idle:
        return
    if planner is not None:
        yield from _list_moves(demand, quotas, idle, planner, before)
    mixed = None if stoppable.never_preempts else _find_mixed_stop(demand, quotas, stoppable, idle)
    if mixed is not None:
        yield _combine((*before, *mixed))


def _find_mixed_stop(
    demand: WaitingDemand,
    quotas: QuotaJudge,
    stoppable: StoppableHolders,
    idle: Sequence[DeviceHolder],
) -> tuple[WayIn, WayIn] | None:
    """Return the stops of idle holders and of lower priorities; None = not both are needed."""
    free_of_loss = {holder.key for holder in idle}
    lower = [holder for holder in stoppable.lower if holder.key not in free_of_loss]

    def cost(holder: DeviceHolder) -> tuple[float, int]:
        if holder.key in free_of_loss:
            return 0.0, len(holder.devices)
        return measure_loss(holder)

    way = find_cheapest("preempt", demand, quotas, [*idle, *lower], cost)
    if way.state != "holds":
        return None
    stopped = [h for h in idle if h.key in way.workloads]
    preempted = [h for h in lower if h.key in way.workloads]
    if not stopped or not preempted:
        return None
    hours = [holder.lost.gpu_hours for holder in preempted]
    loss = WorkAtRisk(
        None if None in hours else round(sum(h or 0.0 for h in hours), 6),
        "; ".join(sorted({holder.lost.why for holder in preempted})),
        estimated=any(holder.lost.estimated for holder in preempted),
    )
    return (
        _describe_reclaim(stopped),
        WayIn(
            "preempt",
            "holds",
            cluster=way.cluster,
            nodes=way.nodes,
            workloads=tuple(holder.key for holder in preempted),
            gpus=sum(len(holder.devices) for holder in preempted),
            lost=loss,
        ),
    )


def _list_moves(
    demand: WaitingDemand,
    quotas: QuotaJudge,
    idle: Sequence[DeviceHolder],
    planner: MovePlanner,
    before: tuple[WayIn, ...],
) -> Iterator[WayIn]:
    """Yield moves to what idle holders leave: a set of holders none of which can be left out.

    Room that more of them leave is never an obstacle. So where all of them together do not
    suffice, no set does; else bisection finds the fewest of the order that do.
    """
    ordered = sorted(idle, key=lambda holder: (-demand.count_usable(holder), holder.key))

    def plan(stopped: Sequence[DeviceHolder]) -> WayIn | None:
        """Return the moves beside these stops; None = none hold."""
        if explain_quota(demand, quotas, stopped):
            return None
        emptied = _empty_nodes(demand, stopped)
        left, _ = place_demand(demand, {key: node.free for key, node in emptied.nodes.items()})
        if not left:
            return WITHOUT_MOVES
        way = planner.find(emptied, left, frozenset(holder.key for holder in stopped))
        return way if way.state == "holds" else None

    if plan(ordered) is None:
        return
    low, high = 1, len(ordered)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if plan(ordered[:middle]) is None else (low, middle)
    chosen = ordered[:low]
    for holder in chosen[:MOST_DROPPED]:
        fewer = [other for other in chosen if other is not holder]
        if fewer and plan(fewer) is not None:
            chosen = fewer
    way = plan(chosen)
    if way is not None and way is not WITHOUT_MOVES:
        yield _combine((*before, _describe_reclaim(chosen), way))


def _empty_nodes(demand: WaitingDemand, stopped: Sequence[DeviceHolder]) -> WaitingDemand:
    """Return the demand on nodes without these holders."""
    freed = sum_freed(stopped)
    nodes = {
        key: msgspec.structs.replace(node, free=node.free.add(freed[key])) if key in freed else node
        for key, node in demand.nodes.items()
    }
    return msgspec.structs.replace(demand, nodes=nodes)


def _describe_reclaim(stopped: Sequence[DeviceHolder]) -> WayIn:
    return WayIn(
        "reclaim_idle",
        "holds",
        workloads=tuple(holder.key for holder in stopped),
        gpus=sum(len(holder.devices) for holder in stopped),
        lost=NO_LOSS,
    )


def _combine(parts: tuple[WayIn, ...]) -> WayIn:
    """Return parts as one way; the placement is that of the last one."""
    last = parts[-1]
    hours = [part.lost.gpu_hours for part in parts]
    lost = WorkAtRisk(
        None if None in hours else round(sum(h or 0.0 for h in hours), 6),
        "; ".join(dict.fromkeys(part.lost.why for part in parts if part.lost.why)),
        estimated=any(part.lost.estimated for part in parts),
    )
    return WayIn(
        "combined",
        "holds",
        "; ".join(part.why for part in parts if part.why),
        last.cluster,
        last.nodes,
        tuple(dict.fromkeys(key for part in parts for key in part.workloads)),
        tuple(name for part in parts for name in part.lenders),
        sum(part.gpus for part in parts),
        lost,
        tuple(move for part in parts for move in part.moves),
        tuple(node for part in parts for node in part.touched),
        parts,
    )


def _rank(way: WayIn) -> tuple[float, int, int]:
    """Return the order of combinations: what they lose, their parts, the GPUs that they free."""
    hours = way.lost.gpu_hours
    return math.inf if hours is None else hours, len(way.parts), way.gpus
