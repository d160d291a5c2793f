"""Find the cheapest mix of nodes that holds the pods: several heuristics, the best improved."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from analyzers.arrays import Ints
from analyzers.pools.lower_bound import SLACK, LowerBound, compute_bound
from analyzers.pools.packing import PackedNodes, describe_mix, find_downsized, pack_pods
from analyzers.pools.patterns import generate_nodes
from analyzers.pools.shapes import PackingProblem, PodShape

ROUNDS = 6
"""Rounds in which the emptiest nodes are removed and their pods placed again."""
STARTING_MIXES = 6
"""Mixes whose nodes are the first patterns."""
WORTH_MORE = 0.01
"""Relative distance from the bound above which patterns are generated."""
DROPPED_SHARES = (0.02, 0.1, 0.3)
"""Shares of the nodes removed in a round."""


class NodeMix(msgspec.Struct, frozen=True):
    """A mix of nodes that holds every pod; no mix costs less than `bound_usd_h`."""

    nodes: PackedNodes
    usd_h: float
    bound_usd_h: float
    alone: tuple[tuple[str, int, float], ...] = ()
    """Types that could hold every pod alone, the cheapest first: type, nodes, USD/h."""

    @property
    def gap(self) -> float:
        """The relative distance from the lower bound."""
        return self.usd_h / self.bound_usd_h - 1 if self.bound_usd_h else 0.0

    @property
    def mix(self) -> list[dict[str, object]]:
        """Type, nodes, GPUs and USD per hour, the most expensive first."""
        return list(describe_mix(self.nodes))


def plan_mix(problem: PackingProblem) -> NodeMix:
    """Return the cheapest mix found; deterministic, and independent of the order of its input.

    Raises:
        ValueError: a pod fits no type (`problem.unplaceable()`).
    """
    least = compute_bound(problem)
    every = list(pack_singles(problem))
    mixes = [*_pack_mixes(problem, least), *(_downsize(nodes) for _, nodes in every)]
    best = min(mixes, key=_rank_nodes)
    if best.cost > least.usd_h * (1 + WORTH_MORE):
        best = min(
            best,
            _pack_patterns(problem, sorted(mixes, key=_rank_nodes)[:STARTING_MIXES]),
            key=_rank_nodes,
        )
    for _ in range(ROUNDS):
        better = min((_repack_emptiest(best, part) for part in DROPPED_SHARES), key=_rank_nodes)
        if _rank_nodes(better) >= _rank_nodes(best):
            break
        best = better
    alone = sorted((n.cost, problem.offers[kind].instance_type, len(n.kind)) for kind, n in every)
    return NodeMix(
        best,
        best.cost,
        _cap_bound(least.usd_h, best.cost),
        tuple((name, nodes, usd_h) for usd_h, name, nodes in alone),
    )


def _cap_bound(bound_usd_h: float, usd_h: float) -> float:
    """Return the bound, or the cost where they differ by no more than the solver's tolerance."""
    return usd_h if bound_usd_h >= usd_h * (1 - 2 * SLACK) else bound_usd_h


def plan_for_peaks(problem: PackingProblem, peaks: Sequence[Mapping[PodShape, int]]) -> NodeMix:
    """Return the cheapest mix found that holds the pods of each peak, one peak at a time.

    `problem` has every shape of every peak. Where no peak's own mix holds the others, the mix is
    computed for the most pods of each shape.
    """
    counts = [_count_shapes(problem, peak) for peak in peaks] or [np.zeros_like(problem.count)]
    plans = [plan_mix(problem.of(count)) for count in counts]
    least = max(p.bound_usd_h for p in plans)
    for each in sorted(plans, key=lambda p: _rank_nodes(p.nodes)):
        if all(can_hold(each.nodes, count) for count in counts):
            return msgspec.structs.replace(each, bound_usd_h=least)
    every = plan_mix(problem.of(np.max(counts, axis=0)))
    return msgspec.structs.replace(every, bound_usd_h=least)


