"""Nodes and their GPUs, from inventory and telemetry."""

from collections.abc import Mapping, Sequence

import msgspec

from analyzers.fragmentation.rows import DeviceShare, InventoryNode
from analyzers.pending import NodeTotals
from fallow.gpu_models import get_model_name
from fallow.node_requirements import BlockingTaint, read_taints

WHOLE = 1000
UNKNOWN_CPU = 1 << 50
"""Free milli-CPU of a node with unknown CPU: CPU then never limits."""


class GpuNode(msgspec.Struct, frozen=True):
    """A node with GPUs in the inventory; memory in bytes."""

    name: str
    pool: str
    model: str
    gpus: int
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    zone: str = ""
    instance_type: str = ""
    capacity_type: str = ""
    taints: frozenset[BlockingTaint] = frozenset()
    labels: Mapping[str, str] | None = None
    """None = unknown in its inventory."""
    open: bool = True

    def host(self) -> NodeTotals:
        """Return its total capacity."""
        return NodeTotals(
            self.model, self.gpus, self.cpu_milli, self.memory_bytes, self.labels, self.taints
        )


def build_nodes(inventory: Sequence[InventoryNode], gpus: Sequence[DeviceShare]) -> list[GpuNode]:
    """Return the nodes in the inventory or in telemetry, by name."""
    seen = {row.node: row.model for row in gpus}
    nodes = [
        GpuNode(
            row.node,
            row.pool,
            get_model_name(row.model or seen.get(row.node)) or "",
            row.gpus,
            row.cpu_milli,
            row.memory_bytes,
            row.zone,
            row.instance_type,
            row.capacity_type,
            read_taints(row.taints),
            msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels else None,
            row.open,
        )
        for row in inventory
    ]
    names = {node.name for node in nodes}
    counts: dict[str, set[str]] = {}
    for row in gpus:
        counts.setdefault(row.node, set()).add(row.device)
    extra = sorted(set(seen) - names)
    return [*nodes, *(GpuNode(n, "", get_model_name(seen[n]) or "", len(counts[n])) for n in extra)]


def get_or(value: int | None, other: int) -> int:
    """Return a value, or another where it is unknown."""
    return other if value is None else value
