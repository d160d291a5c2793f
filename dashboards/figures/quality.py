"""Show data quality: collectors, coverage, lag, and what the ledger does not know."""

from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from dashboards.figures.query import BY_HOUR, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

MOST = 500


class LedgerDoubts(msgspec.Struct, frozen=True):
    """Doubtful GPU-hours of the window, the oldest price, and devices without recent samples."""

    gpu_hours: float
    unknown_gpu_hours: float
    unpriced_gpu_hours: float
    ownerless_gpu_hours: float
    """Busy or idle, without a known owner."""
    oldest_price: datetime | None
    last_hour: datetime | None
    silent_devices: int | None
    """Devices with samples in the day before the window's end, but not in its last hour."""


def read_collectors(views: Views, window: Window, filters: Filters, now: datetime) -> pa.Table:
    """Return the results of every collector's scrapes and polls, the worst first.

    Columns: cluster, collector, targets, scrapes (or polls), up_pct, last_success (UTC),
    lag_min (minutes from it to now), samples, rejected, clipped, seconds (median duration),
    targets_failed, error.
    """
    timestamp = now.astimezone(UTC).replace(tzinfo=None)
    return run_query(views, ("quality/collectors",), window, filters, most=MOST, now=timestamp)


def read_limits(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the limits that refused scrapes, the most frequent first.

    Columns: cluster, collector, limit_name (such as sample_limit), targets, scrapes, last_refusal
    (UTC), error (the newest).
    """
    return run_query(views, ("quality/limits",), window, filters, most=MOST)


def read_coverage(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per hour: coverage_pct (samples over expected samples), conflict_pct, blind_pct.

    Conflict: signals contradict each other; blind: there are samples, but no compute signal.
    """
    return run_query(views, ("quality/coverage",), window, filters)


def read_ledger_doubts(views: Views, window: Window, filters: Filters) -> LedgerDoubts:
    """Return what is not known about the window's GPU-hours."""
    return LedgerDoubts(
        **run_query(views, (*BY_HOUR, "quality/ledger_state"), window, filters).to_pylist()[0]
    )
