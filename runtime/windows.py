"""Which window a command looks at: the one asked for, the last days, or the data's own extent."""

from datetime import UTC, datetime, timedelta

from fallow.errors import UsageError
from fallow.seams import Views
from fallow.window import Window, format_duration, parse_duration, parse_moment

LAST = timedelta(days=7)


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
    if "/" not in text:
        return Window.last(parse_duration(text), now=now)
    start, _, end = text.partition("/")
    return Window(parse_moment(start, now=now), parse_moment(end or "now", now=now))


def choose(
    views: Views,
    text: str | None,
    now: datetime,
    cluster: str | None = None,
    *,
    inventory: bool = False,
) -> tuple[Window, str]:
    """Return the window and what to say about it.

    Without `text`: the last seven days; where nothing lies in them, all there is. With
    `inventory`, nodes and pods will do where no device was ever looked at.

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
    last = Window.last(LAST, now=now)
    if held.end <= last.start or held.start >= last.end:
        return held, f"{spoken(held)}: all there is, for nothing lies in the last 7d"
    start = max(last.start, held.start)
    return Window(start, min(now, held.end)), spoken(Window(start, min(now, held.end)))


def spoken(window: Window) -> str:
    """Write a window as people say it."""
    length = format_duration(window.seconds)
    return f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC ({length})"
