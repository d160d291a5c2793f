"""Choose the window of a command: the requested one, the last days, or the data's own extent."""

import shlex
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from fallow.errors import EmptyWarehouseError, UsageError
from fallow.protocols import Views
from fallow.window import Window, format_duration, parse_duration, parse_timestamp
from warehouse import coverage
from warehouse.coverage import WindowCoverage

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

DEFAULT_LENGTH = timedelta(days=7)
"""The window of commands, and the one of which the service stores findings."""
SAMPLE_EVERY = timedelta(seconds=60)
STALE_AFTER = timedelta(hours=6)
"""If data end longer ago than this, the default window ends with them."""


def find_inventory_extent(views: Views, cluster: str | None = None) -> Window | None:
    """Return the time from the first poll of any node or pod to the last; None = no poll."""
    row = views.query(
        "SELECT min(first_seen) AS first, max(last_seen) AS last "
        "FROM (SELECT cluster, first_seen, last_seen FROM node "
        "UNION ALL SELECT cluster, first_seen, last_seen FROM pod) "
        "WHERE $cluster IS NULL OR cluster = $cluster",
        {"cluster": cluster},
    ).to_pylist()[0]
    if row["first"] is None or row["last"] is None:
        return None
    # An inventory may be a single poll: a window needs a length.
    last = max(row["last"], row["first"] + timedelta(seconds=1))
    return Window(row["first"].replace(tzinfo=UTC), last.replace(tzinfo=UTC))


def require_extent(views: Views, cluster: str | None = None, *, inventory: bool = False) -> Window:
    """Return the data's extent; with `inventory`, that of nodes and pods if no device has samples.

    Raises:
        EmptyWarehouseError: the warehouse has no telemetry.
        UsageError: it has none of this cluster.
    """
    coverage.require_cluster(views, cluster)
    data_extent = coverage.find_extent(views, cluster)
    if data_extent is None and inventory:
        data_extent = find_inventory_extent(views, cluster)
    if data_extent is None:
        if cluster is None:
            raise EmptyWarehouseError(
                "the warehouse holds no telemetry yet", hint="bring some in: fallow collect --once"
            )
        raise UsageError(
            f"the warehouse holds no telemetry of cluster {cluster!r}",
            hint=f"fallow doctor --cluster {shlex.quote(cluster)} says what it lacks",
        )
    return data_extent


def parse(text: str, now: datetime) -> Window:
    """Read a window as `coverage.parse_window` does, with relative ones until now.

    Raises:
        UsageError: the text is no window, or it is empty.
    """
    return coverage.parse_window(text, now, now)


def parse_since(text: str, now: datetime) -> Window:
    """Read `30d`, a month, `START/END`, or the time from which a window goes on until now.

    Raises:
        UsageError: the text is none of these, or the window is empty.
    """
    if "/" in text or text in coverage.MONTHS:
        return parse(text, now)
    return Window(parse_timestamp(text, now=now), now)


def choose(
    views: Views,
    text: str | None,
    now: datetime,
    cluster: str | None = None,
    *,
    inventory: bool = False,
) -> tuple[Window, str]:
    """Return the window and notes about it.

    Without `text`: the last seven days; if the data end more than `STALE_AFTER` ago, the last seven
    days of the data. With `inventory`, nodes and pods are enough where no device has samples.

    Raises:
        EmptyWarehouseError: the warehouse has no telemetry.
        UsageError: the text is not a window, or no data lie in it.
    """
    data_extent = require_extent(views, cluster, inventory=inventory)
    if text is not None:
        requested = parse(text, now)
        coverage.require_data(requested, data_extent, cluster)
        return requested, format_window(requested)
    if data_extent.start >= now:
        return (
            data_extent,
            f"{format_window(data_extent)}: all there is, for nothing lies in the last 7d",
        )
    end = min(now, data_extent.end)
    window = Window(max(end - DEFAULT_LENGTH, data_extent.start), end)
    old = f": the data end {format_duration((now - end).total_seconds())} ago"
    return window, format_window(window) + (old if now - end > STALE_AFTER else "")


