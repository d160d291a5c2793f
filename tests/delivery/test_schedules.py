"""When reports are due: by the wall's clock, missed ones once, kept over restarts."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from fallow.settings.reports import Schedule
from runtime.service.delivery.outbox import Outbox
from runtime.service.scheduling.clock import WallClockTrigger, find_latest_due, find_next_due
from runtime.service.scheduling.store import Timetable

WAIT_S = 60


def schedule(cron: str = "0 7 * * *", zone: str = "UTC", name: str = "weekly") -> Schedule:
    return Schedule(name=name, audience="finance", cron=cron, time_zone=zone, to=["mail", "hook"])


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def dues(one: Schedule, since: str, count: int) -> list[str]:
    found, at = [], moment(since)
    for _ in range(count):
        due = find_next_due(one, at)
        assert due is not None
        found.append(f"{due:%m-%d %H:%M}")
        at = due
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "since", "expected"),
    [
        # Berlin goes from UTC+1 to UTC+2 on 29 March 2026 and back on 25 October.
        ("0 7 * * *", "Europe/Berlin", "2026-03-27T12:00", ["03-28 06:00", "03-29 05:00"]),
        ("0 7 * * *", "Europe/Berlin", "2026-10-23T12:00", ["10-24 05:00", "10-25 06:00"]),
        # 02:30 is skipped: it comes when the clock has jumped, at 03:00.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29 01:00", "03-30 00:30"]),
        # 02:30 is shown twice: it comes the first time only.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25 00:30", "10-26 01:30"]),
        ("0 9 * * mon-fri", "UTC", "2026-11-20T09:00", ["11-23 09:00", "11-24 09:00"]),
        ("@monthly", "America/New_York", "2026-11-20T00:00", ["12-01 05:00", "01-01 05:00"]),
    ],
)
def test_the_walls_clock_says_when(cron: str, zone: str, since: str, expected: list[str]) -> None:
    one = schedule(cron, zone)
    assert dues(one, since, 2) == expected


def test_the_trigger_is_due_now_where_now_is_the_moment() -> None:
    now = moment("2026-11-20T07:00")
    trigger = WallClockTrigger(schedule())
    assert trigger.get_next_fire_time(None, now) == now
    assert trigger.get_next_fire_time(now, now) == now + timedelta(days=1)


@pytest.mark.parametrize("cron", ["* * * * *", "0 7 * * *", "@monthly", "@yearly"])
def test_of_many_that_were_missed_the_latest_is_due(cron: str) -> None:
    one, first = schedule(cron), moment("2025-01-01T00:00")
    now = moment("2026-11-20T07:00") + timedelta(seconds=30)
    due = find_latest_due(one, first, now)
    following = find_next_due(one, due)
    assert due <= now
    assert following is not None
    assert following > now


class Running:
    """A scheduler of APScheduler over a journal, as the service has it."""

    def __init__(self, path: Path, schedules: list[Schedule]) -> None:
        self.ran = threading.Event()
        self.book = Outbox.open(path)
        self.scheduler: Any = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(1), "apart": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        Timetable(self.book, schedules).arrange(self.scheduler, self.ran.set, (), "apart")

    def __enter__(self) -> Self:
        self.scheduler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.shutdown(wait=True)
        self.book.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deliveries.sqlite"


def test_what_was_missed_while_nobody_ran_is_due_once_and_then_on_time(path: Path) -> None:
    one = schedule("*/5 * * * *")
    now = datetime.now(UTC)
    missed = find_next_due(one, now - timedelta(days=3))
    assert missed is not None
    with Outbox.open(path) as book:
        book.expect(one, missed)
    for _ in range(2):
        with Running(path, [one]) as running:
            if running.book.unsettled("waiting") == []:
                assert running.ran.wait(WAIT_S)
    with Outbox.open(path) as book:
        rows = book.latest()
        kept = book.next(one)
    assert {d.destination for d in rows} == {"mail", "hook"}
    assert len({d.due for d in rows}) == 1
    assert rows[0].due > now - timedelta(minutes=5, seconds=1)
    assert kept is not None
    assert kept > now


def test_a_schedule_is_first_due_after_it_was_set_and_again_after_it_was_changed(
    path: Path,
) -> None:
    for one in (schedule("@yearly"), schedule("@monthly")):
        with Running(path, [one]) as running:
            kept = running.book.next(one)
            assert kept == find_next_due(one, datetime.now(UTC))
            assert running.book.latest() == []


def test_a_schedule_that_is_not_in_the_settings_any_more_is_forgotten(path: Path) -> None:
    one, two = schedule("@yearly", name="one"), schedule("@yearly", name="two")
    with Running(path, [one, two]) as running:
        assert running.scheduler.get_job("two") is not None
    with Running(path, [one]) as running:
        assert running.scheduler.get_job("one") is not None
        assert running.scheduler.get_job("two") is None
        assert running.book.next(two) is None


def test_a_kill_between_being_due_and_the_next_moment_loses_nothing(
    path: Path,
) -> None:
    one = schedule("*/5 * * * *")
    missed = find_next_due(one, datetime.now(UTC) - timedelta(hours=1))
    assert missed is not None
    with Outbox.open(path) as book:
        book.expect(one, missed)
        timetable = Timetable(book, [one])
        job: Any = type("Job", (), {})()
        job.id, job.next_run_time = one.name, missed
        job._modify = lambda **new: setattr(job, "next_run_time", new["next_run_time"])
        timetable.add_job(job)
        now = datetime.now(UTC)
        assert timetable.get_due_jobs(now) == [job]  # and killed here: update_job never comes
        assert book.next(one) == missed
        assert len(book.unsettled("waiting")) == 2
        again = Timetable(book, [one])
        again.add_job(job)
        assert again.get_due_jobs(now) == [job]
        assert len(book.latest()) == 2
