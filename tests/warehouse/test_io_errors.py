"""Every write of a step fails once: the error is said in words, and all or nothing is stored.

strace lets a system call of the step's process fail (EIO, ENOSPC): `write`, `fsync`, `ftruncate`,
`rename`, `mkdir` and their like. The call alone fails, or it and all later ones of its name do, as
on a disk that is full or broken. The engine has one thread: its calls have numbers.

Where the sync of a commit in SQLite's log fails and all later ones do too, the engine removes the
commit's new data files although the log, read again later, has the commit: they are put back.
"""

import resource
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import cycle
from pathlib import Path

import pytest

from fallow.errors import WarehouseError
from fallow.settings import Settings
from tests.warehouse.step_homes import FAILURES, StepHome
from tests.warehouse.write_steps import LONG_AGO, STEPS, build_samples, read_state
from tests.warehouse.write_traces import (
    FAILABLE,
    StepProcesses,
    TracedCall,
    spread,
    start_processes,
)
from warehouse import tiers
from warehouse.lake import Warehouse

MOST = {"write": 10, "pwrite64": 10}
MOST_OTHERS = 3
"""Calls of one name that are made to fail."""
ATTEMPTS = 3
"""SQLite syncs its log once more or less in one of many runs: where a step has fewer calls than its
trace, the last call that it has is the next to fail."""
FAULTS = ("EIO:when={}", "ENOSPC:when={}+", "EIO:when={}+")


@pytest.fixture(scope="module")
def processes() -> Iterator[StepProcesses]:
    with start_processes() as started:
        yield started


def list_faults(calls: list[TracedCall], home: Path) -> Iterator[tuple[str, str, int]]:
    """Yield names of calls, each with an error and the number of the call that fails."""
    numbers: dict[str, list[int]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for call in calls:
        if call.name not in FAILABLE or call.thread != calls[0].thread:
            assert not (call.name in FAILABLE and call.path.startswith(f"{home}"))
            continue
        counts[call.name] += 1
        if call.path.startswith(f"{home}"):
            numbers[call.name].append(counts[call.name])
    for name, places in numbers.items():
        chosen = spread(len(places), MOST.get(name, MOST_OTHERS))
        for place, fault in zip(chosen, cycle(FAULTS), strict=False):
            yield name, fault, places[place]


# test_damage.py (a full disk), test_lake_kill.py and test_tiers.py cover kills at some moments,
# test_postgres.py a commit that the catalog has and the engine believes rolled back.
@pytest.mark.long
@pytest.mark.parametrize("name", STEPS)
def test_a_write_that_fails_leaves_all_or_nothing(
    name: str,
    tmp_path: Path,
    processes: StepProcesses,
    record_property: Callable[[str, object], None],
) -> None:
    home = StepHome(tmp_path, name, processes)
    home.reset()
    outcome, calls = processes.trace(name, home.home, names=FAILABLE)
    assert outcome.code == 0
    faults = list(list_faults(calls, home.home))
    failed = []
    for call, error, place in faults:
        number, fault = place, ""
        for _ in range(ATTEMPTS):
            home.reset()
            fault = error.format(number)
            outcome, calls = processes.trace(
                name, home.home, "-e", f"inject={call}:error={fault}", names=[call]
            )
            number = sum(other.thread == calls[0].thread for other in calls)
            if any(other.injected for other in calls):
                break
        where = f"{call} {fault}: {outcome}"
        try:
            assert any(other.injected for other in calls), "no call failed"
            assert outcome.code in {0, 1, 75}, "it did not end in order"
            assert "Traceback" not in outcome.words
            assert outcome.words or not outcome.code
            home.check(done=outcome.code == 0)
        except FAILURES as error:
            failed.append(f"{where}: {type(error).__name__} {error}"[:1500])
    record_property("calls that failed", len(faults))
    assert failed == []
    assert len(faults) > 10


@contextmanager
def no_space() -> Iterator[None]:
    """Let every write of this process to a file fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_process_that_could_not_write_its_lock_opens_at_the_next_attempt(
    settings: Settings,
) -> None:
    with Warehouse.open(settings, write=True):
        pass
    with no_space(), pytest.raises(WarehouseError, match="File too large"):
        Warehouse.open(settings, write=True)
    with Warehouse.open(settings, write=True):
        pass


def test_a_cold_folder_that_cannot_be_written_is_said_in_words(
    settings: Settings, now: datetime
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([build_samples(LONG_AGO)])
        (settings.home / "cold").mkdir()
        (settings.home / "cold" / "sample").write_text("a file where a folder should be")
        with pytest.raises(WarehouseError, match="cold/sample"):
            tiers.move_to_cold(warehouse, now)
        (settings.home / "cold" / "sample").unlink()
        assert tiers.move_to_cold(warehouse, now).files == 1


def test_a_catalog_whose_creation_was_cut_short_is_no_warehouse_yet(settings: Settings) -> None:
    settings.home.mkdir()
    (settings.home / "catalog.sqlite").touch()
    with pytest.raises(WarehouseError, match="there is no warehouse"):
        Warehouse.open(settings)
    with Warehouse.open(settings, write=True):
        pass


def test_options_that_a_crash_left_out_are_set_by_the_next_writer(settings: Settings) -> None:
    Warehouse.open(settings, write=True).close()
    before = read_state(settings.home)
    with closing(sqlite3.connect(settings.home / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("DELETE FROM ducklake_metadata WHERE scope = 'table'")
    assert read_state(settings.home) != before
    Warehouse.open(settings, write=True).close()
    assert read_state(settings.home) == before
