"""The probability of a return: which hours of which workloads count, by hand."""

from typing import Any

import numpy as np
import pytest

from analyzers.idle import return_probability
from analyzers.idle.return_probability import ActivityHours, WorkClock
from tests.analyzers.activity_hours import SingleQuestions

NIGHT = WorkClock((0, 0), "UTC")
"""No hour is a working hour: every idle time counts."""
OFFICE = WorkClock((8, 18), "UTC")


def hours(*patterns: str, kinds: list[int] | None = None, clock: WorkClock = NIGHT) -> Any:
    """Return workloads by their hours from hour 0: `.` idle, `a` active, a space no row.

    Hour 0 is a Thursday's midnight.
    """
    rows = [
        (owner, hour, letter == "a")
        for owner, pattern in enumerate(patterns)
        for hour, letter in enumerate(pattern)
        if letter != " "
    ]
    owner, hour, active = (np.array(c) for c in zip(*rows, strict=True))
    kind = np.array(kinds or [0] * len(patterns))
    return SingleQuestions(ActivityHours(owner, hour, active, kind, clock))


@pytest.mark.parametrize(
    ("hour", "ahead", "expected"),
    [
        (7, 4, 3),
        (8, 4, 4),
        (16, 4, 2),
        (18, 4, 0),
        (24 + 17, 1, 1),  # Friday
        (48 + 10, 4, 0),  # Saturday
        (72 + 10, 4, 0),  # Sunday
        (96 + 10, 4, 4),  # Monday
        (24 + 16, 100, 2 + 20),  # over the weekend to Tuesday evening
    ],
)
def test_working_hours_are_counted_on_workdays(hour: int, ahead: int, expected: int) -> None:
    assert OFFICE.working(np.array([hour, hour]), ahead).tolist() == [expected] * 2


def test_working_hours_are_local() -> None:
    assert WorkClock((8, 18), "Europe/Berlin").working(np.array([6, 7]), 1).tolist() == [0, 1]


def test_without_rows_only_hours_around_the_question_count() -> None:
    none: Any = np.array([], dtype=np.int64)
    clock = WorkClock((8, 18), "UTC")
    made = ActivityHours(none, none, none.astype(bool), np.array([0]), clock)
    at = np.array([490_000])
    counts = made.count_exposures(np.array([0]), at, at - 6, 4)
    assert counts.tolist() == [[1, 0, 0, 0]]
    assert len(clock._hours) < 50


def test_a_rest_begins_after_the_last_active_hour_before_now() -> None:
    made = hours("a..a..", "...", "  ..")
    assert made.rest_since(0, 6, 5) == 4
    assert made.rest_since(0, 3, 2) == 1
    assert made.rest_since(0, 4, 9) == 4
    assert made.rest_since(1, 3, 2) == 0
    assert made.rest_since(2, 4, 3) == 2
    assert made.rest_since(2, 4, 1) == 1
    assert made.rest_since(2, 2, 7) == 7, "no row before"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("..a...", (0, 0)),  # it had not lasted three hours
        ("...a..", (1, 1)),  # ended at that age
        ("....a.", (1, 1)),  # within two hours of it
        (".....a", (1, 0)),  # later
        ("......", (1, 0)),
        ("....  ", (0, 0)),  # how it ended is not known
        (".... a", (0, 0)),
        ("a....a", (1, 1)),  # begun an hour later
        ("a...a.", (1, 1)),
        (" ...a.", (1, 1)),
    ],
)
def test_an_idle_time_of_another_counts_from_the_age_of_this_one(
    other: str, expected: tuple[int, int]
) -> None:
    made = hours("a....." + "...", other)
    exposures, returns, days, own = made.exposures(0, 6, 3, 2)
    lasted = 0 if returns else 1
    assert (days, own) == (0, 0)
    assert (exposures - lasted, returns) == expected


def test_only_others_of_the_same_kind_count() -> None:
    assert hours("......", "...a..", "...a..", kinds=[0, 1, 0]).exposures(0, 6, 3, 2)[:2] == (1, 1)


def test_a_horizon_less_than_the_age_counts_too_if_it_is_half_of_it() -> None:
    other = "..a..."
    assert hours("......", other).exposures(0, 6, 2, 2)[:2] == (1, 1), "age 4, and 2"
    assert hours("......", other).exposures(0, 6, 3, 2)[1] == 0, "age 3, and 1 is less than half"


