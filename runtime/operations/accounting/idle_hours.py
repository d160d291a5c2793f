"""Keep the idle rows of the hours that were accounted, so that no question reads them again."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from analyzers.idle import kept_rows
from analyzers.idle.kept_hours import derive_rows
from fallow.window import Window
from warehouse import idle_rows, signals
from warehouse.lost_idle_rows import replace_lost_rows

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

LEAST_DEVICES = 500
"""A month of five-minute rows of fewer devices is judged in three seconds without kept rows."""

MOST_OLD_HOURS = 24
"""Hours of before that one pass adds: an upgraded home and a changed setting are filled so."""


def keep_idle_hours(warehouse: "Warehouse", *, most_hours: int | None = MOST_OLD_HOURS) -> int:
    """Keep the rows of the newest whole hours that have signals and no rows; return how many hours.

    Hours older than `idle.history` are left out. `most_hours`: None = all others. Small fleets have
    none.
    """
    if signals.read_fleet(warehouse).devices < LEAST_DEVICES:
        return 0
    replace_lost_rows(warehouse)
    shape = kept_rows.name_shape(warehouse.settings.idle)
    missing = _list_missing(warehouse, shape)[-most_hours if most_hours else None :]
    for hours in _join_hours(missing):
        write_hours(warehouse, hours)
    return len(missing)


def write_hours(warehouse: "Warehouse", hours: Window) -> int:
    """Write the rows of whole hours of one day, which have signals; return how many."""
    idle = warehouse.settings.idle
    rows = derive_rows(warehouse, hours, idle)
    return idle_rows.write_idle_rows(warehouse, rows, hours, kept_rows.name_shape(idle))


def _list_missing(warehouse: "Warehouse", shape: str) -> list[datetime]:
    """Return the starts of the hours to keep, the oldest first."""
    now = warehouse.clock().astimezone(UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0)
    since = now - warehouse.settings.idle.history
    bounds = {"since": since, "until": now, "shape": shape}
    sql = (
        "SELECT min(bucket) AS first, max(bucket) + INTERVAL 5 MINUTE AS last FROM signal"
        " WHERE bucket >= $since AND bucket < $until"
    )
    span = warehouse.query(sql, {"since": since, "until": now}).to_pylist()[0]
    if span["first"] is None:
        return []
    sql = "SELECT bucket FROM idle_hour WHERE shape = $shape AND bucket BETWEEN $since AND $until"
    listed = warehouse.query(sql, bounds)
    kept_hours = {*listed["bucket"].to_pylist()}
    first = span["first"].replace(minute=0, second=0, microsecond=0)
    hours = [first + number * HOUR for number in range((span["last"] - first) // HOUR)]
    return [hour for hour in hours if hour not in kept_hours]


def _join_hours(hours: list[datetime]) -> Iterator[Window]:
    """Yield hours one after another as windows within a day: a file has the rows of one."""
    windows: list[Window] = []
    for start in (hour.replace(tzinfo=UTC) for hour in hours):
        last = windows[-1] if windows else None
        if last is not None and last.end == start and last.start.date() == start.date():
            windows[-1] = Window(last.start, start + HOUR)
        else:
            windows.append(Window(start, start + HOUR))
    return reversed(windows)
