"""The hours of a week: when GPUs work, and when they are held and do not."""

from decimal import Decimal

import msgspec
import pyarrow as pa

from dashboards.figures.asking import Filters, ask
from fallow.seams import Views
from fallow.window import Window

OFFICE = (8, 20)
"""Office hours, Monday to Friday, UTC: what people call the day."""
MOST = 100


class Part(msgspec.Struct, frozen=True):
    """Office hours or the rest of the week: hours of the clock, GPU-hours and dollars."""

    in_office: bool
    hours: int
    gpu_hours: float
    usd: Decimal | None
    productive_gpu_hours: float
    idle_gpu_hours: float
    idle_usd: Decimal | None


def week(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per hour of the week that was accounted; they sum to the window's bill.

    Columns: weekday (1 = Monday), hour (UTC), days (that it was seen), gpu_hours, usd, GPU-hours
    and per cent of it productive, idle, free (with stranded) and unknown, idle_usd.
    """
    return ask(views, ("paid", "heatmap/week"), window, filters)


def halves(views: Views, window: Window, filters: Filters) -> tuple[Part, ...]:
    """Return office hours first, then the rest of the week; what was not seen is left out."""
    first, last = OFFICE
    steps = ("paid", "heatmap/halves")
    rows = ask(views, steps, window, filters, first=first, last=last).to_pylist()
    return tuple(Part(**row) for row in rows)


def teams(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return who holds GPUs idle outside office hours, the dearest first.

    Columns: team, idle_usd, idle_gpu_hours (outside), office_idle_gpu_hours, outside_pct.
    """
    first, last = OFFICE
    steps = ("paid", "heatmap/teams")
    return ask(views, steps, window, filters, first=first, last=last, most=MOST)
