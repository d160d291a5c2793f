"""Compare a window with the one before it."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeVar

from fallow.protocols import Views
from fallow.window import Window, format_duration, get_month_start
from warehouse.coverage import measure_coverage
from warehouse.ledger import align_window

MICROSECOND = timedelta(microseconds=1)
WEEK = timedelta(days=7)
Amount = TypeVar("Amount", float, Decimal)


def get_window_before(window: Window) -> Window:
    """Return the window to compare with: of the same length, ending where this one begins.

    Of a calendar month (UTC) it is the month before: the whole of it, or as many of its first days
    as this month has so far.
    """
    whole = align_window(window)
    if not is_month(whole):
        return Window(whole.start - (whole.end - whole.start), whole.start)
    first = get_month_start(whole.start - MICROSECOND)
    if whole.end == _get_month_end(whole.start):
        return Window(first, whole.start)
    return Window(first, min(first + (whole.end - whole.start), whole.start))


def is_month(window: Window) -> bool:
    """Return whether a window is a calendar month (UTC), whole or so far.

    What begins on the first is a month so far only from the eighth day on and between whole weeks:
    a day or a week is compared with the one before, whatever its date.
    """
    first, length = get_month_start(window.start), window.end - window.start
    if window.start != first:
        return False
    is_so_far = length > WEEK and bool(length % WEEK) and window.end < _get_month_end(first)
    return is_so_far or window.end == _get_month_end(first)


def describe_window_before(window: Window) -> str:
    """Return in words what a window is compared with."""
    before = get_window_before(window)
    if not is_month(align_window(window)):
        return f"the {format_duration(before.seconds)} before"
    if before.end == get_month_start(window.start):
        return f"{before.start:%B %Y}"
    return f"the first {format_duration(before.seconds)} of {before.start:%B %Y}"


def explain_incomparable(views: Views, window: Window, cluster: str | None) -> str:
    """Return why a window has no change against the one before it; "" = it can be compared.

    Every hour of both needs data of every cluster, and of the same ones.
    """
    earlier, clusters = describe_window_before(window), []
    for period, words in ((get_window_before(window), earlier), (window, "this period")):
        data = measure_coverage(views, period, {}, cluster)
        clusters.append(len(data.clusters))
        if not data.clusters:
            return f"no data of {words}"
        if data.hours_with_data < data.hours:
            return f"only {data.hours_with_data} of {data.hours} h of {words} have data"
    before, now = clusters
    return f"data of {earlier} of only {before} of {now} clusters" if before < now else ""


def _get_month_end(first: datetime) -> datetime:
    return get_month_start(first + timedelta(days=31))


def change(now: Amount | None, before: Amount | None) -> float | None:
    """Return a change as a share of the value before; None = unknown, or nothing was before."""
    if now is None or not before:
        return None
    return float(now) / float(before) - 1
