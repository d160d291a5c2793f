"""Reports on a machine whose clock is set by an hour: each once, and none lost."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.notices.apprise_delivery import DeliveryAttempt
from fallow.settings import Settings
from fallow.settings.reports import Schedule
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from runtime.service.scheduling.clock import find_next_due
from runtime.service.scheduling.store import Timetable
from tests.delivery.receivers import Clock, configured
from tests.delivery.test_exactly_once import World, deliveries

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
DAILY = Schedule(name="daily", cron="0 9 * * *", to=["mail"], audience="finance")


class Job:
    """A job as APScheduler hands it to its store."""

    def __init__(self, at: datetime) -> None:
        self.id, self.next_run_time = DAILY.name, at

    def _modify(self, **new: Any) -> None:
        self.next_run_time = new["next_run_time"]


def live(book: Outbox, times: list[datetime]) -> list[datetime]:
    """Let the scheduler look at its clock at these times; return what became due, in order."""
    timetable, job = Timetable(book, [DAILY]), Job(NINE)
    timetable.add_job(job)
    due = []
    for now in times:
        if timetable.get_due_jobs(now):
            due.append(job.next_run_time)
            following = find_next_due(DAILY, job.next_run_time)
            assert following is not None
            job.next_run_time = following
            timetable.update_job(job)
    return due


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([NINE, NINE + HOUR / 60, NINE + 3 * HOUR], id="no step"),
        pytest.param([NINE, NINE - HOUR + HOUR / 60, NINE, NINE + HOUR / 60], id="back after it"),
        pytest.param([NINE - HOUR / 60, NINE - HOUR, NINE, NINE + HOUR], id="back before it"),
        pytest.param([NINE - HOUR / 60, NINE + HOUR, NINE + 2 * HOUR], id="forward over it"),
        pytest.param([NINE + HOUR, NINE - HOUR / 2, NINE, NINE + HOUR], id="there and back"),
    ],
)
def test_a_report_is_due_once_however_the_clock_is_set(
    tmp_path: Path, times: list[datetime]
) -> None:
    with Outbox.open(tmp_path / "book.sqlite") as book:
        assert live(book, times) == [NINE]
        assert len(book.unsettled("waiting")) == 1
        assert book.next(DAILY) == NINE + DAY


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return configured(tmp_path, {"mail": "json://127.0.0.1:1"})


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_delivery_that_is_tried_again_goes_out_once_after_a_step(
    settings: Settings, clock: Clock, step: timedelta
) -> None:
    world = World(settings)
    world.answers["mail"] = [DeliveryAttempt(False, "busy", again=True)]
    (schedule,) = settings.reports.schedules
    backlog: list[float] = []
    with Outbox.open(get_outbox_path(settings)) as book:
        book.owe(schedule.name, clock(), schedule.to, clock())
        sender = deliveries(
            settings, book, clock, world, on_backlog=lambda _waiting, age: backlog.append(age)
        )
        sender.turn()
        assert sum(world.got.values()) == 0
        clock.on(step)
        for _ in range(13):
            clock.on(timedelta(minutes=10))
            sender.turn()
        assert set(world.got.values()) == {1}
        assert [row.state for row in book.latest()] == ["sent"]
    assert min(backlog) >= 0
