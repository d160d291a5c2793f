"""Read free capacity from the warehouse into arrays over nodes and times."""

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal

import msgspec
import numpy as np

from analyzers.fragmentation.inventory import (
    UNKNOWN_CPU,
    WHOLE,
    GpuNode,
    build_nodes,
    get_or,
)
from analyzers.fragmentation.request_mix import RequestMix
from analyzers.fragmentation.rows import (
    DeviceShare,
    InventoryNode,
    MeasuredTime,
    NodePod,
    NodeRequests,
    UnallocatedHours,
    group_by_cluster,
    read_device_shares,
    read_node_pods,
    read_node_requests,
    read_nodes,
    read_requested_types,
    read_times,
    read_unallocated,
)
from analyzers.pending import MeasureTimes, Pending, read_pending
from capacity.placement.fleet_state import WorkloadKey
from fallow.fragmentation import Integers
from fallow.models import State
from fallow.protocols import Views
from fallow.window import Window
from warehouse.disruption_budgets import DisruptionBudgets

PARTS = 24
"""Times of a window at which the fleet is measured; the last one is reported in full."""
UNSEEN_S = 600
"""A pod in the inventory is assumed to exist for this time after it was last seen."""


class UnallocatedCost(msgspec.Struct):
    """GPU-hours not allocated in the window; `usd` None = no price, or no ledger."""

    gpu_hours: float = 0.0
    usd: Decimal | None = None


class ClusterState(msgspec.Struct):
    """One cluster; the arrays have a row per node and time, the last time at the end."""

    cluster: str
    still: bool
    nodes: list[GpuNode]
    cpu: Integers
    """Free milli-CPU [time, node]."""
    memory: Integers
    """Free bytes [time, node]."""
    gpu: Integers
    """Free milli-GPU [time, node, device]; 0 beyond a node's devices and where it is closed."""
    devices: list[list[str]]
    """Names of each node's devices, in the arrays' order."""
    mig: list[DeviceShare]
    """MIG instances at the last time."""
    pods: list[NodePod]
    demand: RequestMix
    free: dict[str, UnallocatedCost]
    stranded: dict[str, UnallocatedCost]
    budgets: DisruptionBudgets
    pending: list[Pending]
    """Pods that waited for GPUs, by time."""
    unseen_gpus: int = 0
    """GPUs of the inventory without telemetry: unknown, never idle."""
    notes: list[str] = []


class ClusterRows(msgspec.Struct, frozen=True):
    """The rows of one cluster."""

    nodes: list[InventoryNode]
    devices: list[DeviceShare]
    requests: list[NodeRequests]
    pods: list[NodePod]
    unallocated: list[UnallocatedHours]


def read_cluster_states(
    views: Views, window: Window, cover: float, least_pods: int
) -> list[ClusterState]:
    """Return one state per cluster that has nodes with GPUs, by name."""
    measured = read_times(views, window, PARTS)
    if not measured:
        return []
    times = MeasureTimes(
        [row.cluster for row in measured],
        [row.nth for row in measured],
        [row.at for row in measured],
        [row.still for row in measured],
    )
    last = {row.cluster: row for row in measured}
    clusters = sorted(last)
    stills = [cluster for cluster in clusters if last[cluster].still]
    nodes = group_by_cluster(read_nodes(views, clusters))
    devices = group_by_cluster(read_device_shares(views, times))
    requests = group_by_cluster(read_node_requests(views, times, UNSEEN_S))
    pods = group_by_cluster(read_node_pods(views, list(last.values()), UNSEEN_S))
    unallocated = group_by_cluster(read_unallocated(views, window))
    types = group_by_cluster(read_requested_types(views, window, clusters, stills))
    budgets = DisruptionBudgets.read(views, window)
    waiting = read_pending(views, times)
    return [
        _build_cluster_state(
            last[c],
            ClusterRows(
                nodes.get(c, []),
                devices.get(c, []),
                requests.get(c, []),
                pods.get(c, []),
                unallocated.get(c, []),
            ),
            RequestMix.of(types.get(c, []), cover, least_pods),
            budgets,
            [waiting.get((c, nth), {}) for nth in range(1, last[c].nth + 1)],
        )
        for c in clusters
        if c in nodes or c in devices
    ]


