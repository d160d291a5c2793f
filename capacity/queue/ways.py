"""Find the ways in of a waiting workload, each with a placement that holds against real nodes.

answer, quotas ──► free, borrow, elsewhere
idle holders ────► reclaim_idle ─┐
planner ─────────► after_moves ──┼─► combined, where each of them alone loses work or refuses
lower priority ──► preempt ──────┘
"""

from capacity.placement.pending_places import PendingAnswer
from capacity.queue.combined_ways import find_combined, find_raise
from capacity.queue.records import WayIn, WayKind
from capacity.queue.single_ways import find_single_ways
from capacity.queue.stop_sets import MovePlanner, StoppableHolders, WaitingDemand
from capacity.quota.borrowing import QuotaJudge

ORDER: dict[WayKind, int] = {
    "free": 0, "borrow": 1, "reclaim_idle": 2, "after_moves": 3, "elsewhere": 4, "combined": 5,
    "preempt": 6, "raise_quota": 7,
}  # fmt: skip
"""Of ways that lose equally much, the first one is cheaper."""
STATES = {"holds": 0, "unknown": 1, "refused": 2}


def find_ways(
    demand: WaitingDemand,
    answer: PendingAnswer,
    quotas: QuotaJudge,
    stoppable: StoppableHolders,
    planner: MovePlanner | None = None,
) -> tuple[WayIn, ...]:
    """Return the ways in, the cheapest that holds first; without a planner no moves.

    A way of several kinds is one of them only where it loses less than each way of one kind; one
    that raises a quota only where no other holds: somebody has to decide about it.
    """
    ways = sorted(find_single_ways(demand, answer, quotas, stoppable, planner), key=rank_way)
    if rank_way(ways[0])[:3] != (STATES["holds"], False, 0.0):
        combined = find_combined(demand, quotas, stoppable, planner)
        if combined is not None and rank_way(combined)[:3] < rank_way(ways[0])[:3]:
            ways = sorted([*ways, combined], key=rank_way)
    if ways[0].state != "holds" and (raised := find_raise(demand, quotas, stoppable, planner)):
        ways = sorted([*ways, raised], key=rank_way)
    return tuple(ways)


def rank_way(way: WayIn) -> tuple[int, bool, float, int]:
    """Return the order of a way: it holds, what it loses is known, how much, its kind."""
    lost = way.lost.gpu_hours
    return STATES[way.state], lost is None, lost or 0.0, ORDER[way.kind]
