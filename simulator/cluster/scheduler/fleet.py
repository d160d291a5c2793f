"""What is free in the whole fleet, as arrays over nodes; built once, then taken and given back."""

from collections.abc import Iterable

from simulator.cluster.scheduler.requests import NodeFree, Placement, PodRequest, Running, Taint


class Fleet:
    """Free resources of the nodes, and the pods that hold the rest.

    Keep one for the life of a cluster: building costs a walk over the nodes, taking and giving
    back cost nothing to speak of.
    """

    def __init__(self, nodes: Iterable[NodeFree]) -> None:
        self.names = [node.name for node in nodes]
        self.running: dict[str, Running] = {}

    def take(self, request: PodRequest, placement: Placement, started_s: float = 0.0) -> None:
        """Hold what a placement takes, until `release`."""
        raise NotImplementedError

    def release(self, uid: str) -> Running:
        """Give back what a pod holds."""
        raise NotImplementedError

    def close(self, node: str) -> None:
        """Place nothing more on a node (cordoned, not ready); what runs there stays."""
        raise NotImplementedError

    def reopen(self, node: str) -> None:
        """Place on a node again."""
        raise NotImplementedError

    def lose_device(self, node: str, index: int) -> None:
        """Place nothing more on a device (fallen off the bus, cordoned)."""
        raise NotImplementedError

    def regain_device(self, node: str, index: int) -> None:
        """Place on a device again."""
        raise NotImplementedError

    def relabel(self, node: str, labels: dict[str, str], taints: tuple[Taint, ...]) -> None:
        """Replace a node's labels and taints."""
        raise NotImplementedError

    def node(self, name: str) -> NodeFree:
        """Return what is left on a node."""
        raise NotImplementedError
