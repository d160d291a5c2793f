"""Read the queue of a large fleet: who waits, why, blocked by whom, and every way in."""

import json
import random
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from analyzers.fragmentation.moves_way import MovesWay
from benchmarks.fragmentation import MemoryTables
from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from capacity.queue.reading import QueueReader
from fallow import tables
from fallow.settings.capacity import FragmentationSettings

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
THEN = NOW.replace(tzinfo=None)
GPUS = 8
"""Of a node."""
WAITING = 117
HOLDERS = (("Job", "productive", 0), ("Job", "productive", 100), ("Deployment", "productive", 100),
           ("Notebook", "idle", 100))  # fmt: skip
"""Kinds of holders: workload kind, state in the ledger, priority."""
REACH_S = 20


def run(small: bool) -> list[Result]:
    """Measure 117 waiting workloads on 10,000 GPUs; small: 12 on 320."""
    nodes, waiting = (40, 12) if small else (1250, WAITING)
    views, holders = build_fleet(nodes, waiting)
    plain, _ = _measure(views, moves=False)
    seconds, records = _measure(views, moves=True)
    ways = [record.cheapest_way for record in records]
    kinds = sorted({way.kind for way in ways if way is not None})
    return [
        Result(
            name=f"{len(records)} waiting workloads on {nodes * GPUS:,} GPUs",
            value=seconds,
            unit="CPU s",
            cpu_s=seconds,
            reach=REACH_S,
            note=f"{holders:,} holders; {plain:.1f} s without moves; "
            f"{sum(way is not None for way in ways)} have a way in ({', '.join(kinds)}); "
            f"peak {read_peak_gib():.2f} GiB",
        )
    ]


def _measure(views: MemoryTables, *, moves: bool) -> tuple[float, list[Any]]:
    began = time.process_time()
    planner = MovesWay(views, NOW, FragmentationSettings()) if moves else None
    records = QueueReader(views, NOW, planner).read()
    return time.process_time() - began, records


def build_fleet(nodes: int, waiting: int) -> tuple[MemoryTables, int]:
    """Return a fleet whose nodes have one or two free GPUs, and its number of holders."""
    draw = random.Random(19)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("node", "device", "pod", "allocation", "ledger")
    }
    for n in range(nodes):
        _add_node(rows, draw, f"n{n:04}")
    holders = len(rows["pod"])
    for number in range(waiting):
        _add_waiting(rows, draw, f"w{number:03}")
    views = MemoryTables()
    for name, listed in rows.items():
        views.put(name, pa.Table.from_pylist(listed, schema=tables.get_schema(name)))
    return views, holders


def _add_node(rows: dict[str, list[dict[str, Any]]], draw: random.Random, node: str) -> None:
    """Add a node with holders on all of its GPUs but one or two."""
    seen = {"cluster": "c", "first_seen": THEN - timedelta(days=4), "last_seen": THEN}
    rows["node"].append(
        {**seen, "node": node, "pool": "p", "ready": True, "gpu_count": GPUS, "gpu_model": "H100",
         "cpu_milli": 96_000, "memory_bytes": 2**40}
    )  # fmt: skip
    devices = [f"{node}/{n}" for n in range(GPUS)]
    rows["device"] += [
        {**seen, "device": device, "node": node, "gpu_model": "H100", "weight": 1.0,
         "interval_s": 60.0}
        for device in devices
    ]  # fmt: skip
    used, most = 0, GPUS - draw.choice((1, 2))
    while used < most:
        size = min(draw.choice((1, 2, 2, 3)), most - used)
        _add_holder(rows, draw, node, devices[used : used + size])
        used += size


def _add_holder(
    rows: dict[str, list[dict[str, Any]]], draw: random.Random, node: str, devices: list[str]
) -> None:
    kind, state, priority = draw.choice(HOLDERS)
    name, start = f"h{len(rows['pod']):05}", THEN - timedelta(hours=draw.randrange(2, 60))
    owner = {"cluster": "c", "namespace": "a", "workload_kind": kind, "workload": name}
    named = [{"device": device, "share": 1.0} for device in devices]
    rows["pod"].append(
        {**owner, "uid": name, "pod": f"{name}-0", "node": node, "phase": "Running",
         "workload_uid": name, "gpu_request": float(len(devices)), "gpu_resource": "nvidia.com/gpu",
         "priority": priority, "created_at": start, "scheduled_at": start, "started_at": start,
         "first_seen": start, "last_seen": THEN, "cpu_request_milli": 8_000,
         "memory_request_bytes": 2**35, "devices": json.dumps(named)}
    )  # fmt: skip
    rows["allocation"] += [
        {**owner, "device": device, "pod_uid": name, "pod": f"{name}-0", "start": start,
         "end": THEN, "share": 1.0, "attribution": "exact"}
        for device in devices
    ]  # fmt: skip
    rows["ledger"] += [
        {**owner, "bucket": THEN - timedelta(hours=hour), "device": device, "node": node,
         "state": state, "seconds": 3600.0, "gpu_seconds": 3600.0, "usd": Decimal(2),
         "priced": True}
        for device in devices
        for hour in (1, 2)
    ]  # fmt: skip


def _add_waiting(rows: dict[str, list[dict[str, Any]]], draw: random.Random, name: str) -> None:
    """Add a workload of one pod, or of a gang, that waits since up to two days."""
    created = THEN - timedelta(minutes=draw.randrange(10, 2880))
    gpus, pods = draw.choice(((2, 1), (4, 1), (8, 1), (8, 2), (8, 4)))
    rows["pod"] += [
        {"cluster": "c", "namespace": "b", "workload_kind": "Job", "workload": name,
         "uid": f"{name}-{n}", "pod": f"{name}-{n}", "phase": "Pending",
         "gpu_request": float(gpus), "gpu_resource": "nvidia.com/gpu",
         "priority": draw.choice((0, 100)), "created_at": created, "first_seen": created,
         "last_seen": THEN, "cpu_request_milli": 4_000 * gpus}
        for n in range(pods)
    ]  # fmt: skip
