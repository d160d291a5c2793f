"""The schedule of a service whose wall clock is set: its jobs go on in their periods."""

import threading
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from fallow.system.clock_steps import ClockSteps, read_ticks
from runtime.service import schedule
from runtime.service.metrics import SelfMetrics
from runtime.service.readiness import Readiness
from runtime.service.roles import PARTS, ServiceJob, ServiceRole
from runtime.service.schedule import ServiceThreads, run_jobs
from runtime.service.tracing import trace_nothing

WAIT_S = 60.0
"""Only a schedule that stands still waits so long."""
TURNS = 5
HOUR = timedelta(hours=1)


class SetClock(datetime):
    """A wall clock that is set while it runs."""

    step = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + cls.step


@pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "forward"])
def test_jobs_go_on_in_their_period_after_the_clock_was_set(
    step: timedelta, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SetClock, "step", timedelta(0))
    monkeypatch.setattr("apscheduler.schedulers.base.datetime", SetClock)
    monkeypatch.setattr(schedule, "get_utc_now", lambda: SetClock.now(UTC))
    monkeypatch.setattr(schedule, "CLOCK_CHECK_S", 0.05)
    stop, turns = threading.Event(), 0
    steps = ClockSteps(read_ticks)
    actor_clock = steps.watch(schedule.get_utc_now)

    def count() -> None:
        nonlocal turns
        turns += 1
        actor_clock()
        if turns == TURNS:
            SetClock.step = step
        if turns == 3 * TURNS:
            stop.set()

    limit = threading.Timer(WAIT_S, stop.set)
    limit.start()
    run_jobs(
        [ServiceJob("count", timedelta(seconds=0.1), count, ServiceRole.actor)],
        stop,
        SelfMetrics(PARTS),
        Readiness(timedelta(0), schedule.get_utc_now),
        trace_nothing,
        threads=ServiceThreads(),
        grace_s=WAIT_S,
        clock_steps=steps,
    )
    limit.cancel()
    assert turns >= 3 * TURNS
    assert len(steps.steps) == 1, "the schedule and the actor share one watcher"
    assert caplog.text.count("the clock of this machine was set") == 1
