"""Small sites for tests of the replay: nodes of whole GPUs, units in hours."""

from math import inf

from capacity.placement.node_fleet import FleetNode, FleetPod
from capacity.replay.records import (
    ReplayNode,
    ReplayQueue,
    ReplaySite,
    ReplayUnit,
    SchedulerKind,
)

HOUR = 3600.0


def build_unit(
    name: str,
    arrival_h: float,
    run_h: float,
    *,
    gpus: int = 1,
    pods: int = 1,
    team: str = "a",
    queue: str = "",
    priority: int = 0,
    leave_h: float = inf,
) -> ReplayUnit:
    """Return a unit of equal pods."""
    members = tuple(FleetPod(f"{name}-{place}", gpus=gpus) for place in range(pods))
    return ReplayUnit(
        name, team, queue, priority, arrival_h * HOUR, members, (run_h * HOUR,) * pods,
        leave_h * HOUR,
    )  # fmt: skip


def build_site(
    units: list[ReplayUnit],
    *,
    nodes: tuple[int, ...] = (1, 1),
    hours: float = 10,
    scheduler: SchedulerKind = "plain",
    queues: tuple[ReplayQueue, ...] = (),
    preempts: bool = True,
) -> ReplaySite:
    """Return a site with nodes of so many GPUs, from time 0 on."""
    capacities = [FleetNode(f"n{place}", 10**9, 10**9, gpus) for place, gpus in enumerate(nodes)]
    return ReplaySite(
        0, hours * HOUR, tuple(map(ReplayNode, capacities)), tuple(units), scheduler, queues,
        preempts,
    )  # fmt: skip
