"""Define half-open UTC intervals, and read and write durations."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from fallow.errors import UsageError
from fallow.texts import CUT

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime(2012, 1, 1)  # noqa: DTZ001  (tables hold naive UTC)
"""No row of telemetry is older: a clock was not set, or a number is no time."""
YEARS = range(1970, 2200)
"""Years of telemetry; several of the longest durations before them are still dates."""
_LONGEST = timedelta(days=36_525)
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h|d|w))")


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `30m`, `1h30m`, `7d` or `57s`.

    Raises:
        UsageError: the text is not a duration, or it is zero or over a hundred years.
    """
    position, total = 0, timedelta()
    for match in _DURATION.finditer(text.strip()):
        if match.start() != position:
            break
        position = match.end()
        try:
            total += float(match.group(1)) * _UNITS[match.group(2)]
        except OverflowError:
            total = timedelta.max
    if position != len(text.strip()) or not text.strip() or total <= timedelta():
        raise UsageError(
            f"{text[:CUT]!r} is not a duration: write a number with ms, s, m, h, d or w",
            hint="30s, 5m, 1h30m and 7d are durations",
        )
    if total > _LONGEST:
        raise UsageError(f"{text[:CUT]!r} is too long: a hundred years, {_LONGEST.days}d, at most")
    return total


def format_duration(seconds: float) -> str:
    """Return seconds as a short text: 57s, 5m, 1h30m, 2d3h; of days no minutes."""
    return _format_seconds(round(seconds))


@lru_cache(maxsize=4096)
def _format_seconds(remaining: int) -> str:
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if parts and parts[0].endswith("d") and unit != "h":
            break
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def parse_timestamp(text: str, *, now: datetime) -> datetime:
    """Read an ISO 8601 timestamp, `now`, or a duration before now.

    Raises:
        UsageError: the text is none of these, or a time before 1970 or after 2199.
    """
    if text == "now":
        return now
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - parse_duration(text)
        except UsageError as error:
            raise UsageError(
                error.message.replace("is not a duration", "is not a duration, and no time"),
                hint=f"{error.hint}; 2026-11-20 and 2026-11-20T10:00 are times",
            ) from None
    if timestamp.year not in YEARS:
        years = f"{YEARS.start} to {YEARS.stop - 1}"
        raise UsageError(f"{text[:CUT]} is no time of telemetry", hint=f"legal: the years {years}")
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)


def get_month_start(timestamp: datetime) -> datetime:
    """Return the first midnight of a time's calendar month."""
    return timestamp.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


class Window(msgspec.Struct, frozen=True):
    """A half-open UTC interval [start, end)."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """Refuse naive timestamps and empty windows; convert the timestamps to UTC."""
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise UsageError("a window's times need a time zone", hint="use UTC")
        if self.end <= self.start:
            raise UsageError(f"the window ends ({self.end}) before it starts ({self.start})")
        for name in ("start", "end"):
            timestamp = getattr(self, name)
            if timestamp.tzinfo is not UTC:
                msgspec.structs.force_setattr(self, name, timestamp.astimezone(UTC))

    @classmethod
    def last(cls, duration: timedelta, *, now: datetime) -> "Window":
        """Return the window of this length that ends now."""
        return cls(now - duration, now)

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end - self.start).total_seconds()

    def bounds(self) -> dict[str, datetime]:
        """Return the ends as the parameters `since` and `until` of queries: naive UTC."""
        return {"since": self.start.replace(tzinfo=None), "until": self.end.replace(tzinfo=None)}

    def whole(self, size: timedelta = timedelta(hours=1)) -> "Window":
        """Return the window widened to whole buckets of this size, counted from 1970 in UTC."""
        remainder = (self.end - _EPOCH) % size
        end = self.end - remainder + size if remainder else self.end
        return Window(self.start - (self.start - _EPOCH) % size, end)

    def chunks(self, step: timedelta) -> list["Window"]:
        """Cut the window into consecutive windows of at most `step`."""
        windows: list[Window] = []
        start = self.start
        while start < self.end:
            end = min(start + step, self.end)
            windows.append(Window(start, end))
            start = end
        return windows
