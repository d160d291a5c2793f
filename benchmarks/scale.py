"""Stages as slices: workers against one, CPU per GPU-day by fleet, memory, and 100,000 GPUs.

Each worker has one thread. The driver's own time (planning and commit) is printed apart. The
100,000 GPUs are a sample: a seeded choice of the slices of 30 days, each generated, stored, rolled
up and dropped, and the rest by arithmetic with its error.
"""

import multiprocessing
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from analyzers.idle.holders import WorkloadBucket
from analyzers.idle.judge import judge_window
from benchmarks import month
from benchmarks.fleet import SyntheticFleet, build_scrapes
from benchmarks.result import Result
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from warehouse.allocation import write_allocations
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.rollup import roll_up
from warehouse.runners.local import LocalRunner
from warehouse.runners.slices import StageSlice
from warehouse.stages.ledger_stage import write_ledger_stage
from warehouse.stages.pinned import open_snapshot, read_snapshot
from warehouse.stages.rollup_stage import roll_up_stage

S = TypeVar("S")
T = TypeVar("T")
START = datetime(2026, 11, 1)  # noqa: DTZ001
NOW = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
FLEETS = (1_000, 5_000, 10_000, 20_000)
FLAT = 1.15
"""The most expensive fleet against the cheapest, per GPU-day."""
GPU_HOURS = 60_000
"""Samples of each fleet: 60 h of 1,000 GPUs are as many as 3 h of 20,000."""
FLEET_DAYS = 2
"""Rollups of each fleet for the ledger: equal windows, since hours around them are read too."""
TASK_GIB = 1.5
IDLE_BUCKETS = 4
LARGE, LARGE_DAYS, PART = 100_000, 30, 25_000
"""A fleet of many machines: an hour of it is cut into slices of so many devices (1.5 M samples)."""
SHARE = 0.02


class StageRun(msgspec.Struct, frozen=True):
    """What a stage took, in seconds and bytes."""

    tasks_s: float
    driver_s: float
    task_bytes: int
    driver_bytes: int


class SampleCost(msgspec.Struct, frozen=True):
    """CPU-seconds of one slice of the large fleet."""

    store_s: float
    roll_up_s: float


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
    """Measure all; small: fleets of 100 and 200 GPUs."""
    with tempfile.TemporaryDirectory(prefix="fallow-scale-") as folder:
        home = Path(folder)
        results = []
        for part in (_compare_roll_up, _compare_accounting, _measure_fleets, _sample_large):
            for result in part(home, small):
                results.append(result)
                print(f"measured: {result.name}", file=sys.stderr, flush=True)
            for child in home.iterdir():
                shutil.rmtree(child)
        return results


def _compare_roll_up(folder: Path, small: bool) -> Iterator[Result]:
    gpus, hours = (200, 3) if small else (10_000, 12)
    run_apart(_fill_samples, folder / "samples", gpus, hours)
    yield from _compare(f"roll up {hours} h of {gpus} GPUs", folder / "samples", _roll_up)


def _compare_accounting(folder: Path, small: bool) -> Iterator[Result]:
    gpus, days = (200, 2) if small else (10_000, 4)
    run_apart(fill_month, folder / "month", gpus, days)
    of = f"{days} d of {gpus} GPUs"
    yield from _compare(f"signals and ledger, {of}", folder / "month", partial(_write, days))
    yield from _compare(
        f"idle by bucket of workloads, {of}", folder / "month", partial(_judge_idle, days)
    )


def _compare(name: str, home: Path, stage: Callable[..., None]) -> Iterator[Result]:
    """Compare the tasks of one worker and of two, each on its own copy of a home."""
    runs = {}
    for workers in (1, 2):
        copied = shutil.copytree(home, home.with_name(f"{home.name}-{workers}"))
        runs[workers] = run_apart(_run_stage, copied, workers, stage)
        shutil.rmtree(copied)
    alone, both = runs[1], runs[2]
    yield Result(
        name=f"{name}: tasks of 2 workers against 1",
        value=alone.tasks_s / both.tasks_s,
        unit="x",
        reach=1.6,
        at_most=False,
        note=f"tasks {alone.tasks_s:.1f} and {both.tasks_s:.1f} s, driver {both.driver_s:.1f} s; "
        f"{os.cpu_count()} cores",
    )
    yield _build_memory(f"{name}: peak memory of a task", both.task_bytes)
    yield _build_memory(f"{name}: peak memory of the driver", both.driver_bytes)


