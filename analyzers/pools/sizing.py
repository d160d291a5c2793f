"""Compute what a pool would cost if it were bought for the pods of its peak."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np

from analyzers.pools import catalogue
from analyzers.pools.catalogue import OfferTerms
from analyzers.pools.demand import PoolPeak, build_waiting_shape, find_peak
from analyzers.pools.inventory import ARCH, NodePoolUsage, build_own_offers, find_terms
from analyzers.pools.lower_bound import count_nodes
from analyzers.pools.planning import NodeMix, plan_for_peaks
from analyzers.pools.rows import TypePrice
from analyzers.pools.shapes import PackingProblem, PodShape, TypeOffer
from fallow.settings.capacity import PoolsSettings


class PoolSizing(msgspec.Struct, frozen=True):
    """The pods of a pool's peak, on its own types and on the cheapest of all."""

    peak: PoolPeak
    own: NodeMix
    own_nodes_bound: int
    """Fewest nodes that can suffice, where the pool has one type; else 0."""
    best: NodeMix | None
    """On any type; None where other types are not compared."""
    priced: bool
    """False = the pool's own types have no price, and plans count GPUs instead of dollars."""
    market: OfferTerms | None
    refused: dict[str, list[str]]
    assumed: tuple[str, ...]


def size_pool(
    pool: NodePoolUsage, prices: Sequence[TypePrice], settings: PoolsSettings
) -> PoolSizing | str:
    """Return the cheapest purchase for the pool, or why that is unknown."""
    peak = find_peak(pool.pods, settings)
    own = build_own_offers(pool, peak.shapes, settings)
    waiting = _count_waiting(pool, own)
    if waiting:
        peak = find_peak(pool.pods, settings, waiting)
    priced = pool.usd is not None and all(o.usd_h for o in own)
    if not priced:
        own = [msgspec.structs.replace(o, usd_h=_compute_unit_price(o)) for o in own]
    every = dict.fromkeys(peak.shapes, 1)
    problem = PackingProblem(every, own)
    lost = problem.unplaceable()
    if lost:
        return f"{len(lost)} kinds of pods that ran in it do not fit what its nodes say they have"
    shop = find_terms(pool, prices) if priced else None
    best: NodeMix | None = None
    refused: dict[str, list[str]] = {}
    if shop is not None and any(s.gpus for s in peak.shapes):
        offers = catalogue.list_offers(prices, shop, pool.overhead, settings.max_pods)
        others = [o for o in offers if o.instance_type not in set(pool.types)]
        good, refused = catalogue.split_offers(others, peak.shapes)
        best = plan_for_peaks(PackingProblem(every, [*own, *good]), peak.peaks)
    mine = plan_for_peaks(problem, peak.peaks)
    return PoolSizing(
        peak=peak,
        own=mine,
        own_nodes_bound=_find_least_nodes(problem, peak),
        best=best,
        priced=priced,
        market=shop,
        refused=refused,
        assumed=_list_assumptions(pool, peak, shop),
    )


def _count_waiting(pool: NodePoolUsage, own: Sequence[TypeOffer]) -> dict[PodShape, int]:
    """Return the requests of pods that wait for the pool, for GPU models that it has.

    A pod that does not fit beside the DaemonSets of an empty node does not wait for this pool.
    """
    arch = pool.first_node.arch if pool.waiting else ""
    counts: dict[PodShape, int] = {}
    for pod, count in pool.waiting.items():
        shape = build_waiting_shape(pod, pool.models, arch)
        counts[shape] = counts.get(shape, 0) + count
    lost = set(PackingProblem(counts, own).unplaceable()) if counts else set()
    return {shape: count for shape, count in counts.items() if shape not in lost}


def _find_least_nodes(problem: PackingProblem, pool_peak: PoolPeak) -> int:
    if len(problem.offers) != 1:
        return 0
    counts = [[pods.get(s, 0) for s in problem.shapes] for pods in pool_peak.peaks]
    return max((count_nodes(problem.of(np.array(c)), 0) for c in counts), default=0)


def _compute_unit_price(offer: TypeOffer) -> Decimal:
    return Decimal(max(offer.gpus, 1))


def _list_assumptions(
    pool: NodePoolUsage, peak: PoolPeak, shop: OfferTerms | None
) -> tuple[str, ...]:
    assumptions = []
    if not pool.overhead.seen:
        over = pool.overhead
        assumptions.append(
            f"no DaemonSet in the inventory: {over.cpu_milli} m and {over.memory_mib} MiB per node "
            "were kept for them where the pods left room"
        )
    if peak.guessed_cpu:
        assumptions.append(
            f"{peak.guessed_cpu} pods ask for no CPU: given their GPUs' part of the node"
        )
    if not pool.nodes["arch_known"].all():
        assumptions.append(
            f"neither nodes nor catalogue tell their architecture: taken to be {ARCH}"
        )
    if pool.nodes["cpu_milli"].null_count() or pool.nodes["memory_bytes"].null_count():
        assumptions.append("nodes do not say their CPU or memory: no limit")
    if shop is not None and set(pool.nodes["capacity_type"].drop_nulls()) - {shop.term}:
        assumptions.append(
            f"other types are priced {shop.term}: no {shop.term} prices of the pool's own"
        )
    return tuple(assumptions)


def list_used_types(mix: NodeMix) -> set[str]:
    """Return the instance types that a plan buys."""
    return {mix.nodes.problem.offers[k].instance_type for k in np.unique(mix.nodes.kind)}
