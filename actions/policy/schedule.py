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

from actions.policy.model import Blackout, Recurring
from fallow.crontab import JUMP, following, moments, parsed

MOST_STARTS = 1000
"""After so many windows in a row it is taken never to close."""

_YEAR = timedelta(days=366)


def starts(window: Recurring, since: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the starts from `since` to `until`, both included, as UTC moments."""
    zone, triggers = ZoneInfo(window.timezone), parsed(window.schedule)
    wall: datetime | None = since.astimezone(zone).replace(tzinfo=None) - JUMP
    last = until.astimezone(zone).replace(tzinfo=None) + JUMP
    while wall is not None and (wall := following(triggers, wall)) is not None and wall <= last:
        for moment in moments(wall, zone):
            if since <= moment <= until:
                yield moment


@lru_cache(maxsize=4096)
def is_open(window: Recurring, now: datetime) -> bool:
    """Say whether a window is open: its start is in it, its end is not."""
    return any(now < _end(window, s) for s in starts(window, now - window.duration - JUMP, now))


@lru_cache(maxsize=4096)
def allows(window: Recurring, now: datetime) -> bool:
    """Say whether a window in which something may be done is open.

    Where the clock changes, the earlier end counts: such a window errs on the side of rest.
    """
    since = now - window.duration
    return any(now < _end(window, s, min) for s in starts(window, since, now))


@lru_cache(maxsize=4096)
def opens(window: Recurring, now: datetime) -> datetime | None:
    """Return from which moment on a window allows something, now included; None = never."""
    return now if allows(window, now) else next(starts(window, now, now + _YEAR), None)


@lru_cache(maxsize=4096)
def closes(window: Recurring, now: datetime) -> datetime | None:
    """Return when an open window closes, with those that follow on it; None = not foreseeable."""
    found = starts(window, now - window.duration - JUMP, now)
    end = max((_end(window, s) for s in found), default=now)
    ahead = starts(window, now, now + _YEAR)
    for start in islice(ahead, MOST_STARTS):
        if start > end + JUMP:
            return end
        if start <= end:
            end = max(end, _end(window, start))
    return end if next(ahead, None) is None else None


def dark(blackout: Blackout, now: datetime) -> bool:
    """Say whether a blackout is on."""
    if blackout.window is not None:
        return is_open(blackout.window, now)
    begun = blackout.start is None or blackout.start <= now
    return begun and (blackout.end is None or now < blackout.end)


def light(blackout: Blackout, now: datetime) -> datetime | None:
    """Return when a blackout that is on ends; None = not foreseeable."""
    return blackout.end if blackout.window is None else closes(blackout.window, now)


def _end(window: Recurring, start: datetime, which: Callable[..., datetime] = max) -> datetime:
    zone = ZoneInfo(window.timezone)
    wall = start.astimezone(zone).replace(tzinfo=None) + window.duration
    return which(start + window.duration, *moments(wall, zone))
