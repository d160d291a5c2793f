"""When a window of a policy is open: cron as crontab has it, and clocks that jump."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actions.policy.model import Blackout, RecurringWindow
from actions.policy.schedule import (
    get_blackout_end,
    get_closing,
    get_opening,
    is_action_open,
    is_blackout,
    is_open,
    list_starts,
)
from fallow.crontab import JUMP, parse_triggers

HOUR = timedelta(hours=1)
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "Pacific/Chatham",
    "America/Santiago",
]


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def days(window: RecurringWindow, since: str, until: str) -> list[str]:
    zone = ZoneInfo(window.timezone)
    return [f"{s.astimezone(zone):%a %d %H:%M}" for s in list_starts(window, at(since), at(until))]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("0 9 * * 1-5", ["Mon 02", "Tue 03", "Wed 04", "Thu 05", "Fri 06"]),
        ("0 9 * * mon-fri", ["Mon 02", "Tue 03", "Wed 04", "Thu 05", "Fri 06"]),
        ("0 9 * * 0", ["Sun 01"]),
        ("0 9 * * 7", ["Sun 01"]),
        ("0 9 * * 5-7", ["Sun 01", "Fri 06", "Sat 07"]),
        ("0 9 * * */2", ["Sun 01", "Tue 03", "Thu 05", "Sat 07"]),
        ("0 9 4 * *", ["Wed 04"]),
        ("0 9 4 * mon", ["Mon 02", "Wed 04"]),
        ("0 9 ? 11 SUN", ["Sun 01"]),
        ("@weekly", ["Sun 01"]),
    ],
)
def test_days_are_those_of_crontab_and_not_of_the_library(
    schedule: str, expected: list[str]
) -> None:
    found = days(RecurringWindow(schedule, HOUR), "2026-11-01", "2026-11-07T23:59")
    assert [day.rpartition(" ")[0] for day in found] == expected


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("", "0 fields"),
        ("0 9 * *", "4 fields"),
        ("0 0 9 * * *", "6 fields"),
        ("@often", "1 fields"),
        ("60 * * * *", "minute '60' is out of range: 0-59"),
        ("0 24 * * *", "hour '24' is out of range: 0-23"),
        ("0 0 0 * *", "day of month '0' is out of range: 1-31"),
        ("0 0 * 13 *", "month '13'"),
        ("0 0 * * 8", "day of week '8'"),
        ("0 0 * * Mo", "day of week 'mo' is out of range: 0-7 or sun, mon"),
        ("0 0 * * fri-mon", "ends before it starts"),
        ("*/0 * * * *", "step"),
        ("*/60 * * * *", "step"),
        ("1- * * * *", "minute '1-' is not legal"),
        ("-1 * * * *", "minute '-1' is not legal"),
        ("1,,2 * * * *", "minute '' is not legal"),
        ("0 0 last * *", "day of month 'last' is out of range"),
        ("0 0 30 2 *", "never comes"),
    ],
)
def test_a_wrong_schedule_says_which_field_and_what_is_legal(schedule: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse_triggers(schedule)


def test_a_window_is_half_open() -> None:
    window = RecurringWindow("0 9 * * *", 8 * HOUR)
    start, end = at("2026-11-20T09:00"), at("2026-11-20T17:00")
    assert not is_open(window, start - timedelta(microseconds=1))
    assert is_open(window, start)
    assert is_open(window, end - timedelta(microseconds=1))
    assert not is_open(window, end)
    assert get_closing(window, start) == end


def test_utc_is_the_default_and_a_zone_moves_the_window() -> None:
    tokyo = RecurringWindow("0 9 * * *", HOUR, "Asia/Tokyo")
    assert is_open(tokyo, at("2026-11-20T00:30"))
    assert not is_open(tokyo, at("2026-11-20T09:30"))
    assert is_open(RecurringWindow("0 9 * * *", HOUR), at("2026-11-20T09:30"))


def test_a_start_that_the_clock_skips_comes_when_it_has_jumped() -> None:
    window = RecurringWindow("30 2 * * *", HOUR, "Europe/Berlin")
    found = list(list_starts(window, at("2026-03-28"), at("2026-03-31")))
    assert found == [at("2026-03-28T01:30"), at("2026-03-29T01:00"), at("2026-03-30T00:30")]


def test_a_start_that_the_clock_shows_twice_comes_twice() -> None:
    window = RecurringWindow("30 2 * * *", timedelta(minutes=20), "Europe/Berlin")
    found = list(list_starts(window, at("2026-10-25"), at("2026-10-25T23:00")))
    assert found == [at("2026-10-25T00:30"), at("2026-10-25T01:30")]


def test_a_weekend_lasts_until_monday_also_when_the_clock_changes_in_it() -> None:
    weekend = RecurringWindow("0 0 * * sat", 48 * HOUR, "Europe/Berlin")
    for saturday, monday in (("2026-10-24", "2026-10-26"), ("2026-11-07", "2026-11-09")):
        last = at(monday, "Europe/Berlin") - timedelta(seconds=1)
        assert is_open(weekend, last)
        assert get_closing(weekend, at(saturday, "Europe/Berlin")) == at(monday, "Europe/Berlin")
    # In spring the weekend has 47 hours: it stays open for the 48 that were asked for.
    spring = at("2026-03-30T00:30", "Europe/Berlin")
    assert is_open(weekend, spring)
    assert not is_open(weekend, spring + HOUR)


def test_windows_that_follow_on_each_other_close_together_or_never() -> None:
    days_on = RecurringWindow("0 0 * * mon-wed", 24 * HOUR)
    assert get_closing(days_on, at("2026-11-16T05:00")) == at("2026-11-19")
    assert get_closing(RecurringWindow("* * * * *", HOUR), at("2026-11-16")) is None


PLAIN: dict[str, Callable[[datetime], bool]] = {
    "0 9 * * 1-5": lambda w: w.hour == 9 and w.minute == 0 and w.weekday() < 5,
    "30 2 * * *": lambda w: w.hour == 2 and w.minute == 30,
    "15 */6 * * *": lambda w: w.hour % 6 == 0 and w.minute == 15,
    "0 0 1 * sun": lambda w: w.hour == 0 and w.minute == 0 and (w.day == 1 or w.weekday() == 6),
}
MINUTE = timedelta(minutes=1)


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    day=st.dates(date(2025, 1, 1), date(2027, 12, 31)),
    minute=st.integers(0, 24 * 60 - 1),
    schedule=st.sampled_from(sorted(PLAIN)),
    hours=st.sampled_from([1, 5, 24]),
)
@example(zone="Europe/Berlin", day=date(2026, 3, 29), minute=61, schedule="30 2 * * *", hours=1)
@example(zone="Europe/Berlin", day=date(2026, 10, 25), minute=119, schedule="30 2 * * *", hours=1)
@example(zone="Australia/Lord_Howe", day=date(2026, 4, 5), minute=0, schedule="30 2 * * *", hours=1)
@example(zone="America/New_York", day=date(2026, 3, 8), minute=425, schedule="30 2 * * *", hours=1)
def test_a_window_is_open_while_a_walk_over_the_minutes_says_so(
    zone: str, day: date, minute: int, schedule: str, hours: int
) -> None:
    """Walk the wall clock minute by minute: that needs no notion of gaps or repeats."""
    window = RecurringWindow(schedule, hours * HOUR, zone)
    now = datetime(day.year, day.month, day.day, tzinfo=UTC) + minute * MINUTE
    begun = [s for s in _walked(PLAIN[schedule], ZoneInfo(zone), now, hours) if s <= now]
    if any(now < start + window.duration for start in begun):
        assert is_open(window, now)
    if not any(now < start + window.duration + JUMP for start in begun):
        assert not is_open(window, now)


def _walked(
    wanted: Callable[[datetime], bool], zone: ZoneInfo, now: datetime, hours: int
) -> list[datetime]:
    found = []
    instant = now - (hours + 5) * HOUR
    before = instant.astimezone(zone).replace(tzinfo=None) - MINUTE
    while instant <= now:
        wall = instant.astimezone(zone).replace(tzinfo=None)
        passed = max(int((wall - before) / MINUTE), 1)
        if any(wanted(wall - n * MINUTE) for n in range(passed)):
            found.append(instant)
        before, instant = wall, instant + MINUTE
    return found


def test_a_blackout_between_moments_is_half_open_and_one_by_schedule_is_its_window() -> None:
    frozen = Blackout("year's end", at("2026-12-20"), at("2027-01-07"))
    assert not is_blackout(frozen, at("2026-12-19T23:59"))
    assert is_blackout(frozen, at("2026-12-20"))
    assert not is_blackout(frozen, at("2027-01-07"))
    assert get_blackout_end(frozen, at("2027-01-01")) == at("2027-01-07")
    nightly = Blackout("night", window=RecurringWindow("0 22 * * *", 8 * HOUR, "Asia/Tokyo"))
    assert is_blackout(nightly, at("2026-11-20T13:00"))
    assert get_blackout_end(nightly, at("2026-11-20T13:00")) == at("2026-11-20T21:00")
    assert is_blackout(Blackout("until further notice", at("2026-01-01")), at("2099-01-01"))


@pytest.mark.parametrize(
    ("day", "length"),
    [("2026-10-25", 9), ("2026-03-29", 8), ("2026-11-20", 9)],
)
def test_where_the_clock_changes_a_window_that_allows_is_open_no_longer_than_wall_and_stopwatch(
    day: str, length: int
) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    window = RecurringWindow("0 22 * * *", timedelta(hours=9), "Europe/Berlin")
    eve = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=berlin) - timedelta(hours=2)
    start = eve.astimezone(UTC)
    end = start + timedelta(hours=length)
    second = timedelta(seconds=1)
    assert not is_action_open(window, start - second)
    assert get_opening(window, start - second) == start
    assert is_action_open(window, start)
    assert get_opening(window, start + second) == start + second
    assert is_action_open(window, end - second)
    assert not is_action_open(window, end)