def can_hold(nodes: PackedNodes, count: Ints) -> bool:
    """Return whether first-fit places this many pods of each shape on the same nodes."""
    problem = nodes.problem
    empty = PackedNodes(problem)
    for kind in np.unique(nodes.kind):
        empty.open(int(kind), int((nodes.kind == kind).sum()))
    return not any(
        count[shape] and empty.add(int(shape), int(count[shape]), None)
        for shape in _order_by_size(problem)
    )


def _order_by_size(problem: PackingProblem) -> Ints:
    sizes = problem.gpus * problem.milli, problem.need[:, 0]
    return np.lexsort((np.arange(len(problem.shapes)), -sizes[1], -sizes[0]))


def _count_shapes(problem: PackingProblem, peak: Mapping[PodShape, int]) -> Ints:
    return np.array([peak.get(shape, 0) for shape in problem.shapes], dtype=np.int64)


def pack_singles(problem: PackingProblem) -> Iterator[tuple[int, PackedNodes]]:
    """Yield, for each type that fits every pod, its number and all pods on it alone."""
    for kind in np.flatnonzero((problem.most[problem.count > 0] > 0).all(axis=0)):
        split = np.zeros_like(problem.most)
        split[:, kind] = problem.count
        yield int(kind), pack_pods(problem, split, 0)


def _pack_mixes(problem: PackingProblem, least: LowerBound) -> Iterator[PackedNodes]:
    for rule in range(3):
        yield _downsize(pack_pods(problem, least.split, rule))


def _rank_nodes(nodes: PackedNodes) -> tuple[float, int, tuple[int, ...]]:
    number = np.bincount(nodes.kind, minlength=len(nodes.problem.offers))
    return round(nodes.cost, 9), len(nodes.kind), tuple(number.tolist())


def _downsize(nodes: PackedNodes) -> PackedNodes:
    kinds = find_downsized(nodes)
    return nodes if (kinds == nodes.kind).all() else nodes.as_types(kinds)


def _repack_emptiest(nodes: PackedNodes, part: float) -> PackedNodes:
    """Remove the emptiest nodes; place their pods on the others, then on a mix of their own."""
    problem = nodes.problem
    number = len(nodes.kind)
    if number < 2:  # noqa: PLR2004  (a single node has no other to give to)
        return nodes
    room = np.maximum(problem.room[nodes.kind], 1)
    node_milli = np.maximum(problem.node_gpus[nodes.kind], 1) * 1000
    filled = np.maximum(
        (1 - nodes.free / room)[:, :2].max(axis=1), 1 - nodes.gpu_free.sum(axis=1) / node_milli
    )
    order = np.lexsort((np.arange(number), -problem.price[nodes.kind], filled))
    emptied = order[: max(1, round(number * part))]
    keep = np.setdiff1d(np.arange(number), emptied)
    packed = nodes.only(keep)
    wanted = nodes.only(emptied).count_pods().sum(axis=0)
    rest = np.zeros_like(wanted)
    for shape in _order_by_size(problem):
        if wanted[shape]:
            rest[shape] = packed.add(int(shape), int(wanted[shape]), None)
    return _downsize(_add_rest(packed, rest))


def _pack_patterns(problem: PackingProblem, packings: Sequence[PackedNodes]) -> PackedNodes:
    """Return a mix built from generated patterns."""
    nodes, left = generate_nodes(problem, packings)
    for shape in _order_by_size(problem):
        if left[shape]:
            left[shape] = nodes.add(int(shape), int(left[shape]), None)
    return _downsize(_add_rest(nodes, left))


def _add_rest(packed: PackedNodes, rest: Ints) -> PackedNodes:
    if not rest.any():
        return packed
    problem = packed.problem.of(rest)
    split = compute_bound(problem).split
    return packed.and_also(
        min((_downsize(pack_pods(problem, split, rule)) for rule in range(3)), key=_rank_nodes)
    )
