"""Measure the fragmentation of 1,213 nodes: the measure alone, and the whole analyzer."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from analyzers.fragmentation.analyzer import FragmentationAnalyzer
from benchmarks.month import open_month, read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow import tables
from fallow.fragmentation import FragmentationMeasure, read_typical_mix
from fallow.window import Window

NODES = 1_213
"""As many as openb has with GPUs."""

TRIES = 5


def run(small: bool) -> list[Result]:
    """Measure openb's size, and 30 days of 10,000 GPUs; small: 100 nodes, and 2 days of 200."""
    nodes = 100 if small else NODES
    gpus, days = (200, 2) if small else (10_000, 30)
    draw = np.random.default_rng(7)
    cpu = draw.integers(0, 96_000, nodes)
    gpu = draw.choice([0, 0, 0, 190, 540, 1000], (nodes, 8))
    measure = FragmentationMeasure(read_typical_mix())
    alone = _find_best(lambda: (measure.fragments(cpu, gpu), measure.causes(cpu, gpu)))
    views, window = _measure_still(cpu, gpu)
    whole = _find_best(lambda: FragmentationAnalyzer().find(views, window))
    with open_month(gpus, days) as (warehouse, month):
        before = read_peak_gib()
        watch = Stopwatch()
        fragmentation_findings = FragmentationAnalyzer(warehouse.settings.fragmentation).find(
            warehouse, month
        )
        lap = watch.read()
        peak = read_peak_gib()
    return [
        Result(
            name=f"fragmentation of {nodes} nodes, split by cause",
            value=alone,
            unit="s",
            reach=0.5,
            note=f"35 types of pods; best of {TRIES}",
        ),
        Result(
            name=f"fragmentation findings of {nodes} nodes, read and planned",
            value=whole,
            unit="s",
            note=f"best of {TRIES}",
        ),
        Result(
            name=f"fragmentation findings alone, {days} d of {gpus} GPUs",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=10,
            note=(
                f"{len(fragmentation_findings)} findings; peak {peak:.2f} GiB, {before:.2f} before"
            ),
        ),
    ]


def _find_best(do: Callable[[], object]) -> float:
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return min(times)


class MemoryTables:
    """Tables of an inventory in an engine's memory."""

    def __init__(self) -> None:
        self._engine = duckdb.connect()
        for name in tables.list_table_names():
            self.put(name, tables.get_schema(name).empty_table())

    def put(self, name: str, rows: pa.Table) -> None:
        """Set the rows of a table."""
        self._engine.register("incoming", rows)
        self._engine.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM incoming")

    def query(self, sql: str, parameters: Any = None) -> pa.Table:
        """Return the rows of a query."""
        return self._engine.execute(sql, parameters or {}).to_arrow_table()


def _measure_still(cpu: Any, gpu: Any) -> tuple[MemoryTables, Window]:
    """Build an inventory whose nodes have that much free: one pod holds the rest of a device."""
    start = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
    node, pod = [], []
    for n, (free_cpu, free) in enumerate(zip(cpu.tolist(), gpu.tolist(), strict=True)):
        name = f"n{n:04}"
        seen = {"cluster": "c", "first_seen": start, "last_seen": start}
        node.append(
            {**seen, "node": name, "gpu_model": "H100", "gpu_count": 8, "cpu_milli": 96_000,
             "memory_bytes": 2**40}
        )  # fmt: skip
        allocated = [(k, 1 - milli / 1000) for k, milli in enumerate(free) if milli < 1000]
        for k, share in allocated:
            pod.append(
                {**seen, "uid": f"{name}-{k}", "namespace": "ns", "pod": f"{name}-{k}",
                 "node": name, "phase": "Running", "workload_kind": "Deployment",
                 "workload": f"w{n % 50}", "gpu_request": share,
                 "cpu_request_milli": (96_000 - free_cpu) // len(allocated),
                 "memory_request_bytes": 2**34,
                 "devices": f'[{{"device": "{name}/gpu{k}", "share": {share}}}]'}
            )  # fmt: skip
    memory = MemoryTables()
    memory.put("node", pa.Table.from_pylist(node, schema=tables.get_schema("node")))
    memory.put("pod", pa.Table.from_pylist(pod, schema=tables.get_schema("pod")))
    aware = start.replace(tzinfo=UTC)
    return memory, Window(aware, aware + timedelta(days=1))
