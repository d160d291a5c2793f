"""The weeks before the demo's own: hours that add up, of fewer nodes and less work."""

from datetime import timedelta
from pathlib import Path

import pytest

from fallow.window import Window
from runtime.experiments import demo
from runtime.experiments.demo_history import WEEKS, write_older_weeks
from runtime.experiments.demo_process import load_demo_settings
from tests.demo_homes import copy_demo
from warehouse.audits import run_audits
from warehouse.lake import Warehouse

GPUS = 32
DAYS = 3
"""Friday to Sunday: of the days that are not left out none is a workday."""
OLDER = "SELECT * FROM ledger WHERE bucket < $start"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a demo's home to whose days weeks were added."""
    home = copy_demo(tmp_path_factory, tmp_path_factory.mktemp("o") / "home", days=DAYS, gpus=GPUS)
    window = Window(demo.END - timedelta(days=DAYS), demo.END)
    with Warehouse.open(load_demo_settings(home), write=True, clock=lambda: demo.END) as warehouse:
        assert write_older_weeks(warehouse, window) == []
    return home


def test_older_hours_add_up_and_wait_for_nothing(older: Path) -> None:
    with Warehouse.open(load_demo_settings(older), clock=lambda: demo.END) as warehouse:
        assert run_audits(warehouse) == []
        with warehouse.snapshot() as cursor:
            assert cursor.execute("SELECT count(*) FROM unposted").fetchall() == [(0,)]
        start = demo.END - timedelta(days=DAYS)
        rows = warehouse.query(OLDER, {"start": start}).to_pylist()
    weekends = {row["bucket"] for row in rows}
    assert min(weekends).replace(tzinfo=start.tzinfo) >= start - timedelta(weeks=WEEKS)
    assert len(weekends) == WEEKS * 2 * 24
    assert {row["state"] for row in rows}.isdisjoint({"lost", "unavailable"})


def test_fewer_workloads_ran_weeks_ago(older: Path) -> None:
    sql = (
        "SELECT bucket >= $start AS own, count(DISTINCT workload) AS workloads,"
        " sum(gpu_seconds) FILTER (state = 'free') / sum(gpu_seconds) AS free FROM ledger"
        " WHERE isodow(bucket) > 5 AND (bucket >= $start OR bucket < $oldest) GROUP BY own"
    )
    start = demo.END - timedelta(days=DAYS)
    parameters = {"start": start, "oldest": start - timedelta(weeks=WEEKS - 1)}
    with Warehouse.open(load_demo_settings(older), clock=lambda: demo.END) as warehouse:
        rows = warehouse.query(sql, parameters).to_pylist()
    before, after = sorted(rows, key=lambda row: row["own"])
    assert before["workloads"] < after["workloads"]
    assert before["free"] > after["free"]
