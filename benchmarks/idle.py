"""Find idle workloads in 30 days of five-minute rollups, alone: its own time and peak memory."""

from analyzers.idle.analyzer import IdleAnalyzer
from benchmarks.month import open_month, read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs (90 M five-minute rows); small: 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    with open_month(gpus, days) as (warehouse, window):
        before = read_peak_gib()
        watch = Stopwatch()
        idle_findings = IdleAnalyzer(warehouse.settings.idle).find(warehouse, window)
        lap = watch.read()
        peak = read_peak_gib()
    return [
        Result(
            name=f"idle workloads alone, {days} d of {gpus} GPUs",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=5,
            note=f"{len(idle_findings)} findings",
        ),
        Result(
            name="idle workloads alone: peak memory",
            value=peak,
            unit="GiB",
            reach=3,
            note=f"{before:.2f} GiB before",
        ),
    ]