def remove_pods(state: ClusterState, keys: Collection[WorkloadKey]) -> ClusterState:
    """Return the last time of a cluster as it would be without the pods of some workloads.

    Devices that no source names to a pod stay in use.
    """
    place_of = {node.name: n for n, node in enumerate(state.nodes)}
    cpu, memory, gpu = (array[-1:].copy() for array in (state.cpu, state.memory, state.gpu))
    others = []
    for pod in state.pods:
        key = (state.cluster, pod.namespace or "", pod.workload_kind or "", pod.workload or "")
        n = place_of.get(pod.node)
        if key not in keys or n is None:
            others.append(pod)
            continue
        cpu[-1, n] += pod.cpu_milli
        memory[-1, n] += pod.memory_bytes
        for device, share in pod.named_devices:
            if state.nodes[n].open and device in state.devices[n]:
                gpu[-1, n, state.devices[n].index(device)] += round(WHOLE * share)
    return msgspec.structs.replace(
        state, cpu=cpu, memory=memory, gpu=gpu.clip(max=WHOLE), pods=others
    )


def _build_cluster_state(
    last: MeasuredTime,
    rows: ClusterRows,
    demand: RequestMix,
    budgets: DisruptionBudgets,
    waiting: list[Pending],
) -> ClusterState:
    count, still = last.nth, last.still
    devices, pods = rows.devices, rows.pods
    whole_gpus = _drop_split_gpus(devices)
    nodes = build_nodes(rows.nodes, whole_gpus)
    names = _name_devices(nodes, whole_gpus, still=still)
    if still:
        gpu, unattributed = _estimate_free_gpus(count, nodes, names, pods)
    else:
        gpu, unattributed = _measure_free_gpus(count, names, whole_gpus), 0
    gpu[:, [n for n, node in enumerate(nodes) if not node.open]] = 0
    cpu, memory = _compute_free_host(count, nodes, rows.requests)
    return ClusterState(
        last.cluster,
        still,
        nodes,
        cpu,
        memory,
        gpu,
        names,
        [r for r in devices if r.parent and r.nth == count],
        pods,
        demand,
        _select_costs(rows.unallocated, "free"),
        _select_costs(rows.unallocated, "stranded"),
        budgets,
        waiting,
        _count_unseen_gpus(nodes, names, devices),
        _build_notes(nodes, unattributed),
    )


def _drop_split_gpus(devices: Sequence[DeviceShare]) -> list[DeviceShare]:
    """Return the devices that are neither a MIG instance nor a GPU split into instances."""
    parents = {row.parent for row in devices if row.parent}
    return [r for r in devices if not r.parent and r.device not in parents]


def _number_nodes(nodes: Sequence[GpuNode]) -> dict[str, int]:
    """Return the row of each node in the arrays, by name."""
    return {node.name: n for n, node in enumerate(nodes)}


def _name_devices(
    nodes: Sequence[GpuNode], whole_gpus: Sequence[DeviceShare], *, still: bool
) -> list[list[str]]:
    """Return the names of each node's devices; a still cluster's are numbered by node."""
    if still:
        return [[f"{node.name}/gpu{k}" for k in range(node.gpus)] for node in nodes]
    names: list[list[str]] = [[] for _ in nodes]
    row_of = _number_nodes(nodes)
    for device, node_name in {r.device: r.node for r in whole_gpus}.items():
        names[row_of[node_name]].append(device)
    return names


def _build_gpu_array(count: int, names: Sequence[Sequence[str]]) -> Integers:
    """Return zeros [time, node, device], as wide as the node with the most devices."""
    width = max((len(node_devices) for node_devices in names), default=0) or 1
    return np.zeros((count, len(names), width), np.int64)


