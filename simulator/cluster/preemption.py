"""Preempt pods for pods of higher priority: whom to evict, and which attempts were in vain."""

from collections.abc import Callable

from fallow.kube.objects import get_uid, is_deleting
from simulator.cluster.hardware import Hardware
from simulator.cluster.objects import Object
from simulator.cluster.scheduler.fleet import is_whole
from simulator.cluster.scheduler.order import get_priority
from simulator.cluster.scheduler.preempting import choose_victims
from simulator.cluster.scheduler.requests import PodGang, Policy, Running, get_size
from simulator.cluster.view import View

Shape = tuple[object, ...]


def build_shape(gang: PodGang) -> Shape:
    """Return the key that gangs share which fail for the same reason."""
    if len(gang.members) > 1 or gang.members[0].gang:
        return (gang.name,)
    alone = gang.members[0]
    return (*get_size(alone), alone.priority, alone.preempts)


class Preemption:
    """Which pods are evicted for which, and which nodes are reserved for waiting pods."""

    def __init__(
        self, view: View, hardware: Hardware, policy: Policy, evict: Callable[[str, str], None]
    ) -> None:
        self._view, self._hardware, self._policy, self._evict = view, hardware, policy, evict
        self._yielding: dict[str, dict[str, str]] = {}
        """By pod: those evicted for it, and their nodes."""
        self._reserved_nodes: set[str] = set()
        """Nodes reserved in this turn for a pod that waits there for evicted pods to end."""
        self._vain: dict[Shape, tuple[int, set[str]]] = {}
        """Shapes for which no eviction helped: their priority, and the nodes where since then
        something ended that could not have yielded. Pods of lower priority that come or end
        change nothing: what they held counted as free."""

    def clear(self) -> None:
        """Try everything again: nodes have changed."""
        self._vain.clear()

    def ended(self, pod: Object) -> None:
        """Process a pod that was deleted or has ended."""
        self._yielding.pop(get_uid(pod), None)
        node = pod["spec"].get("nodeName")
        if node and self._vain:
            rank = int(pod["spec"].get("priority") or 0)
            for above, nodes in self._vain.values():
                if rank >= above or is_deleting(pod):  # no pod could count on what it held
                    nodes.add(node)

    def forget(self, pod_uid: str) -> None:
        """Process a pod that was placed."""
        self._yielding.pop(pod_uid, None)

    def make_room(self, gang: PodGang) -> None:
        """Evict pods of lower priority whose placements suffice; once, until they have ended."""
        first = gang.members[0].uid
        running = self._hardware.fleet.running
        waiting = {n for v, n in self._yielding.get(first, {}).items() if v in running}
        if waiting:
            self._keep(waiting)
            return
        above, key = get_priority(gang), build_shape(gang)
        if not self._may_help(gang, above, key):
            return
        victim_uids = choose_victims(
            gang, self._hardware.fleet, self._policy, lambda r: self._yields(r, above)
        )
        if victim_uids is None:
            self._vain[key] = above, set()
        for victim in victim_uids or ():
            self._evict(victim.request.uid, f"Preempted by pod {first}")
            nodes = self._yielding.setdefault(first, {})
            nodes[victim.request.uid] = victim.placement.node
        self._keep({victim.placement.node for victim in victim_uids or ()})

    def _yields(self, running: Running, above: int) -> bool:
        if running.request.priority >= above:
            return False
        there = self._view.pods.get(running.request.uid)
        return there is not None and not is_deleting(there)

    def _may_help(self, gang: PodGang, above: int, key: Shape) -> bool:
        """Rule out, by sums, what was tried in vain and cannot help now either."""
        if key not in self._vain:
            return True
        _, nodes = self._vain[key]
        alone = gang.members[0]
        if len(gang.members) > 1 or not is_whole(alone):
            return bool(nodes)
        fleet = self._hardware.fleet
        for node in sorted(nodes):
            row = fleet.place_of[node]
            if fleet.single[row]:
                return True
            spare = int(fleet.usable[row].sum()) + sum(
                r.placement.gpu_milli * len(r.placement.devices)
                for r in self._hardware.placed[node].values()
                if self._yields(r, above)
            )
            if spare >= int(fleet.need(alone)[row]) * alone.gpus:
                return True
        nodes.clear()
        return False

    def _keep(self, nodes: set[str]) -> None:
        """Place no pod of lower priority on these nodes in this turn: they have been vacated."""
        fleet = self._hardware.fleet
        for node in nodes:
            if fleet.open[fleet.place_of[node]]:
                fleet.close(node)
                self._reserved_nodes.add(node)

    def open_again(self) -> None:
        """End the turn: make reserved nodes available again."""
        for node in self._reserved_nodes:
            self._hardware.fleet.reopen(node)
        self._reserved_nodes = set()
