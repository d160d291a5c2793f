"""Compute what a fleet offers, and scale a mix of work to it."""

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from simulator.arrivals import Category
from simulator.cluster.labels import build_labels
from simulator.cluster.nodes import SimulatedNode, count_resources
from simulator.cluster.pools import PoolSpec, read_pools
from simulator.models import SimulatedDevice
from simulator.workload_templates import PRODUCT

Supply = dict[tuple[str, str], float]
"""GPUs by product and resource."""


def fit_mix(mix: Sequence[Category], nodes: Iterable[SimulatedNode]) -> tuple[Category, ...]:
    """Return the mix in which each kind of device has the demand of the table.

    Shares are of a fleet with the pools of `pools.csv`. A fleet with more or less of a kind of
    device gets more or less of the work that requests it; without such devices there is none of
    that work. Work that is larger than all devices of its kind leaves its share to the others.
    """
    specs = list(nodes)
    gpus = sum(spec.pool.gpu_count for spec in specs)
    here: Supply = {}
    for spec in specs:
        _add(here, spec.pool, 1.0)
    usual: Supply = {}
    for pool in read_pools().values():
        _add(usual, pool, pool.share / pool.gpu_count)
    total = sum(pool.share for pool in read_pools().values())
    fits: Supply = {}
    wanted: Supply = {}
    for category in mix:
        key = _build_key(category)
        wanted[key] = wanted.get(key, 0.0) + category.share
        if category.size <= here.get(key, 0.0):
            fits[key] = fits.get(key, 0.0) + category.share
    out = []
    for category in mix:
        key = _build_key(category)
        factor = 0.0
        if usual.get(key) and fits.get(key) and category.size <= here[key]:
            factor = here[key] / gpus / (usual[key] / total) * wanted[key] / fits[key]
        out.append(msgspec.structs.replace(category, share=category.share * factor))
    return tuple(out)


def _build_key(category: Category) -> tuple[str, str]:
    return category.product, category.resource


def _add(supply: Supply, pool: PoolSpec, count: float) -> None:
    """Add so many nodes of a pool."""
    offered = count_resources(pool)
    product = build_labels("any", pool, offered)[PRODUCT]
    for resource, units in offered.items():
        key = (product, resource)
        supply[key] = supply.get(key, 0.0) + count * units * _get_weight(pool, resource)


def _get_weight(pool: PoolSpec, resource: str) -> float:
    """Return the GPUs of one unit."""
    profile = resource.rpartition("mig-")[2] if "mig-" in resource else ""
    if pool.mig_strategy == "single":
        profile = pool.mig.partition("x")[2]
    if profile:
        return int(profile.partition("g")[0]) / 7
    return 1 / pool.replicas


def list_device_products(
    devices: Sequence[SimulatedDevice], nodes: Iterable[SimulatedNode]
) -> list[tuple[str, str]]:
    """Return, by device, the product and resource by which pods request it."""
    pools = {spec.name: spec.pool for spec in nodes}
    return [_name_resource(pools[device.node], device.profile) for device in devices]


@cache
def _name_resource(pool: PoolSpec, profile: str | None) -> tuple[str, str]:
    product = build_labels("any", pool, count_resources(pool))[PRODUCT]
    single = profile is None or pool.mig_strategy == "single"
    return product, "nvidia.com/gpu" if single else f"nvidia.com/mig-{profile}"
