"""An hour that is not over has the rates of its accounted part, everywhere alike."""

from datetime import timedelta
from pathlib import Path

import pytest

from dashboards.figures import fleet, queues, timeline
from dashboards.figures.query import Filters
from fallow.settings import Settings
from fallow.window import Window
from runtime.cli import run
from tests.field.site import BUSY, END, FREE, IDLE, list_lines, write_lines
from warehouse.coverage import sum_covered_hours
from warehouse.lake import Warehouse

IDLE_PODS = ("nb-0", "nb-1", "nb-2")


@pytest.mark.parametrize("hours", [5.25, 0.25], ids=["newest hour", "only hour"])
def test_idle_and_free_gpus_are_the_same_thirteen_minutes_into_an_hour(
    tmp_path: Path, hours: float
) -> None:
    held = [(IDLE, {"namespace": "ns", "pod": pod}) for pod in IDLE_PODS]
    gpus = [*held, (FREE, {}), (FREE, {}), (BUSY, {"namespace": "ns", "pod": "train"})]
    lines = [
        line
        for n, (v, labels) in enumerate(gpus)
        for line in list_lines(
            f"GPU-{n}", "a", gpu=n, values=v, since=0.75 + hours, until=0.75, **labels
        )
    ]
    path, home = write_lines(tmp_path / "m.txt", lines), tmp_path / "home"
    words = ("import", "exposition", path, "--interval", "5m", "--home", home)
    assert run([str(word) for word in words]) == 0
    window = Window(END - timedelta(days=7), END)
    with Warehouse.open(Settings(home=home)) as views:
        states = {row.state: row for row in fleet.read_states(views, END, Filters())}
        demand = queues.list_demand(views, window, Filters())[-1]
        subject = timeline.TimelineSubject(node="a")
        steps = timeline.read_states(views, window, Filters(), subject).to_pylist()
        covered = sum_covered_hours(views, window)
    newest = {row["state"]: row for row in steps if row["at"] == steps[-1]["at"]}
    rates = [states["idle"].usd_h, newest["idle"]["usd_h"]]
    assert [float(rate or 0) for rate in rates] == pytest.approx([3 * 6.88, 3 * 6.88])
    idle = [states["idle"].gpus, demand.idle_gpus, newest["idle"]["gpus"]]
    assert idle == pytest.approx([3, 3, 3])
    free = [states["free"].gpus, demand.free_gpus, newest["free"]["gpus"]]
    assert free == pytest.approx([2, 2, 2])
    assert demand.paid_gpus == pytest.approx(6)
    assert covered == pytest.approx(hours)
