"""Read quiet hours, which are written as days, times and a zone.

Examples: `22:00-07:00 Europe/Berlin`, `sat-sun UTC`, `mon-fri 00:00-08:00 America/Denver`.
Times are wall-clock times of their zone, so that they follow summer time. A window whose end is
before its start ends on the next day.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from fallow.errors import UsageError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TEXT = re.compile(
    r"(?:(?P<days>[a-z]{3}(?:-[a-z]{3})?)\s+)?(?:(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)\s+)?"
    r"(?P<zone>[A-Za-z0-9_+/-]+)"
)
_LONGEST = 60
"""Windows that follow each other without a gap, at which the quiet hours never end."""


class QuietHours(msgspec.Struct, frozen=True):
    """Some hours of some days, by the clock of a zone."""

    days: frozenset[int]
    """Days on which they begin; 0 = Monday."""
    start: time
    end: time
    zone: str

    def until(self, now: datetime) -> datetime | None:
        """Return when the current quiet hours end, None = there are none now."""
        at = now
        for _ in range(_LONGEST):
            end = self._end(at)
            if end is None:
                return None if at == now else at
            at = end
        return at

    def _end(self, at: datetime) -> datetime | None:
        local = at.astimezone(ZoneInfo(self.zone))
        ends = [self._over(day) for day in (local.date() - timedelta(days=1), local.date())]
        return max((e for s, e in filter(None, ends) if s <= at < e), default=None)

    def _over(self, day: date) -> tuple[datetime, datetime] | None:
        if day.weekday() not in self.days:
            return None
        zone = ZoneInfo(self.zone)
        last = day if self.end > self.start else day + timedelta(days=1)
        start = datetime.combine(day, self.start, zone).astimezone(UTC)
        return start, datetime.combine(last, self.end, zone).astimezone(UTC)


def parse_quiet_hours(text: str) -> QuietHours:
    """Read quiet hours.

    Raises:
        UsageError: the text is not valid; the message names the legal form.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None or (match["days"] is None and match["start"] is None):
        raise _explain_wrong(text, "write days, hours or both, then a time zone")
    try:
        ZoneInfo(match["zone"])
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _explain_wrong(text, f"there is no time zone {match['zone']!r}") from error
    midnight = time(0)
    try:
        start = time.fromisoformat(match["start"]) if match["start"] else midnight
        end = time.fromisoformat(match["end"]) if match["end"] else midnight
    except ValueError as error:
        raise _explain_wrong(text, "hours are 00:00 to 23:59") from error
    return QuietHours(_parse_days(text, match["days"]), start, end, match["zone"])


def _parse_days(text: str, day_text: str | None) -> frozenset[int]:
    if day_text is None:
        return frozenset(range(7))
    names = day_text.split("-")
    if any(name not in DAYS for name in names):
        raise _explain_wrong(text, f"days are {', '.join(DAYS)}")
    first, last = DAYS.index(names[0]), DAYS.index(names[-1])
    return frozenset((first + n) % 7 for n in range((last - first) % 7 + 1))


def _explain_wrong(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} are no quiet hours: {why}",
        hint="such as 22:00-07:00 Europe/Berlin, sat-sun UTC, mon-fri 00:00-08:00 America/Denver",
    )
