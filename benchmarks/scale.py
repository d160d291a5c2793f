"""Stages as slices: workers against one process, cost per GPU-day by fleet, memory of a task.

Each worker has one thread. The driver's own time (planning and commit) is printed apart. The
100,000 GPUs are a sample: a seeded choice of the slices of 30 days, each generated, rolled up and
dropped, and the rest by arithmetic with its error.
"""

import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.fleet import SyntheticFleet, build_scrapes
from benchmarks.result import Result
from fallow.settings import Settings, load
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.rollup import list_due, roll_up
from warehouse.runners.local import LocalRunner
from warehouse.runners.slices import StageSlice
from warehouse.stages.pinned import read_snapshot
from warehouse.stages.rollup_stage import plan_slices, roll_up_slice, roll_up_stage

S = TypeVar("S")
T = TypeVar("T")
START = datetime(2026, 11, 1)  # noqa: DTZ001
NOW = datetime(2026, 11, 20, tzinfo=UTC)
FLEETS = (1_000, 5_000, 10_000, 20_000)
LARGE, LARGE_DAYS, PART = 100_000, 30, 5_000
"""A fleet of many machines: its slices have the devices of one part, as `plan_slices` cuts them."""


class MeasuredRunner:
    """A runner that keeps how long its slices took, and the peak memory of its processes."""

    def __init__(self, runner: LocalRunner) -> None:
        self._runner = runner
        self.mapped_s = 0.0
        self.peak_bytes = 0

    @property
    def concurrency(self) -> int:
        """How many slices run at the same time."""
        return self._runner.concurrency

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        """Run the slices, and keep the time and the peak."""
        began = time.perf_counter()
        results = self._runner.map(partial(_run_measured, task), slices)
        self.mapped_s += time.perf_counter() - began
        self.peak_bytes = max([self.peak_bytes, *(peak for _, peak in results)])
        return [result for result, _ in results]

    def close(self) -> None:
        """Stop the processes."""
        self._runner.close()


def run(small: bool) -> list[Result]:
    """Measure at 10,000 GPUs and 24 h of raw at 60 s; small: at 200 and 3 h."""
    gpus, hours = (200, 3) if small else (10_000, 24)
    fleets = (100, 200) if small else FLEETS
    one_s, _ = _measure_stage(gpus, hours, 1)
    two_s, driver_s = _measure_stage(gpus, hours, 2)
    results = [
        Result(
            name=f"roll up {hours} h of {gpus} GPUs: tasks of 2 workers against 1",
            value=one_s / two_s,
            unit="x",
            reach=1.6,
            at_most=False,
            note=f"tasks {one_s:.1f} and {two_s:.1f} s, driver {driver_s:.1f} s; "
            f"{os.cpu_count()} cores",
        )
    ]
    for fleet in fleets:
        cpu_s, peak = _measure_cost(fleet, 3 if small else 6)
        results.append(
            Result(
                name=f"roll up {fleet} GPUs: CPU per GPU-day",
                value=cpu_s * 1e3,
                unit="ms",
            )
        )
        results.append(
            Result(
                name=f"roll up {fleet} GPUs: peak memory of a task",
                value=peak / 2**30,
                unit="GiB",
                reach=1.5,
            )
        )
    return [*results, _sample_large(small=small)]


def _open(home: Path, **flags: Any) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "bench", **flags}).settings


def _fill(warehouse: Warehouse, gpus: int, hours: int) -> None:
    fleet = SyntheticFleet(gpus)
    for hour in range(hours):
        rows = build_scrapes(fleet, START + timedelta(hours=hour), 60, 60.0)
        warehouse.ingest([Batch("sample", part) for part in rows])


def _measure_stage(gpus: int, hours: int, workers: int) -> tuple[float, float]:
    """Return the seconds of the tasks and of the driver, for one roll-up over many slices."""
    with tempfile.TemporaryDirectory() as home:
        settings = _open(Path(home))
        with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
            _fill(warehouse, gpus, hours)
            runner = MeasuredRunner(LocalRunner(workers))
            runner.map(_wait, [StageSlice("", START, START)] * workers)  # imports are not the work
            runner.mapped_s = 0.0
            began = time.perf_counter()
            roll_up_stage(warehouse, lambda _: runner)
            whole = time.perf_counter() - began
            runner.close()
            return runner.mapped_s or whole, whole - runner.mapped_s


def _measure_cost(gpus: int, hours: int) -> tuple[float, int]:
    """Return the CPU-seconds per GPU-day of a roll-up by one worker, and the peak of its tasks."""
    with tempfile.TemporaryDirectory() as home:
        with Warehouse.open(_open(Path(home)), write=True, clock=lambda: NOW) as warehouse:
            _fill(warehouse, gpus, hours)
            slices = plan_slices(warehouse, list_due(warehouse))
            snapshot = read_snapshot(warehouse)
            runner = LocalRunner(1)
            task = partial(_run_timed, partial(roll_up_slice, warehouse.settings, snapshot))
            measured = runner.map(task, slices)
            runner.close()
        cpu_s = sum(cpu for cpu, _ in measured)
        return cpu_s / (gpus * hours / 24), max(peak for _, peak in measured)


def _sample_large(*, small: bool) -> Result:
    """Roll up a seeded sample of the slices of a large fleet, each generated and dropped."""
    part, share = (100, 0.00002) if small else (PART, 0.02)
    slices = LARGE // part * LARGE_DAYS * 24
    chosen = max(3, int(slices * share))
    rng = random.Random(18)
    times = []
    for _ in range(chosen):
        with tempfile.TemporaryDirectory() as home:
            settings = _open(Path(home), **{"warehouse.threads": 1})
            with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
                fleet = SyntheticFleet(part, seed=rng.randrange(2**31))
                hour = START + timedelta(hours=rng.randrange(24))
                rows = build_scrapes(fleet, hour, 60, 60.0)
                warehouse.ingest([Batch("sample", piece) for piece in rows])
                began = time.process_time()
                roll_up(warehouse)
                times.append(time.process_time() - began)
    mean = statistics.mean(times)
    error = 1.96 * statistics.stdev(times) / len(times) ** 0.5
    hours = mean * slices / 3600
    return Result(
        name=f"roll up {LARGE} GPUs x {LARGE_DAYS} d, by a sample of {chosen} slices",
        value=hours,
        unit="CPU-h",
        note=f"of {slices}; +- {error * slices / 3600:.2g} CPU-h (95 %); {part} GPUs x 1 h each",
    )


def _wait(_part: StageSlice) -> None:
    time.sleep(0.5)  # so that each process takes one


def _run_measured(task: Callable[[S], T], part: S) -> tuple[T, int]:
    result = task(part)
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _run_timed(task: Callable[[StageSlice], object], part: StageSlice) -> tuple[float, int]:
    began = time.process_time()
    task(part)
    return time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
