"""Show the hours of a week: when GPUs work, and when they are allocated but idle."""

from decimal import Decimal

import msgspec
import pyarrow as pa

from dashboards.figures.query import BY_HOUR, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

MOST = 100


class Office(msgspec.Struct, frozen=True):
    """The time zone of the hours, and which hours, Monday to Friday, are office hours."""

    zone: str
    first: int
    last: int


class WeekPart(msgspec.Struct, frozen=True):
    """Office hours or the rest of the week: hours, GPU-hours and dollars."""

    in_office: bool
    hours: int
    gpu_hours: float
    usd: Decimal | None
    productive_gpu_hours: float
    idle_gpu_hours: float
    idle_usd: Decimal | None


def read_week(views: Views, window: Window, filters: Filters, office: Office) -> pa.Table:
    """Return a row per hour of the week that was accounted; they sum to the window's bill.

    Columns: weekday (1 = Monday), hour (in the office's zone), days (with data), gpu_hours, usd,
    GPU-hours and per cent of it productive, idle, free (with stranded) and unknown, idle_usd.
    """
    return _query_week(views, "week", window, filters, office)


def read_halves(
    views: Views, window: Window, filters: Filters, office: Office
) -> tuple[WeekPart, ...]:
    """Return office hours first, then the rest of the week; a part without data is left out."""
    rows = _query_week(views, "halves", window, filters, office).to_pylist()
    return tuple(WeekPart(**row) for row in rows)


def read_teams(views: Views, window: Window, filters: Filters, office: Office) -> pa.Table:
    """Return the teams with idle GPUs outside office hours, the most expensive first.

    Columns: team, idle_usd, idle_gpu_hours (outside), office_idle_gpu_hours, outside_pct.
    """
    return _query_week(views, "teams", window, filters, office, most=MOST)


def _query_week(
    views: Views, name: str, window: Window, filters: Filters, office: Office, **more: int
) -> pa.Table:
    steps = (*BY_HOUR, "heatmap/local_hours", f"heatmap/{name}")
    return run_query(views, steps, window, filters, **msgspec.structs.asdict(office), **more)
