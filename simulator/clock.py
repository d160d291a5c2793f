"""Compute simulated time, up to 3,600 times as fast as wall-clock time."""

import threading
import time
from collections.abc import Callable

from fallow.errors import UsageError

FASTEST = 3600.0


class SimulatedClock:
    """Returns the simulated time: `start_s` plus the elapsed wall-clock time times `speed`.

    Raises:
        UsageError: the speed is not within 1 and 3,600.
    """

    def __init__(
        self, start_s: float, speed: float, *, wall: Callable[[], float] = time.monotonic
    ) -> None:
        if not 1 <= speed <= FASTEST:
            raise UsageError(
                f"simulated time cannot run {speed:g} times as fast",
                hint=f"--speed is from 1 to {FASTEST:g}: at 3600 an hour passes in a second",
            )
        self.start_s = start_s
        self.speed = speed
        self._wall = wall
        self._began = wall()

    def now_s(self) -> float:
        """Return simulated seconds since the epoch."""
        return self.start_s + (self._wall() - self._began) * self.speed

    def run(self, advance: Callable[[float], object], stop: threading.Event, step_s: float) -> None:
        """Call `advance(time)` after each step of simulated time, until stopped.

        If the world is slower than its speed, it is advanced to the time that it should have
        reached: it is never behind by more than one of its own steps.
        """
        reached = self.start_s
        while not stop.is_set():
            due = reached + (self.now_s() - reached) // step_s * step_s
            if due > reached:
                advance(due)
                reached = due
            else:
                stop.wait(min(1.0, max(0.0, (reached + step_s - self.now_s()) / self.speed)))