def test_what_comes_after_now_is_not_known() -> None:
    assert hours("........", "...." + "a...").exposures(0, 4, 1, 2)[1] == 0
    assert hours("........", "...." + "a...").exposures(0, 5, 2, 2)[1] == 1
    assert hours("........", "........").exposures(0, 4, 1, 2)[:2] == (1, 0), "its own hours"
    assert hours("........", "........").exposures(0, 5, 2, 2)[:2] == (2, 0)


def test_an_idle_time_counts_the_horizons_that_it_lasted_through() -> None:
    alone = "." * 12
    assert hours(alone).exposures(0, 6, 2, 2) == (2, 0, 0, 0)
    assert hours(alone).exposures(0, 6, 3, 2) == (1, 0, 0, 0)
    assert hours(alone).exposures(0, 6, 5, 2) == (0, 0, 0, 0)
    assert hours(alone).exposures(0, 6, 6, 2) == (0, 0, 0, 0)


def test_in_working_hours_only_horizons_of_mostly_working_hours_count() -> None:
    made = hours("." * 24, "." * 10 + "a" + "." * 13, clock=OFFICE)
    # Its horizon at the age of 6 is 6 to 10: two of four hours are working hours.
    assert made.exposures(0, 14, 8, 4)[:2] == (1, 0), "its own four hours from 10 on"
    # At the age of 7 it is 7 to 11: three of four, and it ended in them.
    assert made.exposures(0, 15, 8, 4)[1] == 1
    night = hours("." * 24, "..a" + "." * 21, clock=OFFICE)
    assert night.exposures(0, 22, 20, 4)[1] == 1, "now is no working hour: all count"


DAY = "." * 24


@pytest.mark.parametrize(
    ("first", "now", "expected"),
    [
        (".......a" + "." * 16, 30, (1, 1)),  # idle at 5, active at 7: hours 6 and 7 count
        ("......a." + "." * 16, 30, (1, 1)),
        ("........a" + "." * 15, 30, (1, 0)),
        (".....a.." + "." * 16, 30, (0, 0)),  # active before
        (".... ..." + "." * 16, 30, (1, 0)),
        ("..... .." + "." * 16, 30, (0, 0)),  # no row before, or in the hours
        ("...... ." + "." * 16, 30, (0, 0)),
        (DAY, 24, (0, 0)),
        (DAY, 25, (1, 0)),
        (DAY, 49, (0, 0)),  # Saturday: Thursday and Friday are of another kind
    ],
)
def test_a_day_of_its_own_counts_if_it_was_idle_when_these_hours_began(
    first: str, now: int, expected: tuple[int, int]
) -> None:
    made = hours(first + "." * 30)
    assert made.exposures(0, now, now - 1, 2)[2:] == expected


def test_days_of_its_own_are_those_of_the_same_type() -> None:
    week = DAY * 14
    assert hours(week).exposures(0, 24 * 8 + 6, 24 * 8, 2)[2] == 6, "Friday: six workdays before"
    assert hours(week).exposures(0, 24 * 9 + 6, 24 * 9, 2)[2] == 2, "Saturday: a weekend before"
    assert hours(week).exposures(0, 24 * 10 + 6, 24 * 10, 2)[2] == 3, "Sunday"
    assert hours(week).exposures(0, 24 * 11 + 6, 24 * 11, 2)[2] == 7, "Monday"


def test_a_workload_without_rows_has_no_days() -> None:
    assert hours("...", "   ", kinds=[0, 0]).exposures(1, 3, 2, 2)[2:] == (0, 0)


def test_many_questions_have_the_answers_of_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(return_probability, "MOST_PAIRS", 1)
    made = hours(
        ".a...a....", "....a.", "..a.......", "a  ..a....", kinds=[0, 0, 1, 0], clock=OFFICE
    )
    questions = [(w, now, begin) for w in range(4) for now in range(5, 10) for begin in range(5)]
    answers = made.hours.count_exposures(*np.array(questions).T, 2)
    assert [tuple(row) for row in answers.tolist()] == [made.exposures(*q, 2) for q in questions]
