"""The probability that an idle workload is wanted again soon, from figures known by hand."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.idle.return_probability import ActivityHours, WorkClock
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.analyzers.activity_hours import SingleQuestions

if TYPE_CHECKING:
    Memory = Any
    Site = Any

MONDAY = 24 * 20_780  # the first hour of 2026-11-23
AHEAD = 4


def hours(
    *workloads: str, first: int = MONDAY, working: tuple[int, int] = (0, 24)
) -> SingleQuestions:
    """Return workloads of one kind from texts: `a` an active hour, `.` a rest."""
    owner = [n for n, shown in enumerate(workloads) for _ in shown]
    hour = [first + h for shown in workloads for h in range(len(shown))]
    active = [mark == "a" for shown in workloads for mark in shown]
    return SingleQuestions(
        ActivityHours(
            np.array(owner),
            np.array(hour),
            np.array(active),
            np.zeros(len(workloads), dtype=np.int64),
            WorkClock(working, "UTC"),
        )
    )


def test_monday_is_a_monday() -> None:
    assert (MONDAY // 24 + 3) % 7 == 0


def test_rests_of_others_that_lasted_as_long_are_exposures() -> None:
    known = hours(
        "a" + "." * 19,  # the one that is asked about, idle for 19 hours
        "a" + "." * 10 + "a" * 9,  # ended by itself after 10 hours
        "a" + "." * 19,
        "a" * 20,
    )
    now = MONDAY + 20
    # At 8 hours two others had rested so long, and one came back within four. At 4 hours, one
    # horizon earlier, two had rested so long and stayed: half as long, it still counts.
    assert known.exposures(0, now, now - 8, AHEAD) == (4, 1, 0, 0)
    # At 6 hours it came back at the end of the tenth, which is not within four; 2 is too young.
    # It has itself lasted through the four hours before now.
    assert known.exposures(0, now, now - 6, AHEAD) == (2 + 1, 0, 0, 0)


def test_what_a_time_could_not_know_yet_is_no_exposure() -> None:
    known = hours("a" + "." * 29, "a" + "." * 10 + "a" * 19)
    early = MONDAY + 10
    # At 5 hours, not at 9; and two horizons of its own.
    assert known.exposures(0, early, early - 9, AHEAD) == (1 + 2, 0, 0, 0)
    late = MONDAY + 13
    assert known.exposures(0, late, late - 9, AHEAD) == (2, 1, 0, 0)
    assert known.exposures(0, early, early - 7, AHEAD) == (0 + 1, 0, 0, 0)  # 3 is too young for 7


@pytest.mark.parametrize(
    ("now_at", "exposures", "lasted"),
    [(3, 0, 0), (4, 0, 0), (8, 0, 0), (9, 0, 0), (10, 1, 1), (16, 1, 2), (20, 1, 5)],
)
def test_only_working_hours_tell_of_working_hours(now_at: int, exposures: int, lasted: int) -> None:
    """A night at rest says nothing of the morning, when people come back; a day tells of both."""
    known = hours("." * 24, "." * 24, working=(7, 19))
    now = MONDAY + now_at
    # From three o'clock on the next four hours touch working hours, and from ten on more than half
    # of the last four lay in them. (At three the only age is less than half as long.) Its own rest
    # has lasted through the four hours from six on, from twelve and eight on, and by night through
    # all five from midnight on.
    assert known.exposures(0, now, MONDAY, AHEAD) == (exposures + lasted, 0, 0, 0)


def test_working_hours_are_those_of_a_place_and_not_of_a_weekend() -> None:
    clock = WorkClock((7, 19), "America/New_York")  # five hours behind in November
    at = MONDAY + np.arange(24)
    assert np.flatnonzero(clock.working(at, 1)).tolist() == list(range(12, 24))
    saturday = at + 5 * 24
    assert not clock.working(saturday, 1)[5:].any()


def test_a_rest_that_ended_with_its_workload_is_no_return() -> None:
    known = hours("a" + "." * 29, "a" + "." * 10)
    now = MONDAY + 30
    assert known.exposures(0, now, now - 8, AHEAD) == (2 + 2, 0, 1, 0)  # at two ages; its own day


def test_a_rest_is_as_old_as_its_hours_tell_whatever_the_window_shows() -> None:
    known = hours("a" + "." * 40, "." * 30)
    now = MONDAY + 41
    assert known.rest_since(0, now, now - 25) == MONDAY + 1
    assert known.rest_since(1, now, now - 25) == MONDAY
    assert known.rest_since(0, MONDAY + 1, MONDAY + 1) == MONDAY + 1


def test_its_own_days_of_the_same_sort_are_exposures() -> None:
    day = "." * 9 + "a" * 8 + "." * 7
    known = hours(day * 4 + "." * 10)  # Monday to Thursday, and Friday until ten
    friday = MONDAY + 4 * 24
    assert known.exposures(0, friday + 8, friday, AHEAD) == (4, 4, 4, 4)
    assert known.exposures(0, friday + 1, friday - 7, AHEAD) == (4 + 2, 0, 4, 0)  # and this night


@pytest.mark.parametrize(
    ("day", "own"),
    [
        ("." * 8 + "a" * 9 + "." * 7, (1, 1)),  # at rest until eight, then wanted
        ("." * 7 + "a" * 10 + "." * 7, (0, 0)),  # at work since seven
        ("." * 12 + "a" * 5 + "." * 7, (1, 0)),  # wanted only after the four hours
    ],
)
def test_a_day_on_which_it_was_at_work_already_shows_no_return(
    day: str, own: tuple[int, int]
) -> None:
    known = hours(day + "." * 24)
    tuesday = MONDAY + 24
    assert known.exposures(0, tuesday + 8, tuesday - 7, AHEAD)[2:] == own


def test_a_weekend_says_nothing_of_a_workday() -> None:
    day = "." * 9 + "a" * 8 + "." * 7
    known = hours(day * 5 + "." * 48 + "." * 10)
    monday = MONDAY + 7 * 24
    assert known.exposures(0, monday + 8, monday - 55, AHEAD)[2:] == (5, 5)
    sunday = MONDAY + 6 * 24
    assert known.exposures(0, sunday + 8, sunday - 31, AHEAD)[2:] == (1, 0)


@pytest.mark.parametrize("horizon", [timedelta(hours=4), None])
def test_a_finding_says_what_its_probability_rests_on(
    views: "Memory", site: "Site", horizon: timedelta | None
) -> None:
    site.device("GPU-0", [0.0] * 300, power_w=110.0)
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    window = Window(site.start, site.start + timedelta(hours=5))
    (found,) = IdleAnalyzer(IdleSettings(min_expected_rest=horizon)).find(views, window)
    if horizon is None:
        assert found.details["wanted_asked"] is False
        return
    assert found.details["wanted"] == {
        # Half a return of one horizon that it has lasted through.
        "probability": 0.25, "within": "4h", "exposures": 1, "returns": 0, "own_days": 0,
        "own_returns": 0,
    }  # fmt: skip
