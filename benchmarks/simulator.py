"""A simulated day without HTTP servers: everything happens, and every sample becomes a row."""

from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from simulator.cluster.nodes import build_fleet
from simulator.exporters.device_rows import build_rows
from simulator.exporters.quirks import Quirks
from simulator.models import TICK_S
from simulator.world import Spec, World

START_S = 1_793_577_600.0
"""Monday, 2 November 2026."""
STEP_S = 3600.0


def run(small: bool) -> list[Result]:
    """Measure one day of 1,000 GPUs at a scrape every 30 seconds; small: two hours of 64."""
    gpus, hours = (64, 2) if small else (1_000, 24)
    watch = Stopwatch()
    world = World(Spec(nodes=build_fleet(gpus), start_s=START_S), 1)
    quirks = Quirks.of()
    sample_rows = 0
    for step in range(1, hours + 1):
        block = world.advance(START_S + step * STEP_S)
        for batch in build_rows(block, quirks, cluster="simulated"):
            sample_rows += batch.rows.num_rows if batch.table == "sample" else 0
    lap = watch.read()
    return [
        Result(
            name=f"a world of {gpus} GPUs, {hours} h at {TICK_S} s, to rows",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=60,
            note=f"{sample_rows:,} rows; {len(world.cluster.allocations):,} pods held devices",
        ),
        Result(
            name="the same: peak memory",
            value=read_peak_gib(),
            unit="GiB",
            reach=1.5,
            note="of the whole process",
        ),
    ]
