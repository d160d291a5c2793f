"""Compute when a schedule is due by the wall clock of its zone, which may change.

A time that the clock skips is due after the change. A time that the clock shows twice is due once,
the first time, so that no report is sent twice.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.triggers.base import BaseTrigger

from fallow.crontab import JUMP, find_next_start, parse_triggers, to_utc_times
from fallow.settings.reports import Schedule

_EPSILON = timedelta(microseconds=1)
_LOOKBACKS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=366 * 5))
"""How far back the latest due time is searched: short spans first, so that few times are passed."""


def find_next_due(schedule: Schedule, timestamp: datetime) -> datetime | None:
    """Return the first due time of a schedule after this one; None = no further one."""
    zone, triggers = ZoneInfo(schedule.time_zone), parse_triggers(schedule.cron)
    wall: datetime | None = timestamp.astimezone(zone).replace(tzinfo=None) - JUMP
    while wall is not None and (wall := find_next_start(triggers, wall)) is not None:
        if (due := to_utc_times(wall, zone)[0]) > timestamp:
            return due
    return None


def find_latest_due(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """Return the last due time up to now, from `first` on, which is itself a due time."""
    for lookback in _LOOKBACKS:
        begin = max(first, now - lookback) - _EPSILON
        last_due, due = None, find_next_due(schedule, begin)
        while due is not None and due <= now:
            last_due, due = due, find_next_due(schedule, due)
        if last_due is not None:
            return last_due
    return first


class WallClockTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """A schedule as an APScheduler trigger."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> Any:
        """Return the next due time: after the previous one, or from now on."""
        return find_next_due(self.schedule, previous or now.astimezone(UTC) - _EPSILON)
