"""Seconds of the clock and of processors, of this process and of what it started and awaited."""

import os
import resource
import time
from pathlib import Path
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


def read_processors_of(process: int) -> float:
    """Return the processor seconds that a running process has used, as the kernel counts them."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_processors_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)
