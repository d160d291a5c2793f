"""Can the rest be relied upon: collectors, coverage, lag, and what of the books is not known."""

from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from dashboards.figures.query import Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

MOST = 500


class LedgerDoubts(msgspec.Struct, frozen=True):
    """GPU-hours of the window that are doubtful, the oldest price, and devices gone silent."""

    gpu_hours: float
    unknown_gpu_hours: float
    unpriced_gpu_hours: float
    ownerless_gpu_hours: float
    """Busy or idle, and nobody is known to hold them."""
    oldest_price: datetime | None
    last_hour: datetime | None
    silent_devices: int | None
    """Seen in the day before the window's end, and not in its last hour."""


def collectors(views: Views, window: Window, filters: Filters, now: datetime) -> pa.Table:
    """Return how every collector's looks went, the worst first.

    Columns: cluster, collector, targets, looks, up_pct, last_success (UTC), lag_min (minutes from
    it to now), samples, rejected, seconds (median of a look), targets_failed, error.
    """
    timestamp = now.astimezone(UTC).replace(tzinfo=None)
    return run_query(views, ("quality/collectors",), window, filters, most=MOST, now=timestamp)


def coverage(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per hour: coverage_pct (looks made of looks expected), conflict_pct, blind_pct.

    Conflict: witnesses contradict each other; blind: looked at, and no witness of compute.
    """
    return run_query(views, ("quality/coverage",), window, filters)


def ledger_doubts(views: Views, window: Window, filters: Filters) -> LedgerDoubts:
    """Return what of the window's GPU-hours is not known."""
    return LedgerDoubts(
        **run_query(views, ("paid", "quality/books"), window, filters).to_pylist()[0]
    )
