"""A stage whose worker or driver is killed stores nothing twice, and the next run is whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fallow.settings import Settings
from tests.copies import copied
from tests.warehouse import stage_tasks, test_stages
from tests.warehouse.stage_tasks import KillsFirst, audit_window, find_window, widen, write_window
from tests.warehouse.test_stages import (
    InProcess,
    assert_equal,
    get_now,
    open_settings,
    read_ledger,
    read_rolled,
)
from warehouse import maintenance
from warehouse.audit_results import audit_hours
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.stages.rollup_stage import roll_up_stage

sampled = test_stages.sampled
small_slices = test_stages.small_slices
whole = test_stages.whole
demo = test_stages.demo

Rows = dict[str, pl.DataFrame]


def read_audits(wh: Warehouse) -> Rows:
    rows = wh.query("SELECT * EXCLUDE (audited_at) FROM audit ORDER BY ALL")
    return {"audit": pl.DataFrame(rows)}


def kill_driver(settings: Settings, place: str) -> None:
    """Run a stage in another process, and kill it at one of the places."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.warehouse.stage_tasks", settings.model_dump_json(), place],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(stage_tasks.__file__).parents[2],
    ) as driver:
        assert driver.stdout
        assert driver.stdout.readline() == f"{place}\n"
        os.kill(driver.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "place",
    # The other place of the kill; "mapped" covers the same in `make test`.
    ["rollup mapped", pytest.param("rollup registered", marks=pytest.mark.long)],
)
def test_a_killed_driver_of_a_roll_up_leaves_nothing_and_the_next_run_is_whole(
    sampled: Path, tmp_path: Path, place: str, whole: tuple[Rows, object]
) -> None:
    settings = open_settings(copied(sampled, tmp_path / "home"))
    kill_driver(settings, place)
    with Warehouse.open(settings, write=True, clock=get_now) as wh:
        assert wh.query("FROM rollup_5m").num_rows == 0
        assert roll_up_stage(wh, InProcess()) > 0
        assert_equal(whole[0], read_rolled(wh))
        ahead = datetime.now(UTC)
        for days, orphans in ((1, False), (3, False), (11, True)):
            wh.clock = lambda days=days: ahead + timedelta(days=days)  # type: ignore[misc]
            assert (maintenance.compact_warehouse(wh).orphans > 0) is orphans
        assert_equal(whole[0], read_rolled(wh))


def test_the_slices_of_a_killed_worker_of_a_roll_up_are_stored_once(
    sampled: Path, tmp_path: Path, whole: tuple[Rows, object]
) -> None:
    killed = KillsFirst(tmp_path / "killed")
    settings = open_settings(copied(sampled, tmp_path / "home"))
    with Warehouse.open(settings, write=True, clock=get_now) as wh:
        assert roll_up_stage(wh, killed) > 0
        assert killed.marker.exists()
        assert_equal(whole[0], read_rolled(wh))
        assert roll_up_stage(wh, InProcess()) == 0
        assert_equal(whole[0], read_rolled(wh))


def write_whole(wh: Warehouse) -> object:
    return write_ledger(wh, find_window(wh))


def audit_whole(wh: Warehouse) -> object:
    return audit_hours(wh, widen(find_window(wh)))


STAGES = {
    "ledger": (write_whole, write_window, read_ledger),
    "audit": (audit_whole, audit_window, read_audits),
}
"""By stage: what one process does, what the stage does, and the rows of both."""


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Rows]]:
    """Return by stage what one process returns and stores."""
    home = copied(demo, tmp_path_factory.mktemp("expected") / "home")
    with Warehouse.open(open_settings(home), write=True) as wh:
        return {name: (do(wh), read(wh)) for name, (do, _, read) in STAGES.items()}


def run_stage(
    wh: Warehouse, stage: str, runner: Callable[[Settings], Any], expected: dict[str, Any]
) -> None:
    _, run, read = STAGES[stage]
    assert run(wh, runner) == expected[stage][0]
    assert_equal(expected[stage][1], read(wh))


def test_the_slices_of_a_killed_worker_are_stored_once(
    demo: Path, tmp_path: Path, stage: str, expected: dict[str, Any]
) -> None:
    runner = KillsFirst(tmp_path / "killed")
    with Warehouse.open(open_settings(copied(demo, tmp_path / "home")), write=True) as wh:
        run_stage(wh, stage, runner, expected)
        assert runner.marker.exists()
        run_stage(wh, stage, InProcess(), expected)


@pytest.mark.long  # the roll-up's driver is killed in `make test`
@pytest.mark.parametrize(
    "place", ["ledger mapped", "ledger registered", "audit mapped", "audit stored"]
)
def test_a_killed_driver_stores_nothing_and_the_next_run_is_whole(
    demo: Path, tmp_path: Path, place: str, expected: dict[str, Any]
) -> None:
    stage = place.split(maxsplit=1)[0]
    settings = open_settings(copied(demo, tmp_path / "home"))
    with Warehouse.open(settings) as wh:
        before = STAGES[stage][2](wh)
    kill_driver(settings, place)
    with Warehouse.open(settings, write=True) as wh:
        if place != "ledger registered":  # the signals are a stage of their own
            for table, rows in before.items():
                assert rows.equals(STAGES[stage][2](wh)[table])
        run_stage(wh, stage, InProcess(), expected)
