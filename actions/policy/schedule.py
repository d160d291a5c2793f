"""When a recurring window is open, in a time zone whose clock may jump.

A start that the clock skips comes when it has jumped; one that it shows twice comes twice. A
window is over once both the wall and a stopwatch say so: where the clock changes, the later end
counts. These windows restrain, so both err on the safe side; of one that allows (`allows`) the
earlier end counts.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from actions.policy.model import Blackout, RecurringWindow
from fallow.crontab import JUMP, next_start, parse_triggers, to_utc_times

MAX_STARTS = 1000
"""After so many windows in a row it is taken never to close."""

_YEAR = timedelta(days=366)


def list_starts(window: RecurringWindow, since: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the starts from `since` to `until`, both included, as UTC moments."""
    zone, triggers = ZoneInfo(window.timezone), parse_triggers(window.schedule)
    wall: datetime | None = since.astimezone(zone).replace(tzinfo=None) - JUMP
    last = until.astimezone(zone).replace(tzinfo=None) + JUMP
    while wall is not None and (wall := next_start(triggers, wall)) is not None and wall <= last:
        for start in to_utc_times(wall, zone):
            if since <= start <= until:
                yield start


@lru_cache(maxsize=4096)
def is_open(window: RecurringWindow, now: datetime) -> bool:
    """Say whether a window is open: its start is in it, its end is not."""
    return any(
        now < _end(window, s) for s in list_starts(window, now - window.duration - JUMP, now)
    )


@lru_cache(maxsize=4096)
def is_action_open(window: RecurringWindow, now: datetime) -> bool:
    """Say whether a window in which something may be done is open.

    Where the clock changes, the earlier end counts: such a window errs on the side of rest.
    """
    since = now - window.duration
    return any(now < _end(window, s, min) for s in list_starts(window, since, now))


@lru_cache(maxsize=4096)
def get_opening(window: RecurringWindow, now: datetime) -> datetime | None:
    """Return from which moment on a window allows something, now included; None = never."""
    return now if is_action_open(window, now) else next(list_starts(window, now, now + _YEAR), None)


@lru_cache(maxsize=4096)
def get_closing(window: RecurringWindow, now: datetime) -> datetime | None:
    """Return when an open window closes, with those that follow on it; None = not foreseeable."""
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
    """Say whether a blackout is on."""
    if blackout.window is not None:
        return is_open(blackout.window, now)
    has_begun = blackout.start is None or blackout.start <= now
    return has_begun and (blackout.end is None or now < blackout.end)


def get_blackout_end(blackout: Blackout, now: datetime) -> datetime | None:
    """Return when a blackout that is on ends; None = not foreseeable."""
    return blackout.end if blackout.window is None else get_closing(blackout.window, now)


def _end(
    window: RecurringWindow, start: datetime, choose: Callable[..., datetime] = max
) -> datetime:
    zone = ZoneInfo(window.timezone)
    wall = start.astimezone(zone).replace(tzinfo=None) + window.duration
    return choose(start + window.duration, *to_utc_times(wall, zone))
