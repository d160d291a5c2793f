"""Build nodes from node pools (`pools.csv`) as the API shows them, with their devices.

The pools' shares of a fleet are a choice of this world; instance types, sizes and products are
those of the price catalogue and of GPU feature discovery.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fallow.errors import UsageError
from fallow.gpu_models import read_gpu_models
from simulator.cluster.labels import build_labels
from simulator.cluster.mig import GpuLayout, list_gpu_layouts
from simulator.cluster.pools import PoolSpec, read_pools
from simulator.cluster.scheduler.requests import NodeTaint
from simulator.kube.server_metadata import format_time
from simulator.models import SimulatedDevice

MAX_PODS = 110
MIB_PER_GIB = 1024


class SimulatedNode(msgspec.Struct, frozen=True):
    """A node that is paid."""

    name: str
    pool: PoolSpec


def build_nodes(counts: Mapping[str, int]) -> tuple[SimulatedNode, ...]:
    """Return so many nodes of each pool, by the pool's name.

    Raises:
        UsageError: there is no such pool, or a count is negative.
    """
    nodes: list[SimulatedNode] = []
    for name, count in counts.items():
        pool = read_pools().get(name)
        if pool is None:
            raise UsageError(f"no node pool {name!r}", hint=f"legal: {', '.join(read_pools())}")
        if count < 0:
            raise UsageError(f"pool {name!r} cannot have {count} nodes", hint="0 or more")
        nodes += [SimulatedNode(f"{name}-{place}", pool) for place in range(count)]
    return tuple(nodes)


def build_fleet(gpus: int) -> tuple[SimulatedNode, ...]:
    """Return nodes with exactly so many GPUs, spread over the pools by their shares.

    Raises:
        UsageError: fewer than one GPU.
    """
    if gpus < 1:
        raise UsageError(f"a fleet of {gpus} GPUs", hint="1 or more")
    by_share = sorted(read_pools().values(), key=lambda p: (-p.share, p.name))
    counts = {p.name: int(p.share * gpus / p.gpu_count) for p in by_share}
    left = gpus - sum(read_pools()[name].gpu_count * n for name, n in counts.items())
    while left:
        owed = {p.name: p.share * gpus - counts[p.name] * p.gpu_count for p in by_share}
        fits = [p for p in by_share if p.gpu_count <= left]
        best = max(fits, key=lambda p: (owed[p.name], p.share))
        counts[best.name] += 1
        left -= best.gpu_count
    return build_nodes(counts)


def list_devices(specs: Iterable[SimulatedNode], seed: int) -> tuple[SimulatedDevice, ...]:
    """Return every GPU and MIG instance, node by node, GPU by GPU."""
    devices: list[SimulatedDevice] = []
    for spec in specs:
        pool = spec.pool
        slices = next(
            (m.mig_slices for m in read_gpu_models() if m.gpu_model == pool.gpu_model), None
        )
        for index, layout in enumerate(cut(pool)):
            uuid = _derive_uuid(f"{seed}/{spec.name}/{index}")
            if layout is None:
                devices.append(SimulatedDevice(uuid, spec.name, index, pool.gpu_model))
            for part in layout or ():
                weight = part.compute / (slices or 7)
                devices.append(
                    SimulatedDevice(
                        uuid, spec.name, index, pool.gpu_model, part.profile, part.number, weight
                    )
                )
    return tuple(devices)


def cut(pool: PoolSpec) -> tuple[GpuLayout, ...]:
    """Return the layout of each GPU of a node of the pool."""
    return list_gpu_layouts(pool.gpu_model, pool.mig, pool.mig_strategy, pool.gpu_count)


def _derive_uuid(text: str) -> str:
    digits = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_taints(pool: PoolSpec) -> tuple[NodeTaint, ...]:
    """Return the taints of a pool: `key=value:Effect`, separated by semicolons."""
    result = []
    for text in filter(None, pool.taints.split(";")):
        head, _, effect = text.rpartition(":")
        key, _, value = head.partition("=")
        result.append(NodeTaint(key, value, effect))
    return tuple(result)


def get_reserved(pool: PoolSpec) -> tuple[int, int]:
    """Return the millicores and MiB that the system reserves on a node.

    CPU: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest, on
    every cloud. Memory: EKS reserves 255 MiB and 11 MiB per possible pod, the others shares of the
    total; all reserve 100 MiB for the eviction threshold.
    """
    cpu = 0.0
    for first, last, part in ((0, 1, 0.06), (1, 2, 0.01), (2, 4, 0.005), (4, pool.vcpu, 0.0025)):
        cpu += max(min(pool.vcpu, last) - first, 0) * part
    if pool.provider == "aws":
        memory = 255.0 + 11 * MAX_PODS
    else:
        memory = 0.0
        steps = ((0, 4, 0.25), (4, 8, 0.2), (8, 16, 0.1), (16, 128, 0.06), (128, 1 << 20, 0.02))
        for first, last, part in steps:
            memory += max(min(pool.memory_gib, last) - first, 0) * part * MIB_PER_GIB
    return round(cpu * 1000), round(memory) + 100


def count_resources(pool: PoolSpec) -> dict[str, int]:
    """Return the extended resources that the device plug-in offers on a node of the pool."""
    counts: dict[str, int] = {}
    for layout in cut(pool):
        for name in (
            ["gpu"] if layout is None else [_name_resource(pool, p.profile) for p in layout]
        ):
            key = f"nvidia.com/{name}"
            counts[key] = counts.get(key, 0) + pool.replicas
    return counts


def _name_resource(pool: PoolSpec, profile: str) -> str:
    return "gpu" if pool.mig_strategy == "single" else f"mig-{profile}"


def build_node_object(
    spec: SimulatedNode, now_s: float, sick: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the node as its kubelet registers it; `sick` are resources of unhealthy devices."""
    pool = spec.pool
    cpu, memory = get_reserved(pool)
    extended = count_resources(pool)
    healthy = {name: n - sick.count(name) for name, n in extended.items()}
    common = {"pods": str(MAX_PODS), "ephemeral-storage": f"{pool.vcpu * 20}Gi"}
    timestamp = format_time(now_s)
    ready = {"lastHeartbeatTime": timestamp, "lastTransitionTime": timestamp}
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": build_labels(spec.name, pool, extended)},
        "spec": {
            **({"providerID": machine} if (machine := build_provider_id(spec)) else {}),
            **({"taints": [_taint(t) for t in parse_taints(pool)]} if pool.taints else {}),
        },
        "status": {
            "capacity": {
                "cpu": str(pool.vcpu),
                "memory": f"{pool.memory_gib * MIB_PER_GIB}Mi",
                **{name: str(n) for name, n in extended.items()},
                **common,
            },
            "allocatable": {
                "cpu": f"{pool.vcpu * 1000 - cpu}m",
                "memory": f"{pool.memory_gib * MIB_PER_GIB - memory}Mi",
                **{name: str(n) for name, n in healthy.items()},
                **common,
            },
            "conditions": [
                *({"type": p, "status": "False", **ready} for p in pressures),
                {"type": "Ready", "status": "True", "reason": "KubeletReady", **ready},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.2",
                "containerRuntimeVersion": "containerd://2.2.1",
                "architecture": "amd64",
                "operatingSystem": "linux",
            },
        },
    }


def _taint(taint: NodeTaint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def build_provider_id(spec: SimulatedNode) -> str:
    """Return the cloud's name of the machine, as the kubelet writes it; none of an owned one."""
    pool = spec.pool
    digits = hashlib.blake2b(spec.name.encode(), digest_size=9).hexdigest()[:17]
    if pool.provider == "aws":
        return f"aws:///{pool.zone}/i-{digits}"
    if pool.provider == "gcp":
        return f"gce://fleet/{pool.zone}/{spec.name}"
    if pool.provider == "azure":
        return f"azure:///subscriptions/fleet/virtualMachines/{spec.name}"
    return ""
