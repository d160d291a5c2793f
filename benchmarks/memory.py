"""The memory of a service that collects, accounts and analyzes for two hours: has it a plateau?"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.fleet import SyntheticFleet, build_devices
from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from warehouse import maintenance
from warehouse.lake import Warehouse

START = datetime(2026, 11, 20, 8, tzinfo=UTC)
ACCOUNT_EVERY, ANALYZE_EVERY = 5, 15
"""Cycles between two runs of a job, as the service's defaults are at one scrape a minute."""
GIB = 1 << 30
LARGE = 1_000
"""GPUs from which the rows of two hours are a part of the memory."""


def run(small: bool) -> list[Result]:
    """Measure 64 GPUs at 15 s, 1,000 to 20,000 at 60 s, one or two simulated hours; small: less."""
    if small:
        return _measure(64, 60, cycles=30, reach_gib=0.7)
    return [
        *_measure(64, 15, cycles=480, reach_gib=0.7),
        *_measure(1_000, 60, cycles=120, reach_gib=1.5),
        *_measure(10_000, 60, cycles=120, reach_gib=2.5),
        *_measure(20_000, 60, cycles=60, reach_gib=5),
    ]


def _measure(gpus: int, interval_s: int, *, cycles: int, reach_gib: float) -> list[Result]:
    fleet, step = SyntheticFleet(gpus), timedelta(seconds=interval_s)
    clock = [START]
    resident: list[float] = []
    watch = Stopwatch()
    with TemporaryDirectory() as folder:
        flags = {"home": folder, "cluster": "bench", "prices.usd_per_gpu_hour": "2.00"}
        settings = load(environ={}, flags=flags).settings
        analyzers = analyzer_runs.load_analyzers(settings)
        with Warehouse.open(settings, write=True, clock=lambda: clock[0]) as warehouse:
            for cycle in range(1, cycles + 1):
                clock[0] += step
                samples = fleet.scrape(clock[0], interval_s)
                batches = [Batch("sample", samples), build_devices(samples, clock[0], step)]
                pipeline.ingest(warehouse, batches)
                if cycle % (ACCOUNT_EVERY * 60 // interval_s) == 0:
                    window = Window(clock[0] - pipeline.LEDGER_LOOKBACK, clock[0])
                    pipeline.account(warehouse, window)
                if cycle % (ANALYZE_EVERY * 60 // interval_s) == 0:
                    window = Window(clock[0] - timedelta(days=7), clock[0])
                    pipeline.analyze(warehouse, window, analyzers)
                if cycle % (3600 // interval_s) == 0:
                    maintenance.compact_warehouse(warehouse)
                resident.append(_read_resident_gib())
    lap = watch.read()
    quarters = [float(part.max()) for part in np.array_split(np.array(resident), 4)]
    about = f"{gpus} GPUs at {interval_s} s, {cycles * interval_s / 3600:g} simulated hours"
    most = Result(
        name=f"service: most memory, {about}",
        value=max(resident),
        unit="GiB",
        cpu_s=lap.cpu_s,
        reach=reach_gib * 1e9 / GIB,
        note=f"by quarter {', '.join(f'{gib:.2f}' for gib in quarters)} GiB; peak of the "
        f"process {read_peak_gib():.2f} GiB; {lap.wall_s:.0f} s",
    )
    growth = Result(
        name=f"service: growth in the last half, {about}",
        value=quarters[3] / quarters[2],
        unit="x",
        # The week that analyzers judge is still filling; a small fleet's rows weigh little.
        reach=1.1 if gpus < LARGE else None,
        note="most memory of the last quarter over that of the third",
    )
    return [most, growth]


def _read_resident_gib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / GIB
    raise RuntimeError("this system does not say how much memory a process has")
