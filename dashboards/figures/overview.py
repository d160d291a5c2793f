"""Compute the overview: a window beside the one before it."""

from decimal import Decimal
from typing import TypeVar

import msgspec

from dashboards.figures.query import BY_HOUR, Filters, run_query
from fallow.models import WASTED
from fallow.protocols import Views
from fallow.window import Window
from warehouse.ledger import align_window

Amount = TypeVar("Amount", float, Decimal)


class PeriodTotals(msgspec.Struct, frozen=True):
    """A window in one row; paid = used + wasted + unknown. Dollars None = no part has a price."""

    days: int
    """Days with any accounted hour."""
    clusters: int
    """Clusters with any: periods with different ones are not compared."""
    gpu_hours: float
    usd: Decimal | None
    used_gpu_hours: float
    """Productive, below target or starting up."""
    used_usd: Decimal | None
    wasted_gpu_hours: float
    wasted_usd: Decimal | None
    unknown_gpu_hours: float
    productive_gpu_hours: float
    allocated_gpu_hours: float


def read_totals(views: Views, window: Window, filters: Filters) -> PeriodTotals:
    """Return a window in one row; its dollars are those of `spend.totals`."""
    steps = (*BY_HOUR, "overview/period")
    (row,) = run_query(views, steps, window, filters, wasted=[*WASTED]).to_pylist()
    return PeriodTotals(**row)


def get_window_before(window: Window) -> Window:
    """Return the window of the same length that ends where this one begins."""
    whole = align_window(window)
    return Window(whole.start - (whole.end - whole.start), whole.start)


def change(now: Amount | None, before: Amount | None) -> float | None:
    """Return a change as a share of the value before; None = unknown, or nothing was before."""
    if now is None or not before:
        return None
    return float(now) / float(before) - 1