def _measure_fleets(folder: Path, small: bool) -> Iterator[Result]:
    fleets, hours = ((100, 200), 600) if small else (FLEETS, GPU_HOURS)
    rolled, accounted, drivers = {}, {}, {}
    for gpus in fleets:
        home = folder / f"samples-{gpus}"
        run_apart(_fill_samples, home, gpus, hours // gpus)
        if gpus in {fleets[1], fleets[-1]}:
            copied = shutil.copytree(home, folder / "copied")
            stage = run_apart(_run_stage, copied, 2, _roll_up)
            shutil.rmtree(copied)
            drivers[gpus] = stage.driver_bytes
            yield _build_memory(f"roll up {gpus} GPUs: peak memory of a task", stage.task_bytes)
        rolled[gpus] = run_apart(_measure_roll_up, home) / (hours / 24)
        shutil.rmtree(home)
        run_apart(fill_month, folder / "month", gpus, FLEET_DAYS)
        ledger_s = run_apart(_measure_ledger, folder / "month", FLEET_DAYS)
        accounted[gpus] = ledger_s / gpus / FLEET_DAYS
        shutil.rmtree(folder / "month")
    yield from _list_costs("roll up", rolled)
    yield from _list_costs("signals and ledger", accounted)
    least, most = min(drivers), max(drivers)
    yield Result(
        name=f"roll up: memory of the driver, {most} GPUs against {least}",
        value=drivers[most] / drivers[least],
        unit="x",
        reach=FLAT,
        note=" and ".join(f"{drivers[gpus] / 2**30:.2f}" for gpus in (least, most)) + " GiB",
    )
    yield Result(
        name=f"signals and ledger, {LARGE} GPUs x {LARGE_DAYS} d, by arithmetic",
        value=accounted[fleets[-1]] * LARGE * LARGE_DAYS / 3600,
        unit="CPU-h",
        note=f"the cost per GPU-day at {fleets[-1]} GPUs times {LARGE * LARGE_DAYS:,} GPU-days",
    )


def _list_costs(name: str, by_fleet: dict[int, float]) -> Iterator[Result]:
    for gpus, cpu_s in by_fleet.items():
        yield Result(name=f"{name} {gpus} GPUs: CPU per GPU-day", value=cpu_s * 1e3, unit="ms")
    yield Result(
        name=f"{name}: CPU per GPU-day, the most expensive fleet against the cheapest",
        value=max(by_fleet.values()) / min(by_fleet.values()),
        unit="x",
        reach=FLAT,
        note=f"{min(by_fleet)} to {max(by_fleet)} GPUs, one process, one thread",
    )


def _sample_large(folder: Path, small: bool) -> Iterator[Result]:
    """Store and roll up a seeded sample of the slices of a large fleet, two at a time."""
    part, share = (100, 0.00002) if small else (PART, SHARE)
    count = LARGE // part * LARGE_DAYS * 24
    rng = random.Random(18)
    numbers = rng.sample(range(count), max(3, -(-int(count * share * 100) // 100)))
    slices = [
        StageSlice(
            "bench",
            START + number // (LARGE // part) * HOUR,
            START + (number // (LARGE // part) + 1) * HOUR,
            number % (LARGE // part),
            LARGE // part,
        )
        for number in numbers
    ]
    runner = LocalRunner(2)
    costs = runner.map(partial(_measure_slice, folder), slices)
    runner.close()
    for name, times in (
        ("roll up", [cost.roll_up_s for cost in costs]),
        ("store the samples of", [cost.store_s for cost in costs]),
    ):
        mean = statistics.mean(times)
        error = 1.96 * statistics.stdev(times) / len(times) ** 0.5
        yield Result(
            name=f"{name} {LARGE} GPUs x {LARGE_DAYS} d, by {len(times)} of {count} slices",
            value=mean * count / 3600,
            unit="CPU-h",
            note=f"+- {error * count / 3600:.2g} CPU-h (95 %); {part} GPUs x 1 h each, "
            f"{mean:.1f} CPU-s",
        )


def _measure_slice(folder: Path, part: StageSlice) -> SampleCost:
    """Generate, store and roll up a slice in a home of its own, and drop it."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        settings = _load(Path(home), **{"warehouse.threads": 1})
        with Warehouse.open(settings, write=True, clock=_get_late) as warehouse:
            seed = round((part.start - START) / HOUR) * part.parts + part.part
            fleet = SyntheticFleet(LARGE // part.parts, seed)
            rows = build_scrapes(fleet, part.start, 60, 60.0)
            times = [time.process_time()]
            warehouse.ingest([Batch("sample", piece) for piece in rows])
            times.append(time.process_time())
            roll_up(warehouse)
            times.append(time.process_time())
    return SampleCost(times[1] - times[0], times[2] - times[1])


def _run_stage(home: Path, workers: int, stage: Callable[..., None]) -> StageRun:
    """Run a stage in this process as the driver, with workers whose imports are done."""
    with Warehouse.open(_load(home), write=True, clock=lambda: NOW) as warehouse:
        runner = MeasuredRunner(LocalRunner(workers))
        warm = partial(_start_worker, warehouse.settings, read_snapshot(warehouse))
        runner.map(warm, [StageSlice("", START, START)] * workers)
        runner.mapped_s = 0.0
        began = time.perf_counter()
        stage(warehouse, lambda _: runner)
        whole = time.perf_counter() - began
        runner.close()
        mapped = runner.mapped_s or whole  # a small stage is not sliced
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return StageRun(mapped, whole - mapped, runner.peak_bytes, peak)


def _roll_up(warehouse: Warehouse, runner: Callable[[Settings], MeasuredRunner]) -> None:
    roll_up_stage(warehouse, runner)


def _write(days: int, warehouse: Warehouse, runner: Callable[[Settings], MeasuredRunner]) -> None:
    write_ledger_stage(warehouse, get_window(days), runner)


def _judge_idle(
    days: int, warehouse: Warehouse, runner: Callable[[Settings], MeasuredRunner]
) -> None:
    task = partial(_judge, warehouse.settings, read_snapshot(warehouse), get_window(days))
    runner(warehouse.settings).map(task, range(IDLE_BUCKETS))


def _judge(settings: Settings, snapshot: int, window: Window, bucket: int) -> int:
    with open_snapshot(settings, snapshot) as warehouse:
        workloads = WorkloadBucket(bucket, IDLE_BUCKETS)
        return judge_window(
            warehouse, window, [window.end], settings.idle, over=True, bucket=workloads
        ).rows.height


def _measure_roll_up(home: Path) -> float:
    """Return the CPU-seconds of a roll-up in one process with one thread."""
    settings = _load(home, **{"warehouse.threads": 1})
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        began = time.process_time()
        roll_up(warehouse)
        return time.process_time() - began


def _measure_ledger(home: Path, days: int) -> float:
    """Return the CPU-seconds of signals and ledger in one process with one thread."""
    settings = _load(home, **{"warehouse.threads": 1})
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        began = time.process_time()
        write_ledger(warehouse, get_window(days))
        return time.process_time() - began


def _fill_samples(home: Path, gpus: int, hours: int) -> None:
    fleet = SyntheticFleet(gpus)
    with Warehouse.open(_load(home), write=True, clock=lambda: NOW) as warehouse:
        for hour in range(hours):
            rows = build_scrapes(fleet, START + timedelta(hours=hour), 60, 60.0)
            warehouse.ingest([Batch("sample", part) for part in rows])


def fill_month(home: Path, gpus: int, days: int) -> None:
    """Write rollups, inventory, prices and allocations of some days."""
    month.fill(home, gpus, days)
    with Warehouse.open(_load(home), write=True, clock=lambda: NOW) as warehouse:
        write_allocations(warehouse, get_window(days))


def get_window(days: int) -> Window:
    """Return the time that `fill_month` writes."""
    return Window(month.START, month.START + timedelta(days=days))


def _get_late() -> datetime:
    return datetime(2026, 12, 15, tzinfo=UTC)


def _load(home: Path, **flags: Any) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "bench", **flags}).settings


def _build_memory(name: str, peak_bytes: int) -> Result:
    return Result(name=name, value=peak_bytes / 2**30, unit="GiB", reach=TASK_GIB)


def _start_worker(settings: Settings, snapshot: int, _part: StageSlice) -> None:
    with open_snapshot(settings, snapshot):
        time.sleep(1)  # so that each process takes one


def _run_measured(task: Callable[[S], T], part: S) -> tuple[T, int]:
    result = task(part)
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run in a process of its own: its peak memory is its own."""
    # Not a pool's process: those may not have processes of their own.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, work, arguments))
    process.start()
    sender.close()
    result = receiver.recv()
    process.join()
    return result


def _send_result(sender: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(work(*arguments))
