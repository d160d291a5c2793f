"""Nodes and their GPUs, from inventory and telemetry."""

from collections.abc import Mapping
from typing import Any

import msgspec

from analyzers.pending import NodeTotals, Taint, read_taints
from fallow.gpu_models import canonical

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
    taints: frozenset[Taint] = frozenset()
    labels: Mapping[str, str] | None = None
    """None = unknown in its inventory."""
    open: bool = True

    def host(self) -> NodeTotals:
        """Return its total capacity."""
        return NodeTotals(
            self.model, self.gpus, self.cpu_milli, self.memory_bytes, self.labels, self.taints
        )


def read_devices(pod: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the devices allocated to a pod and its share of each, where they are named."""
    if pod["allocated"]:
        return list(zip(pod["allocated"], pod["shares"], strict=True))
    if not pod["devices"]:
        return []
    each = msgspec.json.decode(pod["devices"])
    pairs = [(d, 1.0) if isinstance(d, str) else (d.get("device"), d.get("share")) for d in each]
    return [(name, 1.0 if share is None else share) for name, share in pairs if name]


def name_model(text: str | None) -> str:
    """Return the canonical name of a model, else the site's own name."""
    model = canonical(text)
    return model.gpu_model if model else (text or "")


def build_nodes(inventory: list[dict[str, Any]], gpus: list[dict[str, Any]]) -> list[GpuNode]:
    """Return the nodes in the inventory or in telemetry, by name."""
    seen = {r["node"]: r["model"] for r in gpus}
    nodes = [
        GpuNode(
            r["node"],
            r["pool"],
            name_model(r["model"] or seen.get(r["node"])),
            r["gpus"],
            r["cpu_milli"],
            r["memory_bytes"],
            r["zone"],
            r["instance_type"],
            r["capacity_type"],
            read_taints(r["taints"]),
            msgspec.json.decode(r["labels"]) if r["labels"] else None,
            r["open"],
        )
        for r in inventory
    ]
    names = {node.name for node in nodes}
    counts: dict[str, set[str]] = {}
    for r in gpus:
        counts.setdefault(r["node"], set()).add(r["device"])
    extra = sorted(set(seen) - names)
    return [*nodes, *(GpuNode(n, "", name_model(seen[n]), len(counts[n])) for n in extra)]


def get_or(value: int | None, other: int) -> int:
    """Return a value, or another where it is unknown."""
    return other if value is None else value