def _find_positions(names: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    """Return the row of each device's node and its number there."""
    return {d: (n, k) for n, node_devices in enumerate(names) for k, d in enumerate(node_devices)}


def _estimate_free_gpus(
    count: int,
    nodes: Sequence[GpuNode],
    names: Sequence[Sequence[str]],
    pods: Sequence[NodePod],
) -> tuple[Integers, int]:
    """Return what the pods of a still cluster leave of its GPUs, and how many name no device."""
    gpu = _build_gpu_array(count, names)
    for n, node_devices in enumerate(names):
        gpu[:, n, : len(node_devices)] = WHOLE
    return gpu, take_held(gpu[0], _number_nodes(nodes), _find_positions(names), pods)


def _measure_free_gpus(
    count: int, names: Sequence[Sequence[str]], whole_gpus: Sequence[DeviceShare]
) -> Integers:
    """Return free milli-GPU [time, node, device] as telemetry has them."""
    gpu = _build_gpu_array(count, names)
    positions = _find_positions(names)
    for r in whole_gpus:
        gpu[(r.nth - 1, *positions[r.device])] = max(0, round(WHOLE * (1 - r.allocated)))
    return gpu


def _compute_free_host(
    count: int, nodes: Sequence[GpuNode], requests: Sequence[NodeRequests]
) -> tuple[Integers, Integers]:
    """Return free milli-CPU and free bytes [time, node]: the capacity minus the requests."""
    cpu = np.array([get_or(node.cpu_milli, UNKNOWN_CPU) for node in nodes], np.int64)
    memory = np.array([get_or(node.memory_bytes, 1 << 60) for node in nodes], np.int64)
    cpus, memories = np.tile(cpu, (count, 1)), np.tile(memory, (count, 1))
    row_of = _number_nodes(nodes)
    for r in requests:
        if r.node in row_of:
            cpus[r.nth - 1, row_of[r.node]] -= r.cpu_milli
            memories[r.nth - 1, row_of[r.node]] -= r.memory_bytes
    return np.maximum(cpus, 0), np.maximum(memories, 0)


def _count_unseen_gpus(
    nodes: Sequence[GpuNode],
    names: Sequence[Sequence[str]],
    devices: Sequence[DeviceShare],
) -> int:
    """Return the GPUs of the inventory without telemetry; nodes with MIG instances are left out."""
    under_mig = {r.node for r in devices if r.parent}
    return sum(
        max(0, node.gpus - len(node_devices))
        for node, node_devices in zip(nodes, names, strict=True)
        if node.name not in under_mig
    )


def take_held(
    gpu: Integers,
    row_of: Mapping[str, int],
    place: Mapping[str, tuple[int, int]],
    pods: Sequence[NodePod],
) -> int:
    """Subtract from `gpu` the GPUs of a still cluster's pods; return how many pods named no device.

    A pod without named devices gets the first devices of the node with enough free capacity.
    """
    guessed = 0
    for pod in pods:
        if not pod.gpus:
            continue
        n = row_of[pod.node]
        named = pod.named_devices
        if named:
            for device, share in named:
                if device in place:
                    gpu[place[device]] -= round(WHOLE * share)
            continue
        guessed += 1
        count = int(np.ceil(pod.gpus))
        part = round(WHOLE * pod.gpus / count)
        fits = np.flatnonzero(gpu[n] >= part)
        gpu[n, fits[np.argsort(gpu[n, fits], kind="stable")][:count]] -= part
    np.maximum(gpu, 0, out=gpu)
    return guessed


def _select_costs(rows: Sequence[UnallocatedHours], state: State) -> dict[str, UnallocatedCost]:
    """Return the cost of the hours in one state by node."""
    return {
        row.node: UnallocatedCost(row.gpu_hours, row.usd)
        for row in rows
        if row.state == state and row.node is not None
    }


def _build_notes(nodes: Sequence[GpuNode], unattributed: int) -> list[str]:
    blind = sum(node.cpu_milli is None for node in nodes)
    notes = []
    if blind:
        notes.append(f"CPU of {blind} nodes is unknown: nothing there is said to lack it")
    if unattributed:
        notes.append(
            f"devices of {unattributed} pods are not named: taken as packed on their nodes"
        )
    return notes
