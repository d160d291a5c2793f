"""Find idle workloads in 30 days of five-minute rollups, alone: its own time and peak memory."""

import time

from analyzers.idle.analyzer import IdleAnalyzer
from benchmarks.month import build_month, read_peak_gib
from benchmarks.result import Result
from warehouse.allocation import write_allocations


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs (90 M five-minute rows); small: 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    with build_month(gpus, days) as (warehouse, window):
        write_allocations(warehouse, window)
        before = read_peak_gib()
        began = time.perf_counter()
        idle_findings = IdleAnalyzer(warehouse.settings.idle).find(warehouse, window)
        took = time.perf_counter() - began
        peak = read_peak_gib()
    return [
        Result(
            name=f"idle workloads alone, {days} d of {gpus} GPUs",
            value=took,
            unit="s",
            reach=6,
            note=f"{len(idle_findings)} findings; with the ledger of the same days: `ledger`",
        ),
        Result(
            name="idle workloads alone: peak memory",
            value=peak,
            unit="GiB",
            reach=3,
            note=f"{before:.2f} GiB before",
        ),
    ]
