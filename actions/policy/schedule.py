"""Compute when a recurring window is open, in a time zone with clock changes.

A start in a skipped hour moves to the end of the clock change; a start in a repeated hour occurs
twice. A window ends once both the local clock and its duration have passed: at a clock change the
later end counts. These windows restrict, so both rules are on the safe side. For a window that
permits actions (`allows`) the earlier end counts.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from actions.policy.model import Blackout, RecurringWindow
from fallow.crontab import JUMP, find_next_start, parse_triggers, to_utc_times

MAX_STARTS = 1000
"""After this many consecutive windows it is assumed never to close."""

_YEAR = timedelta(days=366)


def list_starts(window: RecurringWindow, since: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the starts from `since` to `until`, both included, in UTC."""
    zone, triggers = ZoneInfo(window.timezone), parse_triggers(window.schedule)
    wall: datetime | None = since.astimezone(zone).replace(tzinfo=None) - JUMP
    last = until.astimezone(zone).replace(tzinfo=None) + JUMP
    while (
        wall is not None and (wall := find_next_start(triggers, wall)) is not None and wall <= last
    ):
        for start in to_utc_times(wall, zone):
            if since <= start <= until:
                yield start


@lru_cache(maxsize=4096)
def is_open(window: RecurringWindow, now: datetime) -> bool:
    """Return whether a window is open: its start is included, its end is not."""
    return any(
        now < _end(window, s) for s in list_starts(window, now - window.duration - JUMP, now)
    )


@lru_cache(maxsize=4096)
def is_action_open(window: RecurringWindow, now: datetime) -> bool:
    """Return whether a window that permits actions is open.

    At a clock change the earlier end counts, so that the error is on the side of no action.
    """
    since = now - window.duration
    return any(now < _end(window, s, min) for s in list_starts(window, since, now))


@lru_cache(maxsize=4096)
def get_opening(window: RecurringWindow, now: datetime) -> datetime | None:
    """Return when a window next permits actions, now included; None = not within a year."""
    return now if is_action_open(window, now) else next(list_starts(window, now, now + _YEAR), None)


@lru_cache(maxsize=4096)
def get_closing(window: RecurringWindow, now: datetime) -> datetime | None:
    """Return when an open window closes, with those that follow without a gap; None = unknown."""
    past_starts = list_starts(window, now - window.duration - JUMP, now)
    end = max((_end(window, s) for s in past_starts), default=now)
    coming = list_starts(window, now, now + _YEAR)
    for start in islice(coming, MAX_STARTS):
        if start > end + JUMP:
            return end
        if start <= end:
            end = max(end, _end(window, start))
    return end if next(coming, None) is None else None


def is_blackout(blackout: Blackout, now: datetime) -> bool:
    """Return whether a blackout is in force."""
    if blackout.window is not None:
        return is_open(blackout.window, now)
    has_begun = blackout.start is None or blackout.start <= now
    return has_begun and (blackout.end is None or now < blackout.end)


def get_blackout_end(blackout: Blackout, now: datetime) -> datetime | None:
    """Return when a blackout in force ends; None = unknown."""
    return blackout.end if blackout.window is None else get_closing(blackout.window, now)


def _end(
    window: RecurringWindow, start: datetime, choose: Callable[..., datetime] = max
) -> datetime:
    zone = ZoneInfo(window.timezone)
    wall = start.astimezone(zone).replace(tzinfo=None) + window.duration
    return choose(start + window.duration, *to_utc_times(wall, zone))
