"""List the instance types that fit a pool, with their capacity for pods and their price."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec

from analyzers.pools.shapes import PodShape, TypeOffer
from analyzers.queries import load_rows

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
def read_types() -> tuple[dict[str, str], ...]:
    """Return the rows of `instance_types.csv`."""
    return tuple(load_rows("pools/instance_types"))


@cache
def find_type(instance_type: str) -> Mapping[str, str]:
    """Return the row of one instance type; empty where it is unknown."""
    rows = (row for row in read_types() if row["instance_type"] == instance_type)
    return next(rows, {})


def read_prices(
    rates: Iterable[Mapping[str, Any]], market: OfferTerms
) -> dict[str, Mapping[str, Any]]:
    """Return the rate of each type.

    It is the rate in the pool's region, or the most expensive of another region.
    """
    by_type: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for rate in rates:
        if (rate["provider"], rate["term"]) == (market.provider, market.term):
            by_type[rate["instance_type"]].append(rate)
    return {
        name: max(
            offers, key=lambda r: (r["region"] == market.region, r["node_usd_h"], r["region"])
        )
        for name, offers in by_type.items()
    }


def list_offers(
    rates: Iterable[Mapping[str, Any]], market: OfferTerms, overhead: NodeOverhead, max_pods: int
) -> list[TypeOffer]:
    """Return every known type of the market's provider, with or without a price."""
    priced = read_prices(rates, market)
    return [
        TypeOffer(
            instance_type=row["instance_type"],
            arch=row["arch"],
            vendor=row["vendor"],
            gpu_model=row["gpu_model"],
            gpus=int(row["gpu_count"]),
            gpu_memory_mib=int(row["gpu_memory_mib"]),
            cpu_milli=max(int(row["allocatable_cpu_milli"]) - overhead.cpu_milli, 0),
            memory_mib=max(int(row["allocatable_memory_mib"]) - overhead.memory_mib, 0),
            pods=max(max_pods - overhead.pods, 0),
            usd_h=_get_usd(priced.get(row["instance_type"])),
            as_of=priced.get(row["instance_type"], {}).get("as_of"),
            reference=priced.get(row["instance_type"], {}).get("reference") or "",
        )
        for row in read_types()
        if row["provider"] == market.provider
    ]


def _get_usd(rate: Mapping[str, Any] | None) -> Decimal | None:
    return None if rate is None else Decimal(str(rate["node_usd_h"]))


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
