"""Run jobs on their schedules in four lanes of threads, until stopped.

One thread writes: it runs the writing jobs, and it stores the rows of sources between two of them.
A late job runs once, not as often as it was missed.
"""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.base import BaseExecutor
from apscheduler.executors.base import run_job as run_scheduled
from apscheduler.schedulers.background import BackgroundScheduler

from fallow.system.clock_steps import ClockSteps, read_ticks
from fallow.system.daemon_threads import DaemonThreads, ThreadsClosedError
from runtime.service.jobs import FIRST_TURN_S
from runtime.service.metrics import SelfMetrics
from runtime.service.readiness import Readiness
from runtime.service.roles import Lane, ServiceJob
from runtime.service.scheduling.store import Timetable
from runtime.service.sources import MOST_SOURCES, JobInterrupted
from runtime.service.tracing import SpanFactory, trace_nothing

log = logging.getLogger("fallow.service")

SOURCE_JOBS = 3
"""Jobs that wait for sources (inventory, watch, collect): none of them waits for another."""
CLOCK_CHECK_S = 1.0
"""How often the wall clock is compared with a clock that is never set."""
READS_END_S = 3.0
"""How long a stop waits for reads of sources: their rows can be read again, or are one scrape."""


def get_utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class ServiceThreads:
    """The threads of a service; none of them keeps the process alive."""

    def __init__(self) -> None:
        self.lanes = {
            Lane.write: DaemonThreads("write", 1),
            Lane.source: DaemonThreads("source-jobs", SOURCE_JOBS),
            Lane.act: DaemonThreads("act", 1),
            Lane.report: DaemonThreads("report", 1),
        }
        self.readers = DaemonThreads("source", MOST_SOURCES)

    @property
    def writer(self) -> DaemonThreads:
        """Return the one thread that writes to the warehouse."""
        return self.lanes[Lane.write]

    def close(self, grace_s: float) -> list[str]:
        """Let running tasks end and take no more; return the threads that did not end in time.

        Rows that wait are stored. Sources get `READS_END_S`, everything else `grace_s`.
        """
        now = time.monotonic()
        reads_end, end = now + min(READS_END_S, grace_s), now + grace_s
        ends = {
            "a job that waits for sources": self.lanes[Lane.source].close(reads_end),
            "a source": self.readers.close(reads_end),
            # Before the writing thread: a turn that acts ends with rows for it.
            "a job that acts": self.lanes[Lane.act].close(end),
            "a job that writes": self.writer.close(end),
            "a report": self.lanes[Lane.report].close(end),
        }
        return [name for name, ended in ends.items() if not ended]


class LaneExecutor(BaseExecutor):  # type: ignore[misc]  # APScheduler has no types
    """Runs the scheduler's jobs in threads that do not keep the process alive."""

    def __init__(self, threads: DaemonThreads) -> None:
        super().__init__()
        self._threads = threads

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        self._threads.submit(partial(self._run, job, run_times))

    def _run(self, job: Any, run_times: Sequence[datetime]) -> None:
        events = run_scheduled(job, job._jobstore_alias, run_times, self._logger.name)  # noqa: SLF001  (APScheduler's executors do so too)
        self._run_job_success(job.id, events)


