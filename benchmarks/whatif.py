"""Replay a week of a busy site through each scheduler: events per second of processor time."""

import random

from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from capacity.placement.node_fleet import FleetNode, FleetPod
from capacity.replay.records import (
    ReplayNode,
    ReplayQueue,
    ReplaySite,
    ReplayUnit,
    SchedulerKind,
)
from capacity.replay.replay import replay

QUEUES = 20
HOUR_S = 3600.0
SCHEDULERS: tuple[SchedulerKind, ...] = ("plain", "kueue", "volcano")
LOAD = 0.95
"""GPU-hours that are requested, of those of the nodes: something often waits."""


def run(small: bool) -> list[Result]:
    """Measure 512 GPUs for a week; small: 64 for a day."""
    gpus, hours = (64, 24) if small else (512, 168)
    return [_measure(scheduler, gpus, hours) for scheduler in SCHEDULERS]


def _measure(scheduler: SchedulerKind, gpus: int, hours: int) -> Result:
    site = build_busy_site(scheduler, gpus, hours)
    watch = Stopwatch()
    result = replay(site)
    took = watch.read().cpu_s
    # A unit arrives, and each run begins and ends.
    events = len(result.units) + 2 * len(result.runs)
    evicted = sum(unit.preemptions for unit in result.units)
    return Result(
        name=f"replay, {scheduler}: {hours} h of {gpus} GPUs",
        value=events / took,
        unit="events/s",
        cpu_s=took,
        at_most=False,
        note=f"{events:,} events, {len(result.units):,} units, {evicted:,} evictions, "
        f"{QUEUES} queues in one cohort; {read_peak_gib():.2f} GiB",
    )


def build_busy_site(scheduler: SchedulerKind, gpus: int, hours: int) -> ReplaySite:
    """Return a site of nodes of 8 GPUs whose queues ask for more than there is."""
    draw = random.Random(19)
    units: list[ReplayUnit] = []
    demand_h = LOAD * gpus * hours
    while demand_h > 0:
        unit = _draw_unit(draw, len(units), hours)
        units.append(unit)
        demand_h -= unit.run_s[0] / HOUR_S * unit.gpu_milli / 1000
    units.sort(key=lambda unit: unit.arrival_s)
    nodes = tuple(
        ReplayNode(FleetNode(f"n{place:04}", 10**9, 10**9, 8)) for place in range(gpus // 8)
    )
    nominal = gpus * 1000 // QUEUES
    queues = tuple(ReplayQueue(f"q{place}", nominal, cohort="all") for place in range(QUEUES))
    return ReplaySite(0, hours * HOUR_S, nodes, tuple(units), scheduler, queues)


def _draw_unit(draw: random.Random, number: int, hours: int) -> ReplayUnit:
    """Return a pod of 1 to 8 GPUs for about an hour, or one in twenty times a gang of 2 to 4."""
    queue = f"q{draw.randrange(QUEUES)}"
    arrival_s = float(int(draw.uniform(0, hours * HOUR_S)))
    run_s = float(int(draw.lognormvariate(8.2, 0.9)) + 1)
    priority = draw.choice((0, 0, 0, 100))
    pods = draw.choice((2, 4)) if draw.random() < 0.05 else 1
    gpus = 8 if pods > 1 else draw.choice((1, 1, 1, 2, 4, 8))
    name = f"u{number:06}"
    members = tuple(FleetPod(f"{name}-{place}", gpus=gpus) for place in range(pods))
    return ReplayUnit(name, queue, queue, priority, arrival_s, members, (run_s,) * pods)
