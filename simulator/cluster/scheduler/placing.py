"""Place a pod, or a gang of pods, by a policy."""

from collections.abc import Sequence

import numpy as np

from simulator.cluster.scheduler.devices import choose_placement
from simulator.cluster.scheduler.fleet import Marks, SchedulerFleet
from simulator.cluster.scheduler.gradient import find_least
from simulator.cluster.scheduler.requests import (
    NodeFree,
    Placement,
    PodGang,
    PodRequest,
    Policy,
    get_size,
)


def place(
    request: PodRequest, nodes: SchedulerFleet | Sequence[NodeFree], policy: Policy = "first-fit"
) -> Placement | None:
    """Return the pod's placement, or None; it allocates nothing (`SchedulerFleet.take` does).

    first-fit: the first node by name. best-fit: the node that keeps the least GPU, then CPU, then
    memory free. fgd: the node and device that raise the fragmentation measure least.
    """
    fleet = nodes if isinstance(nodes, SchedulerFleet) else SchedulerFleet(nodes)
    fits = fleet.feasible(request)
    if not fits.any():
        return None
    _, rather = fleet.eligible(request)
    if (fits & rather).any():
        fits &= rather
    if policy == "fgd":
        row, device = find_least(request, fleet, fits)
        return choose_placement(request, fleet, row, policy, device)
    row = int(np.argmax(fits)) if policy == "first-fit" else _find_fullest(fleet, fits)
    return choose_placement(request, fleet, row, policy)


def place_gang(
    gang: PodGang, nodes: SchedulerFleet | Sequence[NodeFree], policy: Policy = "first-fit"
) -> tuple[Placement, ...] | None:
    """Return the members' placements, or None if too few fit; it allocates nothing.

    Larger members are placed first; beyond `min_members` as many as fit.
    """
    fleet = nodes if isinstance(nodes, SchedulerFleet) else SchedulerFleet(nodes)
    need = gang.min_members or len(gang.members)
    if _find_possible(gang, fleet) < need:
        return None
    fleet = fleet.copy()
    placements: list[Placement] = []
    by_size = sorted(gang.members, key=lambda pod: (-pod.gpus, -pod.gpu_milli, -pod.cpu_milli))
    for left, member in zip(range(len(by_size), 0, -1), by_size, strict=True):
        if len(placements) + left < need:
            return None
        where = place(member, fleet, policy)
        if where is not None:
            fleet.take(member, where)
            placements.append(where)
    return tuple(placements) if len(placements) >= need else None


def _find_possible(gang: PodGang, fleet: SchedulerFleet) -> int:
    """Return how many members would fit if each were alone: allocating never makes room.

    A copy of the fleet costs five times as much as this check.
    """
    fits_size: dict[object, bool] = {}
    fitting = 0
    for member in gang.members:
        form = get_size(member)
        if form not in fits_size:
            fits_size[form] = bool(fleet.feasible(member).any())
        fitting += fits_size[form]
    return fitting


def _find_fullest(fleet: SchedulerFleet, fits: Marks) -> int:
    rows = np.flatnonzero(fits)
    left = (fleet.memory[rows], fleet.cpu[rows], fleet.spare[rows])
    return int(rows[np.lexsort(left)[0]])
