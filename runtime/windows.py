"""Which window a command looks at: the one asked for, the last days, or the data's own extent."""

from datetime import UTC, datetime, timedelta

import msgspec

from fallow.errors import UsageError
from fallow.seams import Views
from fallow.window import Window, format_duration, parse_duration, parse_moment
from warehouse import coverage
from warehouse.coverage import Coverage

LAST = timedelta(days=7)
OFTEN = timedelta(seconds=60)
OLD = timedelta(hours=6)
"""Data that end longer ago than this end the default window."""


def extent(views: Views, cluster: str | None = None) -> Window | None:
    """Return from the first look at any device to the end of the last; None = no look at all."""
    row = views.query(
        "SELECT min(first_seen) AS first, max(last_seen) AS last FROM device "
        "WHERE $cluster IS NULL OR cluster = $cluster",
        {"cluster": cluster},
    ).to_pylist()[0]
    if row["first"] is None or row["last"] is None or row["last"] <= row["first"]:
        return None
    return Window(row["first"].replace(tzinfo=UTC), row["last"].replace(tzinfo=UTC))


def inventory_extent(views: Views, cluster: str | None = None) -> Window | None:
    """Return from the first sight of any node or pod to the last; None = none was seen."""
    row = views.query(
        "SELECT min(first_seen) AS first, max(last_seen) AS last "
        "FROM (SELECT cluster, first_seen, last_seen FROM node "
        "UNION ALL SELECT cluster, first_seen, last_seen FROM pod) "
        "WHERE $cluster IS NULL OR cluster = $cluster",
        {"cluster": cluster},
    ).to_pylist()[0]
    if row["first"] is None or row["last"] is None:
        return None
    # An inventory may be one look: a window needs a length.
    last = max(row["last"], row["first"] + timedelta(seconds=1))
    return Window(row["first"].replace(tzinfo=UTC), last.replace(tzinfo=UTC))


def parse(text: str, now: datetime) -> Window:
    """Read `7d` (the last seven days) or `START/END` (moments, or durations ago).

    Raises:
        UsageError: the text is neither, or the window is empty.
    """
    return coverage.requested(text, now, now)


def choose(
    views: Views,
    text: str | None,
    now: datetime,
    cluster: str | None = None,
    *,
    inventory: bool = False,
) -> tuple[Window, str]:
    """Return the window and what to say about it.

    Without `text`: the last seven days; where the data end more than `OLD` ago, the last seven
    days of the data. With `inventory`, nodes and pods will do where no device was ever looked at.

    Raises:
        UsageError: the text is no window, or the warehouse holds no telemetry.
    """
    held = extent(views, cluster)
    if held is None and inventory:
        held = inventory_extent(views, cluster)
    if held is None:
        what = "no telemetry" if cluster is None else f"no telemetry of cluster {cluster!r}"
        raise UsageError(
            f"the warehouse holds {what}",
            hint="fallow import, fallow collect --once or fallow demo bring some in",
        )
    if text is not None:
        asked = parse(text, now)
        if asked.end <= held.start or asked.start >= held.end:
            return asked, f"{spoken(asked)}: nothing lies there; the data are {spoken(held)}"
        return asked, spoken(asked)
    if held.start >= now:
        return held, f"{spoken(held)}: all there is, for nothing lies in the last 7d"
    end = min(now, held.end)
    found = Window(max(end - LAST, held.start), end)
    old = f": the data end {format_duration((now - end).total_seconds())} ago"
    return found, spoken(found) + (old if now - end > OLD else "")


class Span(msgspec.Struct, frozen=True):
    """The hours that figures cover.

    `window` is whole hours, as the ledger has them; `judged` is as much of it as analyzers judge:
    nothing after now or after the newest data, unless it was requested.
    """

    window: Window
    judged: Window
    notes: tuple[str, ...]
    coverage: Coverage


def figures(
    views: Views,
    text: str | None,
    now: datetime,
    cluster: str | None = None,
    *,
    inventory: bool = False,
    lag: timedelta = OLD,
    every: timedelta = OFTEN,
) -> Span:
    """Return the hours that figures of the requested window cover, and what to say about them.

    `7d` (and no text) ends at the newest hour in the ledger, where a cluster that is more than
    `lag` behind the newest one does not count; `7d/now` ends now. Data are stale where the newest
    sample is older than three intervals, or than three `every`.

    Raises:
        UsageError: as `choose`.
    """
    newest = coverage.newest(views, lag, cluster)
    held = extent(views, cluster)
    relative = (text is None or "/" not in text) and held is not None and held.start < now
    if newest is None or held is None or not relative:
        relative = False
        asked, note = choose(views, text, now, cluster, inventory=inventory)
        window = asked.whole()
        if window != asked:
            note = f"{spoken(window)}: the ledger has whole hours; requested was {note}"
    else:
        end = min(newest.end, now.replace(minute=0, second=0, microsecond=0) + coverage.HOUR)
        asked = coverage.requested(text or "7d", now, end)
        if text is None:
            asked = Window(max(asked.start, min(held.start, end - coverage.HOUR)), end)
        window = asked.whole()
        note = spoken(window)
    known = coverage.coverage(views, window, newest.behind if newest else {}, cluster)
    note += f"; {known.spoken}"
    if relative and now > window.end:
        age = format_duration((now - window.end).total_seconds())
        note += f"; the newest hour in the ledger ended {age} ago"
    stale = coverage.stale(coverage.ages(views, cluster), now, every)
    notes = (note, *known.late(now), *(f"STALE: {line}" for line in stale))
    until = min(window.end, now, held.end if held else now)
    if not relative:
        until = max(until, asked.end)
    elif until <= window.start:
        until = window.end
    return Span(window, Window(window.start, until), notes, known)


def ending(window: str | None, until: str | None, now: datetime) -> str | None:
    """Return the text of a window that ends at `until`: `now`, a moment, or a duration ago.

    Raises:
        UsageError: the window is no length, or `until` is no moment.
    """
    if until is None:
        return window
    if window is not None and "/" in window:
        raise UsageError(
            f"--until goes with a length, not with --window {window}",
            hint="--window 7d --until now",
        )
    end = parse_moment(until, now=now)
    start = end - (parse_duration(window) if window else LAST)
    return f"{start.isoformat()}/{end.isoformat()}"


def spoken(window: Window) -> str:
    """Write a window as people say it."""
    length = format_duration(window.seconds)
    return f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC ({length})"
