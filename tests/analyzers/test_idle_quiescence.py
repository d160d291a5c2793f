"""Where activity of the host cuts an idle stretch, as known at each time, by hand."""

from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.idle.quiescence import find_repeats, split_rows
from warehouse.signals.frozen import STILL_US

LEAST, SLACK = 10, 20
Part = tuple[int, int]


def stretches(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {
        "span": 0,
        "k": 0,
        "start": 0,
        "end": 100,
        "at": 100,
        "state": "idle",
        "slack_us": SLACK,
    }
    return pl.DataFrame([base | row for row in rows])


def activity(*intervals: tuple[int, int, int], span: int = 0) -> pl.DataFrame:
    names = ("span", "from_us", "to_us", "known_us")
    rows = [(span, *interval) for interval in intervals]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")


def cut(rows: pl.DataFrame, works: pl.DataFrame, *, over: bool = False) -> list[tuple[int, int]]:
    parts = split_rows(rows, works, least_us=LEAST, over=over)
    return [(row["start"], row["end"]) for row in parts.rows(named=True)]


@pytest.mark.parametrize(
    ("intervals", "part"),
    [
        ([(30, 40, 40)], (40, 100)),
        ([(30, 90, 90)], (90, 100)),
        ([(30, 91, 91)], (30, 91)),  # nine left: the last part that is long enough
        ([(85, 95, 95)], (85, 95)),
        ([(86, 95, 95)], (0, 86)),
        ([(20, 30, 30), (92, 95, 95)], (30, 92)),
        ([(20, 30, 30), (40, 50, 50)], (50, 100)),
        ([(20, 30, 30), (39, 45, 45), (91, 95, 95)], (45, 91)),
        ([(30, 40, 100)], (0, 100)),  # not yet known
        ([(30, 40, 99)], (40, 100)),
        ([(-20, -5, -5)], (0, 100)),
        ([(-20, 5, 5)], (5, 100)),
        ([(95, 120, 99)], (0, 95)),
        ([(30, 60, 60), (35, 40, 40)], (60, 100)),
    ],
)
def test_a_row_is_cut_to_its_last_part_that_is_long_enough(
    intervals: list[tuple[int, int, int]], part: Part
) -> None:
    assert cut(stretches({}), activity(*intervals)) == [part]


def test_intervals_closer_than_the_least_length_are_one() -> None:
    """A gap of nine between two activities is no part, and one of ten is."""
    late = {"end": 100, "at": 100}
    assert cut(stretches(late), activity((0, 80, 80), (90, 95, 95))) == [(80, 90)]
    assert cut(stretches(late), activity((0, 81, 81), (90, 95, 95))) == [(0, 95)]


def test_a_row_without_a_part_that_is_long_enough_is_dropped() -> None:
    short = {"end": 12, "at": 12}
    assert cut(stretches(short), activity((5, 8, 8))) == []
    assert cut(stretches(short), activity((2, 2, 3))) == [(2, 12)]
    assert cut(stretches(short), activity((3, 3, 3))) == []


@pytest.mark.parametrize(("at", "parts"), [(114, [(0, 94)]), (115, [])])
def test_a_part_that_ended_longer_ago_than_the_slack_is_over(at: int, parts: list[Part]) -> None:
    assert cut(stretches({"at": at}), activity((94, 99, 99))) == parts


def test_each_time_knows_only_what_was_known_before_it() -> None:
    times = stretches(*({"k": k, "end": end, "at": end} for k, end in enumerate((30, 41, 60))))
    works = activity((15, 20, 20), (32, 40, 40))
    assert cut(times, works) == [(20, 30), (20, 32), (40, 60)]


def test_activity_of_another_stretch_cuts_nothing() -> None:
    two = stretches({}, {"span": 1})
    assert cut(two, activity((30, 40, 40), span=1)) == [(0, 100), (40, 100)]


def test_without_activity_rows_stay() -> None:
    assert cut(stretches({}), activity()) == [(0, 100)]
    assert cut(stretches({"state": "partly idle"}), activity((30, 40, 40))) == [(0, 100)]


@pytest.mark.parametrize(
    ("intervals", "parts"),
    [
        ([(30, 40, 40)], [(0, 30), (30, 40), (40, 100)]),
        ([(30, 39, 40)], [(0, 30), (39, 100)]),
        ([(9, 30, 40)], [(9, 30), (30, 100)]),
        ([(10, 30, 40), (39, 50, 50)], [(0, 10), (10, 50), (50, 100)]),
        ([(10, 30, 40), (40, 50, 50)], [(0, 10), (10, 30), (30, 40), (40, 50), (50, 100)]),
        ([(10, 30, 40), (12, 20, 20), (35, 50, 50)], [(0, 10), (10, 50), (50, 100)]),
    ],
)
def test_without_a_slack_every_part_that_is_long_enough_is_a_row(
    intervals: list[tuple[int, int, int]], parts: list[Part]
) -> None:
    rows = stretches({}, {"span": 1, "state": "partly idle"})
    assert cut(rows, activity(*intervals), over=True) == [*parts, (0, 100)]


@given(
    st.lists(st.tuples(st.integers(-9, 109), st.integers(0, 30), st.integers(0, 9)), min_size=1),
    st.integers(0, 99),
)
def test_parts_are_those_of_a_loop_over_the_activity(
    steps: list[tuple[int, int, int]], start: int
) -> None:
    """Every end of an activity cuts, unless less than the least length lies before the next."""
    intervals = sorted(
        (begin, begin + length, begin + length + late) for begin, length, late in steps
    )
    islands: list[list[int]] = []
    for begin, end, _ in intervals:
        if islands and begin - islands[-1][1] < LEAST:
            islands[-1][1] = max(islands[-1][1], end)
        else:
            islands.append([begin, end])
    edges = sorted({start, 100, *(min(max(e, start), 100) for island in islands for e in island)})
    expected = [(a, b) for a, b in pairwise(edges) if b - a >= LEAST]
    rows = stretches({"start": start})
    assert cut(rows, activity(*intervals), over=True) == expected


@given(
    st.lists(st.tuples(st.integers(-9, 99), st.integers(0, 30)), min_size=1, max_size=6),
    st.integers(1, 130),
)
def test_the_last_part_is_that_of_a_loop_over_what_was_known(
    steps: list[tuple[int, int]], at: int
) -> None:
    """An activity is known when it ends, in the order of their beginnings."""
    end = min(at, 100)
    intervals: list[Part] = []
    for begin, length in sorted(steps):
        intervals.append((begin, max([begin + length, *(stop for _, stop in intervals)])))
    known = [(begin, stop) for begin, stop in intervals if stop < at]
    islands: list[list[int]] = []
    rested: int | None = None
    for begin, stop in known:
        if islands and begin - islands[-1][1] < LEAST:
            islands[-1][1] = max(islands[-1][1], stop)
        else:
            rested = islands[-1][1] if islands else None
            islands.append([begin, stop])

    def clip(value: int) -> int:
        return min(max(value, 0), end)

    expected: list[Part] = [(0, end)]
    if islands:
        begin, stop = clip(islands[-1][0]), clip(islands[-1][1])
        before = clip(rested) if rested is not None else 0
        parts = [(stop, end), (begin, stop), (before, begin)]
        expected = [part for part in parts if part[1] - part[0] >= LEAST][:1]
    expected = [part for part in expected if part[1] >= at - SLACK]
    works = activity(*((begin, stop, stop) for begin, stop in intervals))
    assert cut(stretches({"end": end, "at": at}), works) == expected


def test_a_repeated_value_is_known_when_it_has_stood_still_for_long() -> None:
    members = pl.DataFrame({"span": [1, 2], "start": [0, 5], "end": [STILL_US + 9, 7]})
    assert find_repeats(members).rows() == [(1, 0, STILL_US + 9, STILL_US), (2, 5, 7, 7)]
