"""Decide when the service is ready: warehouse open, every job succeeded once, none late."""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from runtime.service.roles import ServiceJob

LATE = 3
"""Periods without a successful turn, plus the setting's grace, that make a job late."""


class Readiness:
    """The data behind /readyz. Threads may share it."""

    def __init__(self, grace: timedelta, clock: Callable[[], datetime]) -> None:
        self._grace, self._clock = grace, clock
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[timedelta, datetime | None]] | None = None
        self._reason = "the warehouse is not open yet"

    def expects(self, jobs: Iterable[ServiceJob]) -> None:
        """Record that the warehouse is open, and which jobs have to succeed."""
        with self._lock:
            self._jobs = {job.name: (job.every, None) for job in jobs}

    def waits(self, why: str) -> None:
        """Record why the warehouse is not open yet."""
        with self._lock:
            self._reason = f"the warehouse is not open yet: {why}"

    def went_well(self, job: str) -> None:
        """Record that a turn of a job just succeeded."""
        with self._lock:
            if self._jobs is not None and job in self._jobs:
                self._jobs[job] = (self._jobs[job][0], self._clock())

    def why_not(self) -> list[str]:
        """Return why the service is not ready, as sentences; none = it is ready."""
        with self._lock:
            jobs = None if self._jobs is None else dict(self._jobs)
            reason = self._reason
        if jobs is None:
            return [reason]
        now, reasons = self._clock(), []
        for name, (every, last) in jobs.items():
            if last is None:
                reasons.append(f"{name}: its first turn is still to go well")
            elif now - last > every * LATE + self._grace:
                reasons.append(f"{name}: no turn went well since {last:%Y-%m-%d %H:%M:%S} UTC")
        return reasons
