"""Verdicts over truth made by hand: what counts as right, as harm and as missed."""

import numpy as np
import pytest

from benchmarks.accuracy_scores import Score, Verdict, pool_scores, score
from runtime.experiments.truth import Truth, list_courses, list_runs
from simulator.models import STATES, TICK_S, DeviceAllocation, Holder, SimulatedDevice

HOUR = 3600.0
TICKS = 1200
"""Ten hours."""
OWNER = ("ns", "Job", "work")
IDLE, BUSY = STATES.index("idle"), STATES.index("productive")


def truth(*idle_h: tuple[float, float], devices: int = 2, hurts_h: float | None = None) -> Truth:
    """Return a job on some devices, all of them idle within these hours."""
    ticks = TICK_S * np.arange(TICKS, dtype=np.float64)
    state = np.full((devices, TICKS), BUSY, np.int16)
    for begin, end in idle_h:
        state[:, (ticks >= begin * HOUR) & (ticks < end * HOUR)] = IDLE
    harms = np.zeros((devices, TICKS), np.bool_)
    if hurts_h is not None:
        harms[:, int(hurts_h * HOUR / TICK_S)] = True
    holder = Holder("uid", "ns", "work-0", "main", "Job", "work", "team")
    return Truth(
        ticks,
        tuple(SimulatedDevice(f"GPU-{n}", "n1", n, "H100") for n in range(devices)),
        state,
        harms,
        (DeviceAllocation(holder, tuple(range(devices)), 0.0, TICKS * TICK_S),),
    )


def said(begin_h: float, end_h: float, **more: object) -> Verdict:
    given: dict[str, object] = {"actionable": True, **more}
    return Verdict(OWNER, begin_h * HOUR, end_h * HOUR, **given)  # type: ignore[arg-type]


def scored(known: Truth, *verdicts: Verdict, **more: Verdict) -> Score:
    return score(
        "judge", known, list_courses(known, {}), verdicts, window_s=HOUR, vetoed=list(more.values())
    )


def test_a_verdict_on_idle_hours_is_right_and_covers_what_is_due() -> None:
    found = scored(truth((2, 6)), said(3, 6))
    assert (found.precision, found.recall, found.actionable_recall) == (1, 1, 1)
    assert (found.actionable, found.due) == (6, 6)
    assert found.delays_s == (HOUR,)
    assert (found.harms, found.missed) == ((), {})


def test_one_busy_device_makes_the_workload_not_idle() -> None:
    known = truth((2, 6))
    known.state[0] = BUSY
    found = scored(known, said(3, 6))
    assert (found.actionable, found.actionable_true, found.precision) == (6, 0, 0)
    assert (found.due, found.recall) == (0, 1)


def test_what_goes_on_after_the_work_is_back_is_wrong() -> None:
    assert scored(truth((2, 6)), said(3, 7)).precision == pytest.approx(3 / 4)


def test_one_tick_that_hurts_makes_a_verdict_harmful_but_not_beyond_its_end() -> None:
    assert len(scored(truth((2, 6), hurts_h=5.5), said(3, 6)).harms) == 1
    assert scored(truth((2, 6), hurts_h=6), said(3, 6.004)).harms == ()
    assert scored(truth((2, 6), hurts_h=5.5), said(3, 6, actionable=False)).harms == ()
    assert scored(truth((2, 6), hurts_h=3.5), said(3, 6, acts_s=4 * HOUR)).harms == ()


def test_stretches_shorter_than_the_window_are_not_due_and_gaps_cost_their_hour() -> None:
    assert scored(truth((1, 2), (3, 3.9))).due == 0
    halves = scored(truth((2, 8)), said(3, 5), said(6, 8))
    assert (halves.due, halves.detected) == (10, 8)
    assert halves.missed == {"no run long enough was seen": 2}


def test_what_was_missed_is_told_with_its_reason() -> None:
    found = scored(
        truth((2, 8)),
        said(3, 5, actionable=False, confirmed=False, reasons=("the host is busy",)),
        said(5, 6, actionable=False),
        held_back=said(6, 7, actionable=False, confirmed=False, reasons=("clocks differ",)),
    )
    assert (found.detected, found.acted) == (2, 0)
    assert found.missed == {
        "the host is busy": 4,
        "clocks differ": 2,
        "no run long enough was seen": 2,
    }


def test_what_may_be_acted_upon_later_is_ripe_later() -> None:
    known = truth((2, 8))
    late = said(3, 8, acts_s=6 * HOUR)
    found = score(
        "judge", known, list_courses(known, {}), [late], window_s=HOUR, ripe_s=lambda _: 3 * HOUR
    )
    assert (found.due, found.acted, found.ripe, found.acted_ripe) == (10, 4, 6, 4)
    assert (found.actionable_recall, found.ripe_recall) == pytest.approx((4 / 10, 4 / 6))
    assert found.held_back == {"a stretch was cut, and waits again": 2}
    result = scored(known, said(3, 8, actionable=False, reasons=("shared", "no witness")))
    assert (result.missed, result.held_back) == ({}, {"shared": 10})
    short = truth((2, 4))
    never = score(
        "judge", short, list_courses(short, {}), [], window_s=HOUR, ripe_s=lambda _: 3 * HOUR
    )
    assert (never.due, never.ripe, never.ripe_recall) == (2, 0, 1)


def test_partly_idle_verdicts_are_scored_by_their_own_devices() -> None:
    known = truth((2, 6))
    known.state[0] = BUSY
    found = scored(known, said(2, 7, actionable=False, devices=("GPU-1",), gpu_hours=5.0))
    assert (found.part, found.part_true, found.episodes) == (5, 4, 0)


def test_a_verdict_on_a_workload_that_holds_nothing_is_wrong() -> None:
    stray = Verdict(("ns", "Job", "other"), 0, HOUR, actionable=True)
    assert scored(truth((2, 6)), stray).precision == 0


def test_worlds_are_pooled_by_their_hours() -> None:
    right, wrong = scored(truth((2, 6)), said(3, 6)), scored(truth(), said(0, 2))
    both = pool_scores([right, wrong])
    assert both.precision == pytest.approx(6 / 10)
    assert both.episodes == 2


def test_runs_are_half_open_and_may_touch_both_ends() -> None:
    assert list_runs(np.array([True, False, True, True])) == [(0, 1), (2, 4)]
    assert list_runs(np.zeros(3, np.bool_)) == []
