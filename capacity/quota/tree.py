"""Compute a tree of quotas of one resource: what a queue may still take of its cohorts.

A node keeps what its lending limit does not let others have; the rest of its quota counts as its
parent's, and so does its use beyond what it keeps. From the leaves up, and from the root down:

    subtree = nominal + sum over children of (subtree - unlent);  unlent = max(0, subtree - lending)
    used    = own use + sum over children of max(0, used - unlent)
    room    = max(0, unlent - used) + min(room of the parent,
                                        subtree - unlent - max(0, used - unlent) + borrowing limit)
    room of a root = subtree - used

Source: Kueue, pkg/cache/scheduler/resource_node.go. Systems without cohorts are trees of one level.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Amount = float | Doubles
"""A number, or one for each hour."""


class QuotaNode(msgspec.Struct, frozen=True):
    """A queue or a cohort."""

    nominal: Amount = 0.0
    borrowing: Amount = inf
    """What it may use beyond the quota of its subtree; infinite = all that others leave."""
    lending: Amount = inf
    """What others may use of it; infinite = all."""
    parent: str = ""
    """Empty = it is a root: it neither borrows nor lends."""


class QuotaTree:
    """Trees of quotas with their use; a parent that is no node is a cohort without own quota."""

    def __init__(self, nodes: Mapping[str, QuotaNode]) -> None:
        parents = {node.parent for node in nodes.values() if node.parent}
        self.nodes = {**dict.fromkeys(parents, QuotaNode()), **nodes}
        up = {name: node.parent for name, node in self.nodes.items() if node.parent}
        looped = {name for name in up if name in list_path(up[name], up)}
        self._up = {name: parent for name, parent in up.items() if name not in looped}
        self.paths = {name: list_path(name, self._up) for name in self.nodes}
        """Each node with all nodes above it, from itself to the root."""
        self.children: dict[str, list[str]] = {name: [] for name in self.nodes}
        self.subtree: dict[str, Amount] = {name: n.nominal for name, n in self.nodes.items()}
        self.unlent: dict[str, Amount] = {}
        self.used: dict[str, Amount] = dict.fromkeys(self.nodes, 0.0)
        for name in sorted(self.nodes, key=lambda name: -len(self.paths[name])):
            self.unlent[name] = np.maximum(self.subtree[name] - self.nodes[name].lending, 0)
            if (parent := self._up.get(name)) is not None:
                self.children[parent].append(name)
                self.subtree[parent] = self.subtree[parent] + self.subtree[name] - self.unlent[name]

    def copy(self) -> "QuotaTree":
        """Return a tree whose use is its own."""
        twin = copy(self)
        twin.used = dict(self.used)
        return twin

    def use(self, name: str, change: Amount) -> None:
        """Change the use of a node, and that of its parents by what it does not keep."""
        for node in self.paths[name]:
            before = self._count_above(node)
            self.used[node] = self.used[node] + change
            change = self._count_above(node) - before

    def room(self, name: str) -> Amount:
        """Return how much more a node may use; below 0 once its quota is below its use."""
        *below, root = self.paths[name]
        room: Amount = self.subtree[root] - self.used[root]
        for node in reversed(below):
            lent = self.subtree[node] - self.unlent[node] - self._count_above(node)
            own: Amount = np.maximum(self.unlent[node] - self.used[node], 0)
            room = own + np.minimum(room, lent + self.nodes[node].borrowing)
        return room

    def exceeds(self, name: str) -> bool:
        """Return whether a node uses more than the quota of its subtree."""
        return bool(self.used[name] > self.subtree[name])

    def list_lenders(self, name: str) -> list[str]:
        """Return the other nodes whose own unused quota a node may borrow, by name."""
        above = self.paths[name]
        return sorted(
            other
            for other, path in self.paths.items()
            if path[-1] == above[-1] and other != name and self._can_lend(path, above)
        )

    def _can_lend(self, path: Iterable[str], above: Iterable[str]) -> bool:
        """Return whether quota of the first node reaches a node that the borrower is under."""
        lender, *_ = path
        spare = np.minimum(self.nodes[lender].nominal, self.subtree[lender] - self.used[lender])
        for node in path:
            if node in above:
                break
            lent = self.subtree[node] - self.unlent[node] - self._count_above(node)
            spare = np.minimum(spare, lent)
        return bool(spare > 0)

    def list_exceeding(self, name: str, skipped: str) -> Iterator[str]:
        """Yield the queues below a cohort whose use, and that of all between, exceeds the quota.

        The subtree `skipped` is left out.
        """
        for child in self.children[name]:
            if child == skipped or not self.exceeds(child):
                continue
            if self.children[child]:
                yield from self.list_exceeding(child, skipped)
            else:
                yield child

    def _count_above(self, name: str) -> Amount:
        """Return the use of a node that counts as its parent's."""
        use: Amount = np.maximum(self.used[name] - self.unlent[name], 0)
        return use


def list_path(name: str, up: Mapping[str, str]) -> list[str]:
    """Return a node and all above it; a circle, which Kueue refuses, ends the list."""
    path = [name]
    while (above := up.get(path[-1])) is not None and above not in path:
        path.append(above)
    return path
