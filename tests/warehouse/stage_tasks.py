"""Tasks and programs that tests of stages run in other processes."""

import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

from fallow.settings import Settings
from warehouse.lake import Warehouse
from warehouse.rollup import list_due
from warehouse.runners.local import LocalRunner
from warehouse.runners.slices import StageSlice
from warehouse.stages import rollup_stage

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


def fail_at_two(part: StageSlice) -> int:
    """Fail at the slice of 2 o'clock, each time."""
    if part.start.hour == 2:
        raise MemoryError("no memory")
    return part.start.hour


def drive_and_wait(home: str, place: str) -> None:
    """Run a roll-up as a stage and wait for a kill at a place: `mapped` or `registered`."""
    settings = Settings.model_validate_json(home)
    with Warehouse.open(settings, write=True) as warehouse:
        runner = LocalRunner(2)
        if place == "mapped":
            commit = rollup_stage.commit_rollup

            def wait(*arguments: object) -> None:
                sys.stdout.write("mapped\n")
                sys.stdout.flush()
                time.sleep(600)
                commit(*arguments)  # type: ignore[arg-type]

            rollup_stage.commit_rollup = wait  # type: ignore[assignment]
        else:
            clear = rollup_stage._clear_marks

            def wait_registered(*arguments: object) -> None:
                sys.stdout.write("registered\n")
                sys.stdout.flush()
                time.sleep(600)
                clear(*arguments)  # type: ignore[arg-type]

            rollup_stage._clear_marks = wait_registered  # type: ignore[assignment]
        assert list_due(warehouse)
        rollup_stage.roll_up_stage(warehouse, lambda _: runner)


if __name__ == "__main__":
    rollup_stage.SLICE_SAMPLES = 1_300
    drive_and_wait(sys.argv[1], sys.argv[2])
