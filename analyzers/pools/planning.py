"""The cheapest mix of nodes that holds the pods: several heuristics, the best of them improved."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from analyzers.pools.bound import SLACK, Bound, bound
from analyzers.pools.packing import Nodes, described, downsized, pack
from analyzers.pools.patterns import generated
from analyzers.pools.shapes import Ints, Problem, Shape

ROUNDS = 6
"""Times that the emptiest nodes are given up and their pods placed anew."""
KNOWN = 6
"""Mixes whose nodes are the first patterns."""
WORTH_MORE = 0.01
"""Distance from the bound above which patterns are generated, as a part of it."""
GIVEN_UP = (0.02, 0.1, 0.3)
"""Parts of the nodes given up in a round."""


class Plan(msgspec.Struct, frozen=True):
    """A mix of nodes that holds every pod; nobody can do it below `bound_usd_h`."""

    nodes: Nodes
    usd_h: float
    bound_usd_h: float
    alone: tuple[tuple[str, int, float], ...] = ()
    """Types that could hold every pod alone, the cheapest first: type, nodes, USD/h."""

    @property
    def gap(self) -> float:
        """How far above the lower bound, as a part of it."""
        return self.usd_h / self.bound_usd_h - 1 if self.bound_usd_h else 0.0

    @property
    def mix(self) -> list[dict[str, object]]:
        """Type, nodes, GPUs and USD per hour, the dearest first."""
        return list(described(self.nodes))


def plan(problem: Problem) -> Plan:
    """Return the cheapest mix found, deterministic and blind to the order of its input.

    Raises:
        ValueError: a pod fits no type (`problem.unplaceable()`).
    """
    least = bound(problem)
    every = list(singles(problem))
    mixes = [*_mixes(problem, least), *(_smaller(nodes) for _, nodes in every)]
    best = min(mixes, key=_rank)
    if best.cost > least.usd_h * (1 + WORTH_MORE):
        best = min(best, _by_patterns(problem, sorted(mixes, key=_rank)[:KNOWN]), key=_rank)
    for _ in range(ROUNDS):
        better = min((_anew(best, part) for part in GIVEN_UP), key=_rank)
        if _rank(better) >= _rank(best):
            break
        best = better
    alone = sorted((n.cost, problem.offers[kind].instance_type, len(n.kind)) for kind, n in every)
    return Plan(
        best,
        best.cost,
        _at_most(least.usd_h, best.cost),
        tuple((name, nodes, usd_h) for usd_h, name, nodes in alone),
    )


def _at_most(bound_usd_h: float, usd_h: float) -> float:
    """Return the bound, or the cost where they differ by no more than the solver's tolerance."""
    return usd_h if bound_usd_h >= usd_h * (1 - 2 * SLACK) else bound_usd_h


def plan_for(problem: Problem, peaks: Sequence[Mapping[Shape, int]]) -> Plan:
    """Return the cheapest mix found that holds the pods of each peak, one peak at a time.

    `problem` knows every shape of every peak. Where no peak's own mix holds the others, the mix
    is that for the most pods of each shape.
    """
    counts = [_counts(problem, held) for held in peaks] or [np.zeros_like(problem.count)]
    plans = [plan(problem.of(count)) for count in counts]
    least = max(p.bound_usd_h for p in plans)
    for each in sorted(plans, key=lambda p: _rank(p.nodes)):
        if all(holds(each.nodes, count) for count in counts):
            return msgspec.structs.replace(each, bound_usd_h=least)
    every = plan(problem.of(np.max(counts, axis=0)))
    return msgspec.structs.replace(every, bound_usd_h=least)


def holds(nodes: Nodes, count: Ints) -> bool:
    """Say whether first-fit finds a place for so many pods of each shape on the same nodes."""
    problem = nodes.problem
    empty = Nodes(problem)
    for kind in np.unique(nodes.kind):
        empty.open(int(kind), int((nodes.kind == kind).sum()))
    return not any(
        count[shape] and empty.add(int(shape), int(count[shape]), None)
        for shape in _by_size(problem)
    )


def _by_size(problem: Problem) -> Ints:
    sizes = problem.gpus * problem.milli, problem.need[:, 0]
    return np.lexsort((np.arange(len(problem.shapes)), -sizes[1], -sizes[0]))


def _counts(problem: Problem, held: Mapping[Shape, int]) -> Ints:
    return np.array([held.get(shape, 0) for shape in problem.shapes], dtype=np.int64)


def singles(problem: Problem) -> Iterator[tuple[int, Nodes]]:
    """Yield, for each type that can take every pod, its number and all pods on it alone."""
    for kind in np.flatnonzero((problem.most[problem.count > 0] > 0).all(axis=0)):
        split = np.zeros_like(problem.most)
        split[:, kind] = problem.count
        yield int(kind), pack(problem, split, 0)


def _mixes(problem: Problem, least: Bound) -> Iterator[Nodes]:
    for rule in range(3):
        yield _smaller(pack(problem, least.split, rule))


def _rank(nodes: Nodes) -> tuple[float, int, tuple[int, ...]]:
    number = np.bincount(nodes.kind, minlength=len(nodes.problem.offers))
    return round(nodes.cost, 9), len(nodes.kind), tuple(number.tolist())


def _smaller(nodes: Nodes) -> Nodes:
    kinds = downsized(nodes)
    return nodes if (kinds == nodes.kind).all() else nodes.as_types(kinds)


def _anew(nodes: Nodes, part: float) -> Nodes:
    """Give up the emptiest nodes; place their pods on the others, then on a mix of their own."""
    problem = nodes.problem
    number = len(nodes.kind)
    if number < 2:  # noqa: PLR2004  (a single node has nobody to give to)
        return nodes
    room = np.maximum(problem.room[nodes.kind], 1)
    boards = np.maximum(problem.boards[nodes.kind], 1) * 1000
    filled = np.maximum(
        (1 - nodes.free / room)[:, :2].max(axis=1), 1 - nodes.boards.sum(axis=1) / boards
    )
    order = np.lexsort((np.arange(number), -problem.price[nodes.kind], filled))
    given = order[: max(1, round(number * part))]
    keep = np.setdiff1d(np.arange(number), given)
    kept = nodes.only(keep)
    wanted = nodes.only(given).held().sum(axis=0)
    rest = np.zeros_like(wanted)
    for shape in _by_size(problem):
        if wanted[shape]:
            rest[shape] = kept.add(int(shape), int(wanted[shape]), None)
    return _smaller(_with(kept, rest))


def _by_patterns(problem: Problem, known: Sequence[Nodes]) -> Nodes:
    """Return a mix made of generated patterns."""
    nodes, left = generated(problem, known)
    for shape in _by_size(problem):
        if left[shape]:
            left[shape] = nodes.add(int(shape), int(left[shape]), None)
    return _smaller(_with(nodes, left))


def _with(kept: Nodes, rest: Ints) -> Nodes:
    if not rest.any():
        return kept
    problem = kept.problem.of(rest)
    split = bound(problem).split
    return kept.and_also(
        min((_smaller(pack(problem, split, rule)) for rule in range(3)), key=_rank)
    )
