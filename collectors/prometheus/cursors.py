"""Record how much of a server's history is stored, and find what is left to read.

A cursor row means: everything from the timestamp in its name up to `done_until` has been stored.
Its name is `prometheus <url>[{selector}] <part> since <timestamp>`. So a second backfill that
starts earlier queries only what is missing, and a live run continues where it stopped.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from fallow.window import Window

_FORM = "%Y-%m-%dT%H:%M:%SZ"
_SINCE = " since "


class Piece(msgspec.Struct, frozen=True):
    """A stretch that is not read yet, its cursor's name, and the anchor of its grid of chunks."""

    window: Window
    source: str
    anchor: datetime

    def chunks(self, step: timedelta) -> Iterator[Window]:
        """Cut into windows that end on the anchor's grid: a resumed run cuts at the same times."""
        start = self.window.start
        while start < self.window.end:
            whole = (start - self.anchor) // step + 1
            end = min(self.anchor + whole * step, self.window.end)
            yield Window(start, end)
            start = end


def name(prefix: str, since: datetime) -> str:
    """Return the name of the cursor that began at a timestamp."""
    return f"{prefix}{_SINCE}{since.astimezone(UTC).strftime(_FORM)}"


def list_pieces(
    window: Window,
    prefix: str,
    cursors: Mapping[str, datetime],
    *,
    overlap: timedelta = timedelta(),
    settled_until: datetime | None = None,
) -> list[Piece]:
    """Return the parts of a window that are not done, in time order.

    A cursor later than `settled_until` is young: the `overlap` before it is queried again, to get
    rows that arrived late (rows that exist already are stored once). Older data are final.
    """
    stretches = sorted(
        (since, min(until, window.end), source)
        for source, until in cursors.items()
        if (since := _find_start(source, prefix)) is not None and since < until
    )
    left: list[Piece] = []
    at, source, anchor = window.start, name(prefix, window.start), window.start
    for since, until, cursor_name in stretches:
        if until < at or since >= window.end:
            continue
        if since > at:
            left.append(Piece(Window(at, since), source, anchor))
        at, source, anchor = until, cursor_name, since
    if at < window.end:
        young = source in cursors and settled_until is not None and at > settled_until
        again = max(at - overlap, window.start) if young else at
        left.append(Piece(Window(again, window.end), source, anchor))
    return left


def join_cursor(
    window: Window,
    prefix: str,
    cursors: Mapping[str, datetime],
    *,
    within: timedelta,
    overlap: timedelta = timedelta(),
) -> Window:
    """Let a window begin at a cursor that ends at most this long before the window.

    Consecutive passes leave out the newest data, so without this there would be gaps between them.
    """
    near = [
        (until, since)
        for source, until in cursors.items()
        if (since := _find_start(source, prefix)) is not None
        and window.start - within <= until < window.start
    ]
    if not near:
        return window
    until, since = max(near)
    return Window(max(until - overlap, since), window.end)


def _find_start(source: str, prefix: str) -> datetime | None:
    if not source.startswith(prefix + _SINCE):
        return None
    text = source.removeprefix(prefix + _SINCE)
    try:
        return datetime.strptime(text, _FORM).replace(tzinfo=UTC)
    except ValueError:
        return None
