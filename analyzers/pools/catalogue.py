"""List the instance types that fit a pool, with their capacity for pods and their price."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from analyzers.pools.rows import InstanceType, TypePrice, read_types
from analyzers.pools.shapes import PodShape, TypeOffer

LIST = "on-demand"


class NodeOverhead(msgspec.Struct, frozen=True):
    """The resources that the DaemonSets of a pool use on every node."""

    cpu_milli: int
    memory_mib: int
    pods: int
    seen: bool
    """False = the inventory has none, and the settings' figures are used."""


class OfferTerms(msgspec.Struct, frozen=True):
    """The provider, region and terms of the types offered to a pool."""

    provider: str
    region: str
    term: str


@cache
def find_type(instance_type: str) -> InstanceType | None:
    """Return one instance type; None where it is unknown."""
    return next((row for row in read_types() if row.instance_type == instance_type), None)


def select_prices(prices: Iterable[TypePrice], market: OfferTerms) -> dict[str, TypePrice]:
    """Return the price of each type.

    It is the price in the pool's region, or the most expensive of another region.
    """
    by_type: dict[str, list[TypePrice]] = defaultdict(list)
    for price in prices:
        if (price.provider, price.term) == (market.provider, market.term):
            by_type[price.instance_type].append(price)
    return {
        name: max(offers, key=lambda p: (p.region == market.region, p.node_usd_h, p.region))
        for name, offers in by_type.items()
    }


def list_offers(
    prices: Iterable[TypePrice], market: OfferTerms, overhead: NodeOverhead, max_pods: int
) -> list[TypeOffer]:
    """Return every known type of the market's provider, with or without a price."""
    selected = select_prices(prices, market)
    return [
        _build_offer(row, selected.get(row.instance_type), overhead, max_pods)
        for row in read_types()
        if row.provider == market.provider
    ]


def _build_offer(
    row: InstanceType, price: TypePrice | None, overhead: NodeOverhead, max_pods: int
) -> TypeOffer:
    return TypeOffer(
        instance_type=row.instance_type,
        arch=row.arch,
        vendor=row.vendor,
        gpu_model=row.gpu_model,
        gpus=row.gpu_count,
        gpu_memory_mib=row.gpu_memory_mib,
        cpu_milli=max(row.allocatable_cpu_milli - overhead.cpu_milli, 0),
        memory_mib=max(row.allocatable_memory_mib - overhead.memory_mib, 0),
        pods=max(max_pods - overhead.pods, 0),
        usd_h=price.node_usd_h if price else None,
        as_of=price.as_of if price else None,
        reference=(price.reference if price else None) or "",
    )


def split_offers(
    offers: Sequence[TypeOffer], shapes: Iterable[PodShape]
) -> tuple[list[TypeOffer], dict[str, list[str]]]:
    """Return the types that fit some pod and have a price, and the others by reason."""
    sorted_shapes = sorted(shapes)
    with_gpus = [s for s in sorted_shapes if s.gpus] or sorted_shapes
    good: list[TypeOffer] = []
    refused: dict[str, list[str]] = defaultdict(list)
    for offer in offers:
        reasons = [offer.refuses(shape) for shape in with_gpus]
        if offer.usd_h is None or offer.usd_h <= 0:
            refused["no price"].append(offer.instance_type)
        elif reasons and None not in reasons:
            refused[str(reasons[0])].append(offer.instance_type)
        else:
            good.append(offer)
    return good, {reason: sorted(names) for reason, names in sorted(refused.items())}
