"""First-fit-decreasing of whole shapes onto nodes, vectorised over the nodes.

All pods of a shape are placed in one step: the first nodes take as many as fit, new nodes take the
rest. A pod of several GPUs takes whole ones. A part of a GPU goes to GPUs in use with the same
sharing method before it opens another.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays import Doubles, Ints
from analyzers.pools.shapes import PODS, WHOLE, Marks, PackingProblem

_UNUSED, _ABSENT = -1, -2


class PodBatch(msgspec.Struct, frozen=True):
    """A number of pods of a shape on each of some nodes."""

    shape: int
    nodes: Ints
    pods: Ints


class PackedNodes:
    """Nodes and their free capacity; a node's number is its index."""

    def __init__(self, problem: PackingProblem) -> None:
        self.problem = problem
        widest = int(problem.node_gpus.max(initial=0))
        self.kind: Ints = np.zeros(0, dtype=np.int64)
        self.free: Ints = np.zeros((0, 3), dtype=np.int64)
        self.gpu_free: Ints = np.zeros((0, widest), dtype=np.int64)
        """Thousandths free of each GPU."""
        self.use: Ints = np.zeros((0, widest), dtype=np.int64)
        """How each GPU is shared: a sharing method, unused, or absent."""
        self.placed: list[PodBatch] = []

    @property
    def cost(self) -> float:
        """USD per hour of all nodes."""
        return float(self.problem.price[self.kind].sum())

    def open(self, kind: int, number: int) -> Ints:
        """Add empty nodes of a type; return their numbers."""
        problem, first = self.problem, len(self.kind)
        has = np.arange(self.gpu_free.shape[1]) < problem.node_gpus[kind]
        self.kind = np.concatenate([self.kind, np.full(number, kind)])
        self.free = np.concatenate([self.free, np.tile(problem.room[kind], (number, 1))])
        self.gpu_free = np.concatenate(
            [self.gpu_free, np.tile(np.where(has, WHOLE, 0), (number, 1))]
        )
        self.use = np.concatenate([self.use, np.tile(np.where(has, _UNUSED, _ABSENT), (number, 1))])
        return np.arange(first, first + number)

    def fits(self, shape: int, among: Ints) -> Ints:
        """Return how many more pods of a shape each node can take."""
        problem = self.problem
        wanted = np.maximum(problem.need[shape], 1)
        room: Ints = np.min(self.free[among] // wanted, axis=1)
        room = np.where(problem.need[shape, :PODS].any(), room, self.free[among, PODS])
        if problem.gpus[shape]:
            room = np.minimum(room, self._slots(shape, among))
        return np.where(problem.allowed[shape, self.kind[among]], room, 0)

    def _slots(self, shape: int, among: Ints) -> Ints:
        problem, free = self.problem, self.gpu_free[among]
        slots: Ints
        if problem.milli[shape] == WHOLE:
            slots = (self.use[among] == _UNUSED).sum(axis=1) // problem.gpus[shape]
            return slots
        slots = np.where(self._open_to(shape, among), free // problem.milli[shape], 0).sum(axis=1)
        return slots

    def _open_to(self, shape: int, among: Ints) -> Marks:
        use = self.use[among]
        same: Marks = (use == _UNUSED) | (use == self.problem.sharing[shape])
        return same

    def put(self, shape: int, pods: Ints, among: Ints) -> None:
        """Place this many pods of a shape on each node.

        Raises:
            ValueError: a node does not have the GPUs.
        """
        chosen = pods > 0
        among, pods = among[chosen], pods[chosen]
        if not len(among):
            return
        problem = self.problem
        self.free[among] -= pods[:, None] * problem.need[shape]
        if problem.gpus[shape]:
            if problem.milli[shape] == WHOLE:
                self._take_whole(shape, pods, among)
            else:
                self._take_parts(shape, pods, among)
        self.placed.append(PodBatch(shape, among, pods))

    def _take_whole(self, shape: int, pods: Ints, among: Ints) -> None:
        unused = self.use[among] == _UNUSED
        wanted = (pods * self.problem.gpus[shape])[:, None]
        chosen = unused & (np.cumsum(unused, axis=1) <= wanted)
        self.use[among] = np.where(chosen, 0, self.use[among])
        self.gpu_free[among] = np.where(chosen, 0, self.gpu_free[among])

    def _take_parts(self, shape: int, pods: Ints, among: Ints) -> None:
        milli, way = self.problem.milli[shape], self.problem.sharing[shape]
        left = pods.copy()
        for begun in (True, False):
            for gpu in range(self.gpu_free.shape[1]):
                use, free = self.use[among, gpu], self.gpu_free[among, gpu]
                here = np.where(use == (way if begun else _UNUSED), free // milli, 0)
                parts = np.minimum(left, here)
                self.gpu_free[among, gpu] = free - parts * milli
                self.use[among, gpu] = np.where(parts > 0, way, use)
                left -= parts
        if left.any():
            raise ValueError(f"{left.sum()} parts of {milli} thousandths find no GPU")

    def add(self, shape: int, count: int, kind: int | None) -> int:
        """Place pods on the first nodes that fit, then on new ones of a type, if given.

        Returns:
            How many pods could not be placed.
        """
        every = np.flatnonzero(self.free[:, PODS] > 0)
        if kind is not None:
            every = every[self.kind[every] == kind]
        room = self.fits(shape, every)
        before = np.cumsum(room) - room
        placed = np.clip(count - before, 0, room)
        self.put(shape, placed, every)
        left = count - int(placed.sum())
        if not left or kind is None:
            return left
        most = int(self.problem.most[shape, kind])
        fresh = self.open(kind, -(-left // most))
        self.put(shape, np.minimum(np.full(len(fresh), most), left - most * np.arange(len(fresh))),
                 fresh)  # fmt: skip
        return 0

    def count_pods(self) -> Ints:
        """Return the number of pods of each shape (column) on each node (row)."""
        table = np.zeros((len(self.kind), len(self.problem.shapes)), dtype=np.int64)
        for placed in self.placed:
            np.add.at(table[:, placed.shape], placed.nodes, placed.pods)
        return table

    def only(self, keep: Ints) -> "PackedNodes":
        """Return some of the nodes, with all of their pods."""
        packed = PackedNodes(self.problem)
        packed.kind, packed.free = self.kind[keep], self.free[keep]
        packed.gpu_free, packed.use = self.gpu_free[keep], self.use[keep]
        number = np.full(len(self.kind), -1)
        number[keep] = np.arange(len(keep))
        for placed in self.placed:
            chosen = number[placed.nodes] >= 0
            nodes, pods = number[placed.nodes][chosen], placed.pods[chosen]
            packed.placed.append(PodBatch(placed.shape, nodes, pods))
        return packed

    def and_also(self, other: "PackedNodes") -> "PackedNodes":
        """Return these nodes and those of another packing of the same problem."""
        packed = PackedNodes(self.problem)
        packed.kind = np.concatenate([self.kind, other.kind])
        packed.free = np.concatenate([self.free, other.free])
        packed.gpu_free = np.concatenate([self.gpu_free, other.gpu_free])
        packed.use = np.concatenate([self.use, other.use])
        moved = [PodBatch(p.shape, p.nodes + len(self.kind), p.pods) for p in other.placed]
        packed.placed = [*self.placed, *moved]
        return packed

    def as_types(self, kinds: Ints) -> "PackedNodes":
        """Return the same pods on nodes of other types that fit them (`find_downsized`)."""
        problem = self.problem
        packed = self.only(np.arange(len(self.kind)))
        packed.kind = kinds
        packed.free = self.free + problem.room[kinds] - problem.room[self.kind]
        begun = np.where(self.use >= 0, 0, 1)
        order = np.argsort(begun, axis=1, kind="stable")
        use, gpu_free = (np.take_along_axis(a, order, axis=1) for a in (self.use, self.gpu_free))
        place = np.arange(self.gpu_free.shape[1])[None, :]
        has = place < problem.node_gpus[kinds][:, None]
        packed.use = np.where(use >= 0, use, np.where(has, _UNUSED, _ABSENT))
        packed.gpu_free = np.where(use >= 0, gpu_free, np.where(has, WHOLE, 0))
        return packed


def list_orders(problem: PackingProblem, kind: int) -> tuple[Ints, ...]:
    """Return the orders tried on a type: by the largest request, by the sum, by GPUs first."""
    room = np.maximum(problem.room[kind], 1)
    parts = problem.need / room
    gpu_parts = problem.gpus * problem.milli / (WHOLE * max(int(problem.node_gpus[kind]), 1))
    largest = np.maximum(parts.max(axis=1), gpu_parts)
    total = parts[:, :PODS].sum(axis=1) + gpu_parts
    tie = np.arange(len(largest))
    return (
        np.lexsort((tie, -total, -largest)),
        np.lexsort((tie, -largest, -total)),
        np.lexsort((tie, -total, -gpu_parts)),
    )


def pack_pods(problem: PackingProblem, split: Ints, rule: int) -> PackedNodes:
    """Place the split's pods, type by type, in the `rule`-th order."""
    nodes = PackedNodes(problem)
    for kind in range(len(problem.offers)):
        wanted = split[:, kind]
        if wanted.any():
            for shape in list_orders(problem, kind)[rule]:
                if wanted[shape]:
                    nodes.add(int(shape), int(wanted[shape]), kind)
    return nodes


def find_downsized(nodes: PackedNodes) -> Ints:
    """Return, for each node, the cheapest type that fits its pods."""
    problem = nodes.problem
    used = problem.room[nodes.kind] - nodes.free
    used_gpus = ((nodes.use != _UNUSED) & (nodes.use != _ABSENT)).sum(axis=1)
    legal = np.ones((len(nodes.kind), len(problem.offers)), dtype=np.bool_)
    for placed in nodes.placed:
        legal[placed.nodes] &= problem.allowed[placed.shape]
    for dimension in range(3):
        legal &= used[:, None, dimension] <= problem.room[None, :, dimension]
    legal &= used_gpus[:, None] <= problem.node_gpus[None, :]
    costs: Doubles = np.where(legal, problem.price[None, :], np.inf)
    best: Ints = costs.argmin(axis=1)
    return np.where(costs[np.arange(len(best)), best] < problem.price[nodes.kind], best, nodes.kind)


def describe_mix(nodes: PackedNodes) -> Sequence[dict[str, Any]]:
    """Return the mix: type, nodes, GPUs and USD per hour, the most expensive first."""
    problem = nodes.problem
    number = np.bincount(nodes.kind, minlength=len(problem.offers))
    rows = [
        {
            "instance_type": offer.instance_type,
            "gpu_model": offer.gpu_model,
            "nodes": int(n),
            "gpus": int(n) * offer.gpus,
            "usd_per_hour": round(float(offer.usd_h or 0) * int(n), 6),
        }
        for offer, n in zip(problem.offers, number, strict=True)
        if n
    ]
    return sorted(rows, key=lambda r: (-float(str(r["usd_per_hour"])), str(r["instance_type"])))
