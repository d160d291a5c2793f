"""Tasks and programs that tests of stages run in other processes."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fallow.settings import Settings
from fallow.window import Window
from warehouse import audit_results, totals
from warehouse.audits import AuditFailure
from warehouse.lake import Warehouse
from warehouse.runners.local import LocalRunner
from warehouse.runners.slices import StageSlice
from warehouse.stages import audit_stage, ledger_stage, rollup_stage

S = TypeVar("S")
T = TypeVar("T")
DAY = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
SLICES = [StageSlice("c", DAY.replace(hour=n), DAY.replace(hour=n + 1)) for n in range(4)]


def count_hour(part: StageSlice) -> int:
    """Return the slice's hour."""
    return part.start.hour


def count_hour_elsewhere(part: StageSlice) -> tuple[int, int]:
    """Return the slice's hour and the process that ran it."""
    return part.start.hour, os.getpid()


class DiesOnce:
    """A task whose process is killed when it first runs the slice of 2 o'clock."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self, part: StageSlice) -> int:
        if part.start.hour == 2 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return part.start.hour


class DiesWithAnother:
    """A task whose processes are killed when two of them first run 1 and 2 o'clock at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, part: StageSlice) -> int:
        hour = part.start.hour
        if hour in {1, 2} and not (self.folder / f"{hour}").exists():
            (self.folder / f"{hour}").touch()
            until = time.monotonic() + 30
            while not (self.folder / f"{3 - hour}").exists() and time.monotonic() < until:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return hour


def fail_at_two(part: StageSlice) -> int:
    """Fail at the slice of 2 o'clock, each time."""
    if part.start.hour == 2:
        raise MemoryError("no memory")
    return part.start.hour


class KillsFirst:
    """A runner of two processes; the one that runs the first slice is killed once."""

    concurrency = 2

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        runner = LocalRunner(2)
        try:
            return runner.map(partial(die_once, self.marker, task, slices[0]), slices)
        finally:
            runner.close()

    def close(self) -> None:
        pass

    def __call__(self, _: Settings) -> "KillsFirst":
        return self


def die_once(marker: Path, task: Callable[[S], T], first: S, part: S) -> T:
    """Run a task; kill the process that does the first slice for the first time."""
    if part == first and not marker.exists():
        task(part)
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task(part)


PLACES = {
    "rollup mapped": (rollup_stage, "commit_rollup"),
    "rollup registered": (rollup_stage, "_clear_marks"),
    "ledger mapped": (ledger_stage, "commit_rows"),
    "ledger registered": (totals, "_write_totals"),
    "audit mapped": (audit_stage, "refuse_changed"),
    "audit stored": (audit_results, "store_results"),
}
"""Where a driver is killed: between its workers' return and its commit, and in its transaction."""


def drive_and_wait(home: str, place: str) -> None:
    """Run a stage with two processes, and wait for a kill at one of `PLACES`."""
    module, name = PLACES[place]
    work = getattr(module, name)

    def wait(*arguments: object, **options: object) -> None:
        if not place.endswith("mapped"):
            work(*arguments, **options)
        sys.stdout.write(f"{place}\n")
        sys.stdout.flush()
        time.sleep(600)

    setattr(module, name, wait)
    runner = LocalRunner(2)
    with Warehouse.open(Settings.model_validate_json(home), write=True) as warehouse:
        if place.startswith("rollup"):
            rollup_stage.roll_up_stage(warehouse, lambda _: runner)
        elif place.startswith("ledger"):
            write_window(warehouse, lambda _: runner)
        else:
            audit_window(warehouse, lambda _: runner)


def find_window(wh: Warehouse) -> Window:
    """Return the time that the ledger has."""
    row = wh.query("SELECT min(bucket) AS a, max(bucket) AS b FROM ledger").to_pylist()[0]
    start = row["a"].replace(tzinfo=UTC)
    return Window(start, row["b"].replace(tzinfo=UTC) + timedelta(hours=1))


def write_window(wh: Warehouse, runner: Callable[[Settings], Any]) -> int:
    """Write the whole ledger as a stage, seven hours at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_stage, "compute_stride", lambda _: timedelta(hours=7))
        return ledger_stage.write_ledger_stage(wh, find_window(wh), runner)


def audit_window(wh: Warehouse, runner: Callable[[Settings], Any]) -> list[AuditFailure]:
    """Audit the whole ledger as a stage, and some hours before its midnight."""
    return audit_stage.audit_stage(wh, widen(find_window(wh)), runner)


def widen(window: Window) -> Window:
    """Return a window with the hours before its first midnight."""
    return Window(window.start - timedelta(hours=3), window.end)


if __name__ == "__main__":
    rollup_stage.SLICE_SAMPLES = 1_300
    drive_and_wait(sys.argv[1], sys.argv[2])
