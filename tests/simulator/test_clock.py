"""Simulated time keeps its pace by an injected wall clock."""

import threading

import pytest

from fallow.errors import UsageError
from simulator.clock import SimulatedClock


def test_an_hour_passes_in_a_second_at_full_speed() -> None:
    wall = [100.0]
    pace = SimulatedClock(5_000.0, 3600, wall=lambda: wall[0])
    assert pace.now_s() == 5_000.0
    wall[0] += 1
    assert pace.now_s() == 8_600.0


def test_the_world_is_advanced_in_whole_steps_and_catches_up_at_once() -> None:
    wall = [0.0]
    wanted: list[float] = []
    stop = threading.Event()

    def advance(instant: float) -> None:
        wanted.append(instant)
        wall[0] += 2.0  # the world is slower than its pace
        if len(wanted) == 3:
            stop.set()

    pace = SimulatedClock(0.0, 100, wall=lambda: wall[0])
    wall[0] = 0.65
    pace.run(advance, stop, step_s=30)
    assert wanted == [60.0, 240.0, 450.0]


@pytest.mark.parametrize("speed", [0, 0.5, 3601])
def test_other_speeds_are_refused(speed: float) -> None:
    with pytest.raises(UsageError, match="3600"):
        SimulatedClock(0.0, speed)
