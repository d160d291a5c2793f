"""Column generation: nodes as patterns of pods, priced by the value of each pod to the mix.

A linear program buys patterns; its duals give the value of a pod of each shape. A better pattern is
worth more than its node costs (Gilmore and Gomory, Operations Research 9(6), 1961). Patterns are
searched by greedy filling, so the program's own value is no bound.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from analyzers.arrays import Doubles, Ints
from analyzers.pools.lower_bound import SLACK
from analyzers.pools.packing import PackedNodes
from analyzers.pools.shapes import WHOLE, PackingProblem

ROUNDS = 40
"""Maximum rounds in which heuristics search for better patterns."""
ENOUGH = 1 + 1e-6
"""A pattern must be worth this many times its node's price."""

Pattern = tuple[int, tuple[int, ...]]
"""Number of a type, pods of each shape."""


class NodePatterns:
    """Patterns that fit on nodes, and the linear program over them."""

    def __init__(self, problem: PackingProblem) -> None:
        self.problem = problem
        self.columns: dict[Pattern, None] = {}
        self.wanted_shapes = np.flatnonzero(problem.count > 0)
        self._need: list[list[int]] = problem.need.tolist()
        self._gpus: list[int] = problem.gpus.tolist()
        self._milli: list[int] = problem.milli.tolist()
        self._way: list[int] = problem.sharing.tolist()

    def learn(self, patterns: Iterable[Pattern]) -> bool:
        """Add patterns; return whether any was new."""
        before = len(self.columns)
        self.columns.update(dict.fromkeys(patterns))
        return len(self.columns) > before

    def of(self, nodes: PackedNodes) -> Iterator[Pattern]:
        """Yield the patterns of nodes, as far as they fit when placed again."""
        for kind, pods in zip(nodes.kind.tolist(), nodes.count_pods().tolist(), strict=True):
            yield kind, tuple(self._repacked(kind, pods))

    def solve(self) -> tuple[Doubles, Doubles]:
        """Return how many of each pattern to buy, and the value of a pod of each shape."""
        from scipy.optimize import linprog  # noqa: PLC0415  (loads in 0.3 s)
        from scipy.sparse import csc_array  # noqa: PLC0415

        matrix = np.array([pods for _, pods in self.columns], dtype=np.float64)[
            :, self.wanted_shapes
        ]
        price = self.problem.price[[kind for kind, _ in self.columns]]
        wanted = self.problem.count[self.wanted_shapes].astype(np.float64)
        answer = linprog(price, A_ub=csc_array(-matrix.T), b_ub=-wanted, method="highs")
        if answer.x is None:  # pragma: no cover  (every shape has a pattern of its own)
            raise ValueError(f"HiGHS found no mix of patterns: {answer.message}")
        worth = np.zeros(len(self.problem.shapes))
        worth[self.wanted_shapes] = -answer.ineqlin.marginals
        return answer.x, worth

    def better(self, worth: Doubles) -> Iterator[Pattern]:
        """Yield patterns worth more than their node, filled by value per unit in several orders."""
        problem = self.problem
        for kind in range(len(problem.offers)):
            room = np.maximum(problem.room[kind], 1)
            gpu_parts = (
                problem.gpus * problem.milli / (WHOLE * max(int(problem.node_gpus[kind]), 1))
            )
            parts = np.column_stack([problem.need / room, gpu_parts])
            fits = (problem.most[:, kind] > 0) & (worth > 0) & (problem.count > 0)
            for size in (parts.max(axis=1), parts.sum(axis=1), parts[:, 0] + parts[:, 3]):
                order = np.argsort(-worth / np.maximum(size, SLACK), kind="stable")
                order = order[fits[order]]
                for skipped in (0, 1, 2):
                    pods = self._filled(kind, order[skipped:].tolist())
                    value = float(np.dot(worth, pods))
                    if value > problem.price[kind] * ENOUGH:
                        yield kind, tuple(pods)

    def _filled(self, kind: int, order: list[int]) -> list[int]:
        """Fill one empty node greedily."""
        problem = self.problem
        cpu, memory, pods = problem.room[kind].tolist()
        unused = int(problem.node_gpus[kind])
        begun: list[list[int]] = []
        filled = [0] * len(problem.shapes)
        count = problem.count
        for shape in order:
            need = self._need[shape]
            number = min(pods, int(count[shape]))
            if need[0]:
                number = min(number, cpu // need[0])
            if need[1]:
                number = min(number, memory // need[1])
            if number <= 0:
                continue
            gpus, milli = self._gpus[shape], self._milli[shape]
            if gpus and milli == WHOLE:
                number = min(number, unused // gpus)
                unused -= number * gpus
            elif gpus:
                number, unused = _place_parts(begun, unused, number, milli, self._way[shape])
            filled[shape] = number
            cpu -= number * need[0]
            memory -= number * need[1]
            pods -= number
        return self._repacked(kind, filled)

    def _repacked(self, kind: int, filled: list[int]) -> list[int]:
        """Leave out the parts of GPUs that do not fit when the largest come first (`_whole`)."""
        unused, begun = int(self.problem.node_gpus[kind]), list[list[int]]()
        parts = [s for s, n in enumerate(filled) if n and self._gpus[s] and self._milli[s] < WHOLE]
        unused -= sum(
            self._gpus[s] * n for s, n in enumerate(filled) if n and self._milli[s] == WHOLE
        )
        for shape in sorted(parts, key=lambda s: (-self._milli[s], s)):
            filled[shape], unused = _place_parts(
                begun, unused, filled[shape], self._milli[shape], self._way[shape]
            )
        return filled


def _place_parts(
    begun: list[list[int]], unused: int, number: int, milli: int, way: int
) -> tuple[int, int]:
    """Put parts on GPUs in use, then on unused ones; return how many, and the remainder."""
    left = number
    for gpu in begun:
        if gpu[1] == way:
            parts = min(left, gpu[0] // milli)
            gpu[0] -= parts * milli
            left -= parts
    while left and unused:
        parts = min(left, WHOLE // milli)
        begun.append([WHOLE - parts * milli, way])
        unused -= 1
        left -= parts
    return number - left, unused


def generate_nodes(
    problem: PackingProblem, packings: Iterable[PackedNodes]
) -> tuple[PackedNodes, Ints]:
    """Return nodes of whole patterns, and the pods left over."""
    patterns = NodePatterns(problem)
    kinds = np.where(problem.most > 0, problem.price / np.maximum(problem.most, 1), np.inf)
    for shape in patterns.wanted_shapes.tolist():
        alone = [0] * len(problem.shapes)
        kind = int(kinds[shape].argmin())
        alone[shape] = int(min(problem.most[shape, kind], problem.count[shape]))
        patterns.learn([(kind, tuple(alone))])
    for nodes in packings:
        patterns.learn(patterns.of(nodes))
    bought, worth = patterns.solve()
    for _ in range(ROUNDS):
        if not patterns.learn(patterns.better(worth)):
            break
        bought, worth = patterns.solve()
    return _buy_whole(problem, list(patterns.columns), bought)


def _buy_whole(
    problem: PackingProblem, patterns: list[Pattern], bought: Doubles
) -> tuple[PackedNodes, Ints]:
    """Buy the whole parts of each pattern, the most frequent first, as long as pods are left."""
    nodes, left = PackedNodes(problem), problem.count.copy()
    order = np.lexsort((np.arange(len(bought)), -bought))
    sizes = np.lexsort((np.arange(len(problem.shapes)), -problem.milli, -problem.gpus))
    for column in order:
        number = int(np.floor(bought[column] + SLACK))
        if not number:
            break
        kind, pods = patterns[column]
        per_node = np.array(pods, dtype=np.int64)
        some = per_node > 0
        number = min(number, int((left[some] // per_node[some]).min()))
        if number:
            fresh = nodes.open(kind, number)
            for shape in sizes[some[sizes]]:
                nodes.put(int(shape), np.full(number, per_node[shape]), fresh)
            left -= number * per_node
    return nodes, left
