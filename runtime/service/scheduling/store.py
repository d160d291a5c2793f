"""Store schedules as APScheduler's job store, in the file of deliveries.

APScheduler's own SQL store moves a job to its next time whether or not its run had a result, and
stores it as a pickle: a kill in between loses a report. Here due deliveries are stored before a job
starts. A schedule that is not in the settings any more is not in the store either.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from apscheduler.jobstores.memory import MemoryJobStore

from fallow.settings.reports import Schedule
from runtime.service.delivery.outbox import Outbox
from runtime.service.scheduling.clock import WallClockTrigger, find_latest_due


class Timetable(MemoryJobStore):  # type: ignore[misc]  # APScheduler has no types
    """The jobs of schedules, with each next time on disk."""

    def __init__(self, outbox: Outbox, schedules: list[Schedule]) -> None:
        super().__init__()
        self._outbox = outbox
        self._schedules = {schedule.name: schedule for schedule in schedules}
        outbox.keep_only(self._schedules)

    def add_job(self, job: Any) -> None:
        """Add a schedule: a stored next time counts, even if it is long past."""
        schedule = self._schedules[job.id]
        stored_next = self._outbox.next(schedule)
        if stored_next is None:
            self._outbox.expect(schedule, job.next_run_time)
        else:
            job._modify(next_run_time=stored_next)  # noqa: SLF001  (APScheduler's stores do so too)
        super().add_job(job)

    def get_due_jobs(self, now: datetime) -> list[Any]:
        """Return the due jobs, after their deliveries are stored; missed times are due once."""
        jobs: list[Any] = super().get_due_jobs(now)
        for job in jobs:
            schedule = self._schedules[job.id]
            due = find_latest_due(schedule, job.next_run_time, now)
            self._outbox.owe(schedule.name, due, schedule.to, now)
            job._modify(next_run_time=due)  # noqa: SLF001
        return jobs

    def update_job(self, job: Any) -> None:
        """Store the next time; the deliveries of the time before are stored by now."""
        self._outbox.expect(self._schedules[job.id], job.next_run_time)
        super().update_job(job)

    def arrange(self, scheduler: Any, run: Callable[..., object], args: Any, executor: str) -> None:
        """Make a scheduler run `run(*args)` whenever one of the schedules is due."""
        scheduler.add_jobstore(self, "reports")
        for schedule in self._schedules.values():
            scheduler.add_job(
                run,
                WallClockTrigger(schedule),
                args=args,
                id=schedule.name,
                jobstore="reports",
                executor=executor,
            )
