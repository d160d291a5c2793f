"""Read cron expressions by the rules of crontab(5) for APScheduler, which differs in two ways.

In APScheduler 0 is Monday, and day of month and day of week must both match. In crontab 0 and 7 are
Sunday, and where both days are given one match is enough (as in Karpenter's budgets and in
Kubernetes).
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import starmap
from typing import Any
from zoneinfo import ZoneInfo

JUMP = timedelta(hours=3)
"""More than any clock changes at once."""
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_Field = tuple[str, int, int, dict[str, int]]
_FIELDS: tuple[_Field, ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: n for n, name in enumerate(_MONTHS, 1)}),
    ("day of week", 0, 7, {name: n for n, name in enumerate(_DAYS)}),
)
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * sun",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(\*|[a-z0-9]+(?:-[a-z0-9]+)?)(?:/(\d{1,3}))?")
_SMALLEST_STEP = timedelta(microseconds=1)
_SAMPLE = datetime(2024, 1, 1)  # noqa: DTZ001  (the wall's time: a place in no zone)


@lru_cache(maxsize=1024)
def parse_triggers(expression: str) -> tuple[Any, ...]:
    """Return the triggers of an expression: it starts whenever one of them fires.

    Raises:
        ValueError: the text is no cron expression; the message names the field and the legal
        values.
    """
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415  (0.1 s that --help saves)

    text = expression.strip().lower()
    fields = _MACROS.get(text, text).replace("?", "*").split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{expression!r} has {len(fields)} fields: write minute, hour, day of month, month "
            "and day of week, such as '0 9 * * mon-fri'"
        )
    values = list(starmap(_parse_values, zip(fields, _FIELDS, strict=True)))
    days, weekdays = fields[2], ",".join(sorted({_DAYS[n % 7] for n in values[4]}))
    first = {"minute": fields[0], "hour": fields[1], "month": fields[3], "timezone": UTC}
    has_both_days = not days.startswith("*") and not fields[4].startswith("*")
    choices = [{"day": days}, {"day_of_week": weekdays}]
    fields_wanted = choices if has_both_days else [{"day": days, "day_of_week": weekdays}]
    triggers = tuple(CronTrigger(**first, **choice) for choice in fields_wanted)
    if find_next_start(triggers, _SAMPLE) is None:
        raise ValueError(f"{expression!r} never comes: there is no such day")
    return triggers


def find_next_start(triggers: tuple[Any, ...], wall: datetime) -> datetime | None:
    """Return the first start after a timestamp, both as local wall-clock times; None = no start."""
    after = (wall + _SMALLEST_STEP).replace(tzinfo=UTC)
    times = [trigger.get_next_fire_time(None, after) for trigger in triggers]
    return min((f.replace(tzinfo=None) for f in times if f is not None), default=None)


def to_utc_times(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return when a clock shows a time: once, twice, or, for a skipped time, after the change."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first == second:
        return (first,)
    if first < second:
        return (first, second)
    low, high = second, first
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return (high.replace(microsecond=0),)


def _parse_values(text: str, field: _Field) -> set[int]:
    name, low, high, names = field
    legal = f"{low}-{high}" + (f" or {', '.join(names)}" if names else "")
    numbers: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{name} {part!r} is not legal: {legal}, also *, a-b, a,b and */n")
        span, step = match.group(1), match.group(2)
        first, _, last = span.partition("-")
        ends = (
            [low, high]
            if span == "*"
            else [_parse_number(w, field) for w in (first, last or first)]
        )
        if any(n is None or not low <= n <= high for n in ends):
            raise ValueError(f"{name} {part!r} is out of range: {legal}")
        start, end = (int(n or 0) for n in ends)
        if start > end:
            raise ValueError(f"{name} {part!r} ends before it starts: write two ranges with a ,")
        if step is not None and not 0 < int(step) <= high - low:
            raise ValueError(f"{name} {part!r} has a step that is not in 1-{high - low}")
        if step is not None and not last and span != "*":
            end = high
        numbers.update(range(start, end + 1, int(step or 1)))
    return numbers


def _parse_number(word: str, field: _Field) -> int | None:
    return int(word) if word.isdecimal() else field[3].get(word)
