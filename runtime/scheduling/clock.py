"""When a schedule is due by the wall clock of its zone, whose clock may jump.

A time that the clock skips comes when it has jumped; one that it shows twice comes once, the first
time: nobody wants a report twice.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.triggers.base import BaseTrigger

from fallow.crontab import JUMP, following, moments, parsed
from fallow.report_settings import Schedule

_MOMENT = timedelta(microseconds=1)
_LOOKS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=366 * 5))
"""How far back the latest due moment is looked for: near first, so that few are passed."""


def after(schedule: Schedule, moment: datetime) -> datetime | None:
    """Return the first moment after this one at which a schedule is due; None = never again."""
    zone, triggers = ZoneInfo(schedule.time_zone), parsed(schedule.cron)
    wall: datetime | None = moment.astimezone(zone).replace(tzinfo=None) - JUMP
    while wall is not None and (wall := following(triggers, wall)) is not None:
        if (due := moments(wall, zone)[0]) > moment:
            return due
    return None


def latest(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """Return the last due moment up to now, of those from `first` on, which is one."""
    for look in _LOOKS:
        begin = max(first, now - look) - _MOMENT
        found, due = None, after(schedule, begin)
        while due is not None and due <= now:
            found, due = due, after(schedule, due)
        if found is not None:
            return found
    return first


class Wall(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """A schedule as APScheduler asks for it."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> Any:
        """Return the next due moment: after the previous one, or from now on."""
        return after(self.schedule, previous or now.astimezone(UTC) - _MOMENT)
