"""Uniform Progress: no deadline is missed, and spot is used where it is there."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.spot.progress import draw_capacity, run_uniform_progress

STEP = 0.5


@given(
    st.integers(0, 2**32 - 1),
    st.floats(0, 1),
    st.floats(1, 38),
    st.floats(0, 4),
)
def test_no_capacity_that_comes_and_goes_makes_it_late(
    seed: int, part: float, work: float, switch: float
) -> None:
    if work + 2 * switch + 2 * STEP > 40:
        return
    there = np.random.default_rng(seed).random((64, 80)) < part
    ran = run_uniform_progress(there, work_h=work, deadline_h=40.0, switch_h=switch, step_h=STEP)
    assert ran.finished.all()
    used = ran.spot + ran.demand
    assert (used >= work - 1e-6).all()
    assert (used + ran.idle <= 40 + 1e-6).all()
    never_late = ran.usd(0.25, 1.0) <= work + switch * ran.switches + 1e-6
    assert never_late.all()


def test_spot_that_is_always_there_is_all_that_is_used() -> None:
    ran = run_uniform_progress(
        np.ones((1, 100), dtype=bool), work_h=20, deadline_h=50, switch_h=0.5, step_h=STEP
    )
    assert ran.spot[0] == 20.5
    assert ran.demand[0] == 0


def test_without_spot_it_keeps_pace_on_demand() -> None:
    ran = run_uniform_progress(
        np.zeros((1, 100), dtype=bool), work_h=20, deadline_h=50, switch_h=0.5, step_h=STEP
    )
    assert ran.finished[0]
    assert ran.spot[0] == 0
    assert ran.switches[0] == 1  # it waits, falls behind, and stays where it then is


def test_it_leaves_on_demand_only_when_it_is_well_ahead() -> None:
    there = np.zeros((1, 100), dtype=bool)
    there[0, 4] = True  # a flicker right after it went on demand
    ran = run_uniform_progress(there, work_h=20, deadline_h=50, switch_h=1.0, step_h=STEP)
    assert ran.spot[0] == 0


def test_capacity_is_there_for_its_part_of_the_time_and_the_same_again() -> None:
    wanted = {"traces": 200, "hours": 200.0, "step_h": 0.1, "up_h": 6.0, "down_h": 2.0, "seed": 1}
    drawn = draw_capacity(**wanted)  # type: ignore[arg-type]
    assert abs(drawn.mean() - 0.75) < 0.02
    assert (drawn == draw_capacity(**wanted)).all()  # type: ignore[arg-type]
