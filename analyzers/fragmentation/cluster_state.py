"""Read free capacity from the warehouse into arrays over nodes and times."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from analyzers.budgets import DisruptionBudgets
from analyzers.fragmentation.inventory import (
    UNKNOWN_CPU,
    WHOLE,
    GpuNode,
    build_nodes,
    get_or,
    read_devices,
)
from analyzers.fragmentation.request_mix import RequestMix, read_requests
from analyzers.pending import MeasureTimes, Pending, read_pending
from analyzers.queries import load_sql
from fallow.fragmentation import Integers
from fallow.protocols import Views
from fallow.window import Window

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
    mig: list[dict[str, Any]]
    """MIG instances at the last time, rows of `devices.sql`."""
    pods: list[dict[str, Any]]
    demand: RequestMix
    free: dict[str, UnallocatedCost]
    stranded: dict[str, UnallocatedCost]
    budgets: DisruptionBudgets
    pending: list[Pending]
    """Pods that waited for GPUs, by time."""
    unseen_gpus: int = 0
    """GPUs of the inventory without telemetry: unknown, never idle."""
    notes: list[str] = []


def read_cluster_states(
    views: Views, window: Window, cover: float, least_pods: int
) -> list[ClusterState]:
    """Return one state per cluster that has nodes with GPUs, by name."""
    since, until = window.bounds().values()
    measure_rows = views.query(
        load_sql("fragmentation/measure_times"), {"since": since, "until": until, "parts": PARTS}
    ).to_pylist()
    if not measure_rows:
        return []
    clusters = sorted({row["cluster"] for row in measure_rows})
    times = MeasureTimes(
        [row["cluster"] for row in measure_rows],
        [row["nth"] for row in measure_rows],
        [row["at"] for row in measure_rows],
        [row["still"] for row in measure_rows],
    )
    every = msgspec.structs.asdict(times)
    last = {row["cluster"]: row for row in measure_rows}
    named = {"clusters": clusters}
    read = {
        "nodes": views.query(load_sql("fragmentation/nodes"), named),
        "devices": views.query(
            load_sql("fragmentation/devices"),
            {k: every[k] for k in ("clusters", "nths", "times")},
        ),
        "requests": views.query(
            load_sql("fragmentation/node_requests"), {**every, "unseen_s": UNSEEN_S}
        ),
        "pods": views.query(
            load_sql("fragmentation/pods"),
            {
                "clusters": list(last),
                "times": [row["at"] for row in last.values()],
                "stills": [row["still"] for row in last.values()],
                "unseen_s": UNSEEN_S,
            },
        ),
        "money": views.query(load_sql("fragmentation/money"), {"since": since, "until": until}),
    }
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, table in read.items():
        for row in table.to_pylist():
            rows.setdefault(row["cluster"], {}).setdefault(name, []).append(row)
    requests = read_requests(views, window, clusters, [c for c in clusters if last[c]["still"]])
    budgets = DisruptionBudgets.read(views, window)
    waiting = read_pending(views, times)
    return [
        _build_cluster_state(
            c,
            last[c],
            rows.get(c, {}),
            RequestMix.of(requests.get(c, []), cover, least_pods),
            budgets,
            [waiting.get((c, nth), {}) for nth in range(1, last[c]["nth"] + 1)],
        )
        for c in clusters
        if rows.get(c, {}).get("nodes") or rows.get(c, {}).get("devices")
    ]


def _build_cluster_state(  # noqa: PLR0917  (one caller)
    cluster: str,
    last: Mapping[str, Any],
    rows: Mapping[str, list[dict[str, Any]]],
    demand: RequestMix,
    budgets: DisruptionBudgets,
    waiting: list[Pending],
) -> ClusterState:
    count, still = last["nth"], last["still"]
    devices, pods, money = (rows.get(name, []) for name in ("devices", "pods", "money"))
    whole_gpus = _drop_split_gpus(devices)
    nodes = build_nodes(rows.get("nodes", []), whole_gpus)
    names = _name_devices(nodes, whole_gpus, still=still)
    if still:
        gpu, unattributed = _estimate_free_gpus(count, nodes, names, pods)
    else:
        gpu, unattributed = _measure_free_gpus(count, names, whole_gpus), 0
    gpu[:, [n for n, node in enumerate(nodes) if not node.open]] = 0
    cpu, memory = _compute_free_host(count, nodes, rows.get("requests", []))
    return ClusterState(
        cluster,
        still,
        nodes,
        cpu,
        memory,
        gpu,
        names,
        [r for r in devices if r["parent"] and r["nth"] == count],
        pods,
        demand,
        _read_money(money, "free"),
        _read_money(money, "stranded"),
        budgets,
        waiting,
        _count_unseen_gpus(nodes, names, devices),
        _build_notes(nodes, unattributed),
    )


def _drop_split_gpus(devices: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the devices that are neither a MIG instance nor a GPU split into instances."""
    parents = {row["parent"] for row in devices if row["parent"]}
    return [r for r in devices if not r["parent"] and r["device"] not in parents]


