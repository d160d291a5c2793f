"""Correct stored timestamps for steps of the wall clock.

Instants are of the wall clock: other hosts and people read them. A wall clock can be set while a
process runs, and then the difference of two instants is no duration. `ClockSteps` compares the wall
clock with a clock that is never set and so knows each step. A step while no process runs cannot be
seen.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

log = logging.getLogger("fallow.clock")

Ticks = Callable[[], float]
TOLERANCE = timedelta(seconds=5)
"""A smaller difference is not yet a step: the two clocks are not read at the same instant."""


class ClockStep(msgspec.Struct, frozen=True):
    """One step: what the wall clock would show without it, and what it shows."""

    before: datetime
    after: datetime


def read_ticks() -> float:
    """Return seconds of a clock that is never set and counts while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ClockSteps:
    """The steps of a wall clock that were observed, each once. Without `ticks` none are.

    Threads may share it: whoever reads the clock first after a step observes it for all.
    """

    def __init__(self, ticks: Ticks | None = None) -> None:
        self._ticks = ticks
        self._lock = threading.Lock()
        self._last: tuple[datetime, float] | None = None
        self.steps: list[ClockStep] = []

    def watch(self, clock: Callable[[], datetime]) -> Callable[[], datetime]:
        """Return the same clock, observed each time that it is read."""

        def now() -> datetime:
            with self._lock:  # both clocks at the same instant, in every thread
                timestamp = clock()
                self._observe(timestamp)
            return timestamp

        return now

    def _observe(self, now: datetime) -> None:
        if self._ticks is None:
            return
        ticks = self._ticks()
        if self._last is None:
            self._last = (now, ticks)
            return
        expected = self._last[0] + timedelta(seconds=ticks - self._last[1])
        if abs(now - expected) >= TOLERANCE:
            self.steps.append(ClockStep(expected, now))
            self._last = (now, ticks)
            step_s = (now - expected).total_seconds()
            log.warning("the clock of this machine was set", extra={"seconds": round(step_s)})

    def shift(self, timestamp: datetime) -> datetime:
        """Return a past timestamp as the clock of today would have shown it, never an earlier one.

        A clock that was set forward makes the past look older than it is: a grace period would end
        early. A clock that was set back makes it look younger, which only waits longer.
        """
        return timestamp + max(self._sum(timestamp), timedelta(0))

    def elapsed(self, since: datetime, now: datetime) -> timedelta:
        """Return the time since a timestamp of this machine, without the steps after it."""
        return now - since - self._sum(since)

    def _sum(self, timestamp: datetime) -> timedelta:
        """Return the sum of the steps after a timestamp, in doubt a larger sum.

        A clock that was set back shows some times twice: a timestamp is from before the step only
        if the clock never showed it since.
        """
        total, lowest = timedelta(0), datetime.max.replace(tzinfo=timestamp.tzinfo)
        for step in reversed(self.steps):
            lowest = min(lowest, step.after - TOLERANCE)
            is_forward = step.after > step.before
            if timestamp < (step.after if is_forward else lowest):
                total += step.after - step.before
        return total
