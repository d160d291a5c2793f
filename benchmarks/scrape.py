"""One full cycle: fetch every exporter over HTTP, parse, store, committed and fsynced."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.exposition_text import FIELDS, GPUS
from benchmarks.result import Result
from collectors.exporters import ExporterCollector
from fallow.settings import load
from fallow.settings.collectors import ExporterSettings
from fallow.tables import Batch
from fallow.window import Window
from warehouse.lake import Warehouse

NODES, SMALL_NODES = 1250, 40
CYCLES = 6
INTERVAL = timedelta(seconds=15)
START = datetime(2026, 11, 20, 12, tzinfo=UTC)


class _Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def run(small: bool) -> list[Result]:
    """Measure wall seconds of a cycle: the first, which learns, and the median of the rest."""
    nodes = SMALL_NODES if small else NODES
    clock = _Clock()
    cycles: list[tuple[float, float]] = []
    rows, seconds = 0, 0.0
    with tempfile.TemporaryDirectory() as home, serve_exporters(nodes) as port:
        settings = load(environ={}, flags={"home": Path(home), "cluster": "bench"}).settings
        section = ExporterSettings(
            targets=[f"http://127.0.0.1:{port}/node/{node}" for node in range(nodes)],
            interval=INTERVAL,
            timeout=timedelta(seconds=60),
        )
        collector = ExporterCollector(section, "bench", clock)
        with Warehouse.open(settings, write=True, clock=clock) as warehouse:
            for _ in range(CYCLES):
                window = Window(clock.now - INTERVAL, clock.now)
                began, cpu = time.perf_counter(), time.process_time()
                batches: list[Batch] = list(collector.collect(window))
                collected = time.perf_counter() - began
                warehouse.ingest(batches)
                cycles.append((time.perf_counter() - began, collected))
                rows = sum(batch.rows.num_rows for batch in batches if batch.table == "sample")
                clock.now += INTERVAL
                del batches
                seconds = time.process_time() - cpu
    steady = sorted(cycles[1:])
    whole, collected = steady[len(steady) // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    note = f"{nodes} targets, {rows} rows, {rows * len(FIELDS)} samples; interval 15 s"
    if rows != nodes * GPUS:
        raise RuntimeError(f"{rows} rows of {nodes * GPUS} arrived")
    return [
        Result(
            name="full cycle: fetch, parse, store, fsync (median)",
            value=whole,
            unit="s",
            reach=1.0,
            note=f"{note}; {collected:.2f} s of it fetch and parse; {seconds:.2f} s CPU",
        ),
        Result(name="first cycle, which learns", value=cycles[0][0], unit="s", note="once"),
        Result(name="peak memory of the collecting process", value=peak, unit="MB", reach=600),
    ]


@contextmanager
def serve_exporters(nodes: int) -> Iterator[int]:
    """Serve that many exporters in a process of their own, and yield the port."""
    command = [sys.executable, "-m", "benchmarks.exporter_server", str(nodes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        if server.stdout is None or server.stdin is None:
            raise RuntimeError("the exporters' pipes are closed")
        yield int(server.stdout.readline())
        server.stdin.close()