def _number_nodes(nodes: Sequence[GpuNode]) -> dict[str, int]:
    """Return the row of each node in the arrays, by name."""
    return {node.name: n for n, node in enumerate(nodes)}


def _name_devices(
    nodes: Sequence[GpuNode], whole_gpus: Sequence[Mapping[str, Any]], *, still: bool
) -> list[list[str]]:
    """Return the names of each node's devices; a still cluster's are numbered by node."""
    if still:
        return [[f"{node.name}/gpu{k}" for k in range(node.gpus)] for node in nodes]
    names: list[list[str]] = [[] for _ in nodes]
    row_of = _number_nodes(nodes)
    for device, node_name in {r["device"]: r["node"] for r in whole_gpus}.items():
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
    pods: Sequence[Mapping[str, Any]],
) -> tuple[Integers, int]:
    """Return what the pods of a still cluster leave of its GPUs, and how many name no device."""
    gpu = _build_gpu_array(count, names)
    for n, node_devices in enumerate(names):
        gpu[:, n, : len(node_devices)] = WHOLE
    return gpu, take_held(gpu[0], _number_nodes(nodes), _find_positions(names), pods)


def _measure_free_gpus(
    count: int, names: Sequence[Sequence[str]], whole_gpus: Sequence[Mapping[str, Any]]
) -> Integers:
    """Return free milli-GPU [time, node, device] as telemetry has them."""
    gpu = _build_gpu_array(count, names)
    positions = _find_positions(names)
    for r in whole_gpus:
        gpu[(r["nth"] - 1, *positions[r["device"]])] = max(0, round(WHOLE * (1 - r["allocated"])))
    return gpu


def _compute_free_host(
    count: int, nodes: Sequence[GpuNode], requests: Sequence[Mapping[str, Any]]
) -> tuple[Integers, Integers]:
    """Return free milli-CPU and free bytes [time, node]: the capacity minus the requests."""
    cpu = np.array([get_or(node.cpu_milli, UNKNOWN_CPU) for node in nodes], np.int64)
    memory = np.array([get_or(node.memory_bytes, 1 << 60) for node in nodes], np.int64)
    cpus, memories = np.tile(cpu, (count, 1)), np.tile(memory, (count, 1))
    row_of = _number_nodes(nodes)
    for r in requests:
        if r["node"] in row_of:
            cpus[r["nth"] - 1, row_of[r["node"]]] -= r["cpu_milli"]
            memories[r["nth"] - 1, row_of[r["node"]]] -= r["memory_bytes"]
    return np.maximum(cpus, 0), np.maximum(memories, 0)


def _count_unseen_gpus(
    nodes: Sequence[GpuNode],
    names: Sequence[Sequence[str]],
    devices: Sequence[Mapping[str, Any]],
) -> int:
    """Return the GPUs of the inventory without telemetry; nodes with MIG instances are left out."""
    under_mig = {r["node"] for r in devices if r["parent"]}
    return sum(
        max(0, node.gpus - len(node_devices))
        for node, node_devices in zip(nodes, names, strict=True)
        if node.name not in under_mig
    )


def take_held(
    gpu: Integers,
    row_of: Mapping[str, int],
    place: Mapping[str, tuple[int, int]],
    pods: Sequence[Mapping[str, Any]],
) -> int:
    """Subtract from `gpu` the GPUs of a still cluster's pods; return how many pods named no device.

    A pod without named devices gets the first devices of the node with enough free capacity.
    """
    guessed = 0
    for pod in pods:
        if not pod["gpus"]:
            continue
        n = row_of[pod["node"]]
        named = read_devices(pod)
        if named:
            for device, share in named:
                if device in place:
                    gpu[place[device]] -= round(WHOLE * share)
            continue
        guessed += 1
        count = int(np.ceil(pod["gpus"]))
        part = round(WHOLE * pod["gpus"] / count)
        fits = np.flatnonzero(gpu[n] >= part)
        gpu[n, fits[np.argsort(gpu[n, fits], kind="stable")][:count]] -= part
    np.maximum(gpu, 0, out=gpu)
    return guessed


def _read_money(rows: list[dict[str, Any]], state: str) -> dict[str, UnallocatedCost]:
    return {
        r["node"]: UnallocatedCost(r["gpu_hours"], r["usd"]) for r in rows if r["state"] == state
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