class CoveredHours(msgspec.Struct, frozen=True):
    """The hours that figures cover.

    `window` is whole hours, as in the ledger; `judged` is the part of it that analyzers judge:
    nothing after now or after the newest data, unless it was requested.
    """

    window: Window
    judged: Window
    notes: tuple[str, ...]
    coverage: WindowCoverage


def find_covered_hours(
    views: Views,
    text: str | None,
    now: datetime,
    cluster: str | None = None,
    *,
    inventory: bool = False,
    lag: timedelta = STALE_AFTER,
    every: timedelta = SAMPLE_EVERY,
) -> CoveredHours:
    """Return the hours that figures of the requested window cover, and notes about them.

    `7d` (and no text) ends at the newest hour in the ledger, where a cluster that is more than
    `lag` behind the newest one does not count; `7d/now` ends now. Data are stale if the newest
    sample is older than three intervals, or than three times `every`.

    Raises:
        UsageError: as `choose`.
    """
    newest = coverage.find_newest(views, lag, cluster)
    data_extent = coverage.find_extent(views, cluster)
    relative = (
        (text is None or "/" not in text) and data_extent is not None and data_extent.start < now
    )
    if newest is None or data_extent is None or not relative:
        relative = False
        requested, note = choose(views, text, now, cluster, inventory=inventory)
        window = requested.whole()
        if window != requested:
            note = f"{format_window(window)}: the ledger has whole hours; requested was {note}"
    else:
        end = min(newest.end, now.replace(minute=0, second=0, microsecond=0) + coverage.HOUR)
        requested = coverage.parse_window(text or "7d", now, end)
        if text is None:
            requested = Window(
                max(requested.start, min(data_extent.start, end - coverage.HOUR)), end
            )
        window = requested.whole()
        note = format_window(window)
    covered = coverage.measure_coverage(views, window, newest.behind if newest else {}, cluster)
    note += f"; {covered.spoken}"
    if relative and now > window.end and text != coverage.LAST_MONTH:
        age = format_duration((now - window.end).total_seconds())
        note += f"; the newest hour in the ledger ended {age} ago"
    stale = coverage.name_stale(coverage.read_ages(views, cluster), now, every)
    notes = (note, *covered.late(now), *(f"STALE: {line}" for line in stale))
    until = min(window.end, now, data_extent.end if data_extent else now)
    if not relative:
        until = max(until, requested.end)
    elif until <= window.start:
        until = window.end
    return CoveredHours(window, Window(window.start, until), notes, covered)


def find_ledger_hours(
    warehouse: "Warehouse", text: str | None, now: datetime, cluster: str | None = None
) -> CoveredHours:
    """Return the covered hours with the lag and the interval of the warehouse's settings.

    Raises:
        UsageError: as `choose`.
    """
    settings = warehouse.settings
    lag, every = settings.ledger.max_lag, settings.service.collect_every
    return find_covered_hours(warehouse, text, now, cluster, lag=lag, every=every)


def end_window(window: str | None, until: str | None, now: datetime) -> str | None:
    """Return the text of a window that ends at `until`: `now`, a timestamp, or a duration ago.

    Raises:
        UsageError: the window is no length, or `until` is no time.
    """
    if until is None:
        return window
    if window is not None and ("/" in window or window in coverage.MONTHS):
        raise UsageError(
            f"--until goes with a length, not with --window {window}",
            hint="--window 7d --until now",
        )
    end = parse_timestamp(until, now=now)
    start = end - (parse_duration(window) if window else DEFAULT_LENGTH)
    return f"{start.isoformat()}/{end.isoformat()}"


def format_window(window: Window) -> str:
    """Return a window as a short text."""
    length = format_duration(window.seconds)
    return f"{coverage.format_span(window)} ({length})"
