"""Seconds of the clock and of processors, of this process and of what it started and awaited."""

import resource
import time
from typing import NamedTuple


class Lap(NamedTuple):
    """Seconds by the clock, and of processors."""

    wall_s: float
    cpu_s: float


class Stopwatch:
    """The time since it was made."""

    def __init__(self) -> None:
        self._wall_s = time.perf_counter()
        self._cpu_s = _read_processors_s()

    def read(self) -> Lap:
        """Return the time since the start; processes that still run are not in it."""
        return Lap(time.perf_counter() - self._wall_s, _read_processors_s() - self._cpu_s)


def _read_processors_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)