def run_jobs(
    jobs: Sequence[ServiceJob],
    stop: threading.Event,
    metrics: SelfMetrics,
    ready: Readiness,
    span: SpanFactory,
    *,
    threads: ServiceThreads,
    grace_s: float,
    timetable: Timetable | None = None,
    first_turn_s: float = FIRST_TURN_S,
    clock_steps: ClockSteps | None = None,
) -> list[str]:
    """Run jobs until `stop` is set; return what did not end within `grace_s` seconds after it.

    Their first turns are in the order of `jobs`: sources first, each at most `first_turn_s`.
    `clock_steps`: the steps of the wall clock that the actor heeds too; each is logged once.
    """
    scheduler: Any = BackgroundScheduler(
        timezone=UTC,
        executors={
            str(lane): LaneExecutor(lane_threads) for lane, lane_threads in threads.lanes.items()
        },
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    # Its own words name functions of ours, and its level is a warning: one line each is enough.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    scheduler.add_listener(_report_late_turn, EVENT_JOB_MAX_INSTANCES)
    scheduler.start()
    try:
        for stage in _order_first_turns(jobs):
            first_turns = [threading.Event() for _ in stage]
            now = get_utc_now()
            for order, (job, ended) in enumerate(zip(stage, first_turns, strict=True)):
                arguments = (job, stop, metrics, ready, span)
                scheduler.add_job(
                    run_job,
                    "interval",
                    args=arguments,
                    kwargs={"ended": ended},
                    seconds=job.every.total_seconds(),
                    next_run_time=now + timedelta(milliseconds=order),
                    id=job.name,
                    executor=str(job.lane),
                )
                if job.lane is Lane.report and timetable is not None:
                    timetable.arrange(scheduler, run_job, arguments, str(job.lane))
            if stage[0].lane is Lane.source:
                _wait_for_all(first_turns, stop, first_turn_s)
            if stop.is_set():
                break
        _follow_clock(scheduler, jobs, stop, clock_steps or ClockSteps(read_ticks))
    finally:
        log.info("stopping after the running job")
        scheduler.shutdown(wait=False)
        left = threads.close(grace_s)
    return left


def _report_late_turn(event: Any) -> None:
    # This job runs every other second: a first hour of log would be full of it.
    level = logging.DEBUG if event.job_id == "imports" else logging.INFO
    log.log(level, "a turn was left out: the one before still runs", extra={"job": event.job_id})


def _follow_clock(
    scheduler: Any, jobs: Sequence[ServiceJob], stop: threading.Event, clock_steps: ClockSteps
) -> None:
    """Wait for `stop`; where the wall clock is set meanwhile, let every job's period begin anew.

    The scheduler waits for instants of the wall clock: after a step back by an hour no job would
    run for an hour. Reports are due at such instants, so that they only have to be read again.
    """
    now, count = clock_steps.watch(get_utc_now), len(clock_steps.steps)
    while not stop.wait(CLOCK_CHECK_S):
        timestamp = now()
        if len(clock_steps.steps) == count:
            continue
        count = len(clock_steps.steps)
        for order, job in enumerate(jobs):
            first = timestamp + timedelta(milliseconds=order)
            scheduler.modify_job(job.name, next_run_time=first)
        scheduler.wakeup()


def _order_first_turns(jobs: Sequence[ServiceJob]) -> Iterable[list[ServiceJob]]:
    """Yield jobs that begin together: the inventory, other sources, the jobs that need their rows.

    Samples need the inventory: it knows which node an address belongs to.
    """

    def stage(job: ServiceJob) -> tuple[bool, bool]:
        return job.lane is not Lane.source, job.name != "inventory"

    for _, group in groupby(sorted(jobs, key=stage), stage):
        yield list(group)


def _wait_for_all(
    events: Sequence[threading.Event], stop: threading.Event, within_s: float
) -> None:
    end = time.monotonic() + within_s
    while not stop.is_set() and time.monotonic() < end:
        if all(event.is_set() for event in events):
            return
        stop.wait(0.02)


def run_job(
    job: ServiceJob,
    stop: threading.Event,
    metrics: SelfMetrics,
    ready: Readiness,
    span: SpanFactory = trace_nothing,
    *,
    ended: threading.Event | None = None,
) -> None:
    """Run a job; an exception is logged and counted, and the next turn tries again."""
    if stop.is_set():  # it waited for a running job when the stop came
        return
    began = time.monotonic()
    try:
        with span(job.name):
            job.run()
    except (JobInterrupted, ThreadsClosedError):
        return
    except Exception as error:  # noqa: BLE001  (a service outlives one failed turn)
        metrics.record_turn(job.name, time.monotonic() - began, get_utc_now(), well=False)
        log.error("job failed, will try again", extra={"job": job.name, "error": str(error)})  # noqa: TRY400
        return
    finally:
        if ended is not None:
            ended.set()
    metrics.record_turn(job.name, time.monotonic() - began, get_utc_now(), well=True)
    ready.went_well(job.name)
