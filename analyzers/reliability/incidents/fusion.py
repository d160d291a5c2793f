"""Fuse signals into incidents: what belongs to one failure is one incident.

Two signals belong together if they are of one workload and near in time, of one device within an
hour, or one is of a node (an event) on which the other one was. So a job that loses ranks on two
nodes is one incident, and so are all workloads of a node that goes away.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from datetime import timedelta

from analyzers.reliability.incidents.records import ANOTHERS, Signal

NEAR = timedelta(minutes=10)
"""Signals of one workload or node this near belong together (the failures of pods do, too)."""
SAME_DEVICE = timedelta(hours=1)
TOGETHER = frozenset({"nodes_not_ready_together", "nodes_not_rebooted", "images_fail_together"})
"""Signals of several nodes or workloads; the text names their place."""


def fuse_signals(signals: Sequence[Signal]) -> list[list[Signal]]:
    """Return the signals of each incident, both in order of time."""
    ordered = sorted(signals, key=_get_order)
    parents = list(range(len(ordered)))

    def find(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    for a, b in _list_links(ordered):
        parents[find(b)] = find(a)
    groups: dict[int, list[Signal]] = defaultdict(list)
    for place, signal in enumerate(ordered):
        groups[find(place)].append(signal)
    return [group for group in groups.values() if any(s.name not in ANOTHERS for s in group)]


def _get_order(signal: Signal) -> tuple[object, ...]:
    return signal.at, signal.name, signal.cluster, signal.node, signal.device, signal.pod


def _list_links(ordered: Sequence[Signal]) -> Iterator[tuple[int, int]]:
    """Yield places of signals that belong together: each with the last ones of its keys."""
    for gap, keys_of in ((NEAR, _list_near_keys), (SAME_DEVICE, _list_device_keys)):
        chains: dict[Hashable, list[int]] = defaultdict(list)
        for place, signal in enumerate(ordered):
            for key in keys_of(signal):
                chains[key].append(place)
        for chain in chains.values():
            last = chain[0]
            for place in chain[1:]:
                if ordered[place].at - ordered[last].end <= gap:
                    yield last, place
                if ordered[place].end >= ordered[last].end:
                    last = place
    yield from _list_node_links(ordered)


def _list_near_keys(signal: Signal) -> Iterator[Hashable]:
    if signal.owner is not None:
        yield "owner", signal.owner
    if signal.owner is None and not signal.device and signal.node:
        yield "node", signal.cluster, signal.node
    if signal.name in TOGETHER:
        yield signal.name, signal.cluster, signal.text


def _list_device_keys(signal: Signal) -> Iterator[Hashable]:
    if signal.device:
        yield signal.cluster, signal.device


def _list_node_links(ordered: Sequence[Signal]) -> Iterator[tuple[int, int]]:
    """Yield events of nodes with what happened on these nodes near to them."""
    by_node: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, signal in enumerate(ordered):
        if signal.node:
            by_node[signal.cluster, signal.node].append(place)
    for places in by_node.values():
        events = [p for p in places if ordered[p].owner is None and not ordered[p].device]
        for event in events:
            for place in places:
                apart = max(
                    ordered[place].at - ordered[event].end, ordered[event].at - ordered[place].end
                )
                if place != event and apart <= NEAR:
                    yield event, place
