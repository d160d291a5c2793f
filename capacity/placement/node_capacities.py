"""Measure what is known to be free on each node, and judge whether a node takes a pod.

A device that telemetry has not shown lately is unknown and never free.
"""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from capacity.placement.fleet_state import FleetState, NodeKey, to_micros
from capacity.placement.pod_demand import FreeCapacity, PodDemand, build_demand, compute_free_host
from fallow.gpu_models import get_model_name
from fallow.node_requirements import BlockingTaint, read_taints

STALE = timedelta(minutes=10)
"""A device without a sample for longer is unknown; a pod is assumed to exist as long."""
SHARED = frozenset({"time-slicing", "mps", "hami"})
"""Ways of sharing with which a part of each device may be free."""


class PlacementNode(msgspec.Struct, frozen=True):
    """A node: what is known to be free, and what may be free as well."""

    key: NodeKey
    pool: str
    zone: str
    labels: Mapping[str, str] | None
    """None = unknown."""
    taints: frozenset[BlockingTaint]
    ready: bool | None
    cordoned: bool
    model: str | None = None
    """The canonical GPU model; None = unknown."""
    sharing: str | None = None
    free: FreeCapacity = msgspec.field(default_factory=lambda: FreeCapacity({}, 0, 0))
    possible: FreeCapacity = msgspec.field(default_factory=lambda: FreeCapacity({}, 0, 0))


def measure_nodes(state: FleetState, now: datetime) -> list[PlacementNode]:
    """Return the free capacity of every node of the inventory."""
    at, requested = to_micros(now), state.requested_at(now)
    bound, stale = _count_bound(state, at), to_micros(now - STALE)
    nodes = []
    for key, record in state.nodes.items():
        free: Counter[str] = Counter()
        used: Counter[str] = Counter()
        unknown: Counter[str] = Counter()
        for device in state.devices.get(key, ()):
            kind = device["profile"] or ""
            if device["last_us"] < stale or device["first_us"] >= at:
                unknown[kind] += 1
            elif state.device_allocations_at((key[0], device["device"]), at):
                used[kind] += 1
            else:
                free[kind] += 1
        if not any(kind for kind in (*free, *used, *unknown)):
            seen = free[""] + used[""] + unknown[""]
            unknown[""] += max(0, (record.gpu_count or 0) - seen)
        if record.sharing in SHARED:
            free, unknown = Counter(), free + used + unknown  # a share of each may be free
        # A pod that was just bound holds devices that telemetry does not show with it yet.
        for kind, count in bound.get(key, Counter()).items():
            free[kind] -= min(free[kind], max(0, count - used[kind]))
        host = compute_free_host(record, requested.get(key, (0, 0)))
        nodes.append(
            msgspec.structs.replace(
                read_node(state, key, at),
                free=FreeCapacity(dict(free), *host),
                possible=FreeCapacity(dict(free + unknown), *host),
            )
        )
    return nodes


def read_node(state: FleetState, key: NodeKey, at: int) -> PlacementNode:
    """Return a node of the inventory without its free capacity."""
    record = state.nodes[key]
    labels = json.loads(record.labels) if record.labels else None
    return PlacementNode(
        key,
        record.pool or "",
        (labels or {}).get("topology.kubernetes.io/zone") or "",
        labels,
        read_taints(record.taints),
        state.ready(key, at),
        bool(record.unschedulable),
        get_model_name(record.gpu_model),
        record.sharing,
    )


def judge_node(node: PlacementNode, demand: PodDemand) -> tuple[str, bool]:
    """Return why a node does not take a pod, empty = it does; and whether that is certain."""
    name = node.key[1]
    if node.cordoned or node.ready is False:
        return f"{name} takes no pods: it is cordoned or not ready", True
    if node.ready is None:
        return f"whether {name} is ready is not known", False
    needs = demand.requirements
    if refusal := needs.explain_refusal(node.labels, node.taints, node.model):
        return f"{name} does not take it: {refusal}", True
    if node.labels is None and (doubt := needs.explain_refusal({}, node.taints)):
        return f"the labels of {name} are not known: {doubt}", False
    if node.model is None and needs.models:
        wanted = "|".join(needs.models)
        return f"the GPU model of {name} is not known: it requires {wanted}", False
    return "", True


def _count_bound(state: FleetState, at: int) -> dict[NodeKey, Counter[str]]:
    """Return the devices that the pods of each node request, by type."""
    bound: dict[NodeKey, Counter[str]] = {}
    for pod in state.all_pods:
        if not pod.node or not pod.begin < at <= pod.end or pod.gpus <= 0:
            continue
        if pod.phase in {"Succeeded", "Failed"}:
            continue
        demand = build_demand(pod.key[0], [pod])
        if demand is not None:
            counts = bound.setdefault((pod.key[0], pod.node), Counter())
            counts[demand.needs[0].device_type] += demand.needs[0].count
    return bound
