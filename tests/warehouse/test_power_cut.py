"""A power cut in the middle of a step: all or nothing is stored, and the step can be done again.

strace records every call by which a step's process changes files. The home of before plus the first
K changes is the home after a cut at K; half of a write's bytes is a cut inside it. Two models:

- `everything`: all writes before the cut reached the disk, in their order.
- `only what was synced`: of each file the disk has what it had at its last fsync; names and folders
  are as the system had them (a journalling file system). What is acknowledged must be stored.

Not covered: a disk or file system that loses what it said is synced, and one that keeps some of the
unsynced writes and not others. SQLite's -shm is mapped memory, which is never rebuilt from: it is
left out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.warehouse.step_homes import FAILURES, StepHome
from tests.warehouse.write_steps import ACKNOWLEDGED, STEPS
from tests.warehouse.write_traces import (
    FileChange,
    FileImage,
    StepProcesses,
    list_changes,
    spread,
    start_processes,
)

MOST = 20
"""Cuts of one step in one model."""
LONGEST = 100_000_000


@pytest.fixture(scope="module")
def processes() -> Iterator[StepProcesses]:
    with start_processes() as started:
        yield started


def record(home: StepHome, processes: StepProcesses) -> list[FileChange]:
    home.reset()
    outcome, calls = processes.trace(home.name, home.home, bytes_=LONGEST)
    assert outcome.code == 0, outcome.words
    return list_changes(calls, home.home, ACKNOWLEDGED)


def list_cuts(changes: list[FileChange]) -> Iterator[tuple[int, float]]:
    """Yield numbers of whole changes before a cut, and the share of the next one that is stored."""
    for number, place in enumerate(spread(len(changes) + 1, MOST)):
        write = place < len(changes) and changes[place].kind == "write"
        yield place, 0.5 if write and number % 2 else 0.0


# test_lake_kill.py and test_tiers.py cover a process that is killed: what it wrote is written.
@pytest.mark.long
@pytest.mark.parametrize("only_synced", [False, True], ids=["everything", "only what was synced"])
@pytest.mark.parametrize("name", STEPS)
def test_a_power_cut_leaves_all_or_nothing(
    name: str,
    *,
    only_synced: bool,
    tmp_path: Path,
    processes: StepProcesses,
    record_property: Callable[[str, object], None],
) -> None:
    home = StepHome(tmp_path, name, processes)
    changes = record(home, processes)
    cuts = list(list_cuts(changes))
    failed = []
    for whole, share in cuts:
        home.reset()
        image = FileImage(home.home)
        for change in changes[:whole]:
            image.apply(change)
        if share:
            image.apply(changes[whole], share)
        image.write(only_synced=only_synced)
        done = any(change.kind == "acknowledge" for change in changes[:whole])
        try:
            home.check(done=done)
        except FAILURES as error:
            last = changes[max(0, whole - 1)]
            where = (
                f"after {whole} of {len(changes)} ({last.kind} {Path(last.path).name}) + {share}"
            )
            failed.append(f"{where}: {type(error).__name__} {error}"[:1500])
    record_property("changes", len(changes))
    record_property("cuts", len(cuts))
    assert failed == []
