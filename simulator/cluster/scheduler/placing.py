"""Place a pod, or a gang of pods, by a policy."""

from collections.abc import Sequence

from simulator.cluster.scheduler.fleet import Fleet
from simulator.cluster.scheduler.requests import Gang, NodeFree, Placement, PodRequest, Policy


def place(
    request: PodRequest, nodes: Fleet | Sequence[NodeFree], policy: Policy = "first-fit"
) -> Placement | None:
    """Return where the pod goes, or None; takes nothing (`Fleet.take` does)."""
    raise NotImplementedError


def place_gang(
    gang: Gang, nodes: Fleet | Sequence[NodeFree], policy: Policy = "first-fit"
) -> tuple[Placement, ...] | None:
    """Return where the members go, or None when fewer fit than must; takes nothing."""
    raise NotImplementedError
