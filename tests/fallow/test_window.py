"""Windows and durations."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import UsageError
from fallow.window import Window, format_duration, parse_duration, parse_timestamp

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_a_window_keeps_its_moments_in_utc() -> None:
    abroad = timezone(timedelta(hours=2))
    made = Window(datetime(2026, 11, 20, tzinfo=abroad), datetime(2026, 11, 21, tzinfo=abroad))
    assert made == Window(
        datetime(2026, 11, 19, 22, tzinfo=UTC), datetime(2026, 11, 20, 22, tzinfo=UTC)
    )
    assert made.bounds() == {
        "since": datetime(2026, 11, 19, 22),  # noqa: DTZ001  (naive UTC, as queries take it)
        "until": datetime(2026, 11, 20, 22),  # noqa: DTZ001
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("57s", 57), ("30m", 1800), ("1h30m", 5400), ("7d", 604800), ("1.5h", 5400), ("500ms", 0.5)],
)
def test_durations_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "7", "d7", "7 days", "-3h", "0s", "1h 30m"])
def test_what_is_no_duration_is_refused_with_the_legal_units(text: str) -> None:
    with pytest.raises(UsageError, match="ms, s, m, h, d or w"):
        parse_duration(text)


@given(st.integers(1, 10**7))
def test_a_duration_written_is_read_back_to_its_two_largest_units(seconds: int) -> None:
    back = parse_duration(format_duration(seconds)).total_seconds()
    assert back <= seconds
    assert seconds - back < (3600 if seconds >= 86400 else 60)


def test_a_duration_has_no_gap_between_its_units() -> None:
    assert format_duration(6 * 86400 + 42 * 60) == "6d"
    assert format_duration(6 * 86400 + 5 * 3600 + 42 * 60) == "6d5h"


def test_moments_are_iso_now_or_an_age() -> None:
    assert parse_timestamp("now", now=NOW) == NOW
    assert parse_timestamp("2h", now=NOW) == NOW - timedelta(hours=2)
    assert parse_timestamp("2026-11-01", now=NOW) == datetime(2026, 11, 1, tzinfo=UTC)
    assert parse_timestamp("2026-11-01T02:00+02:00", now=NOW) == datetime(2026, 11, 1, tzinfo=UTC)


def test_a_window_is_half_open_utc_and_never_empty() -> None:
    with pytest.raises(UsageError, match="before it starts"):
        Window(NOW, NOW)
    with pytest.raises(UsageError, match="time zone"):
        Window(NOW.replace(tzinfo=None), NOW)


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_chunks_cover_the_window_once(length: int, step: int) -> None:
    step = max(step, length // 1000 + 1)
    window = Window.last(timedelta(seconds=length), now=NOW)
    chunks = window.chunks(timedelta(seconds=step))
    assert chunks[0].start == window.start
    assert chunks[-1].end == window.end
    assert all(a.end == b.start for a, b in pairwise(chunks))
    assert all(c.seconds <= step for c in chunks)


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("2026-11-20T13:30+00:00", "2026-11-20T14:30+00:00", (13, 15)),
        ("2026-11-20T13:00+00:00", "2026-11-20T15:00+00:00", (13, 15)),
        ("2026-11-20T13:59:59.999999+00:00", "2026-11-20T15:00:00.000001+00:00", (13, 16)),
        ("2026-11-20T19:00+05:30", "2026-11-20T20:00+05:30", (13, 15)),
    ],
)
def test_a_whole_window_is_the_hours_in_utc_that_it_touches(
    start: str, end: str, hours: tuple[int, int]
) -> None:
    window = Window(datetime.fromisoformat(start), datetime.fromisoformat(end))
    first, last = (datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in hours)
    assert window.whole() == Window(first, last)
    assert window.whole().whole() == window.whole()
