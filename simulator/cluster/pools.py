"""Read the node pools that a fleet may have (`pools.csv`)."""

from collections.abc import Mapping
from functools import cache

import msgspec

from fallow.resources import read_table


class PoolSpec(msgspec.Struct, frozen=True):
    """One row of `pools.csv`: a kind of node."""

    name: str
    share: float
    """Of the fleet's GPUs, in a fleet of so many GPUs (`fleet`)."""
    manager: str
    """The origin of its nodes' labels: karpenter | eks | gke | aks; else only the kubelet's."""
    provider: str
    """aws | gcp | azure; else a machine that the site owns."""
    region: str
    zone: str
    instance_type: str
    capacity_type: str
    """on-demand | spot."""
    gpu_model: str
    product: str
    """As GPU feature discovery writes it."""
    gpu_count: int
    vcpu: int
    memory_gib: int
    mig_strategy: str = ""
    """mixed | single; empty = no MIG."""
    mig: str = ""
    """Layouts of the GPUs from the first on, `2x3g.40gb;7x1g.10gb`; `single` repeats one."""
    replicas: int = 1
    """Pods per GPU by time slicing."""
    taints: str = ""


@cache
def read_pools() -> Mapping[str, PoolSpec]:
    """Return the pools by name."""
    rows = (
        msgspec.convert(row, PoolSpec, strict=False)
        for row in read_table("simulator.cluster", "pools.csv")
    )
    return {row.name: row for row in rows}
