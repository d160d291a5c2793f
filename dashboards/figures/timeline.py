"""Show one workload, node or device over time: what it held, how it used it, what it cost."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures.query import BY_DAY, BY_DEVICE, COVERED, Filters, run_query
from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.window import Window
from warehouse.ledger import align_window
from warehouse.steps import POD_OWNERS

KEYS = ("workload", "node", "device")
FINE = timedelta(hours=36)
"""Windows up to this length are shown in steps of five minutes."""
STEPS_H = (1, 2, 3, 6, 12, 24, 48, 168)
MOST_STEPS, MOST, MOST_EVENTS = 500, 500, 1000
PAID = (*BY_DEVICE, "timeline/subject")
PAID_BY_DAY = (*BY_DAY, "timeline/subject")
"""The same of the kept totals by day: of a workload or a node, not of a device."""


class TimelineSubject(msgspec.Struct, frozen=True):
    """The subject: of several names, what they have in common. `workload` as in `fallow spend`."""

    workload: str | None = None
    node: str | None = None
    device: str | None = None

    def __bool__(self) -> bool:
        """Whether any subject is named."""
        return bool(self.workload or self.node or self.device)


class TimelineTotals(msgspec.Struct, frozen=True):
    """A subject's window in one row; dollars None = no part of it has a price."""

    gpu_hours: float
    usd: Decimal | None
    productive_gpu_hours: float
    idle_gpu_hours: float
    idle_usd: Decimal | None
    unknown_gpu_hours: float
    nodes: int
    devices: int
    workloads: int
    team: str | None


def list_subjects(
    views: Views,
    window: Window,
    filters: Filters,
    subject: TimelineSubject,
    key: str,
    *,
    search: str = "",
) -> pa.Table:
    """Return the possible subjects whose names contain a text, the highest idle cost first.

    Columns: cluster, name, team, gpu_hours, idle_gpu_hours, usd, idle_usd.

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"there is no timeline of {key!r}", hint=f"legal: {', '.join(KEYS)}")
    paid = PAID if subject.device or key == "device" else PAID_BY_DAY
    return _query_timeline(
        views,
        (*paid, "timeline/subjects"),
        window,
        filters,
        subject,
        by=key,
        search=search,
        most=MOST,
    )


def find_workloads(views: Views, window: Window, filters: Filters, search: str) -> pa.Table:
    """Return the workloads whose names contain a text, with the columns of `list_subjects`."""
    return list_subjects(views, window, filters, TimelineSubject(), "workload", search=search)


def read_totals(
    views: Views, window: Window, filters: Filters, subject: TimelineSubject
) -> TimelineTotals:
    """Return the subject in one row; it equals `fallow spend` of the subject."""
    rows = _query_timeline(views, (*PAID, "timeline/totals"), window, filters, subject).to_pylist()
    return TimelineTotals(**rows[0])


def read_states(
    views: Views, window: Window, filters: Filters, subject: TimelineSubject
) -> pa.Table:
    """Return at, later (UTC), state, gpu_hours, usd, gpus and usd_h (means) by step."""
    return _query_timeline(
        views,
        (*PAID, COVERED, "timeline/states"),
        window,
        filters,
        subject,
        step_s=3600 * choose_step_h(window),
    )


def read_places(
    views: Views, window: Window, filters: Filters, subject: TimelineSubject
) -> pa.Table:
    """Return which workload had which device, the most GPU-hours first, unallocated last.

    Columns: cluster, workload, team, node, device, model, first_hour, last_hour (UTC), gpu_hours,
    idle_gpu_hours, usd, idle_usd.
    """
    return _query_timeline(views, (*PAID, "timeline/places"), window, filters, subject, most=MOST)


def read_measures(
    views: Views, window: Window, filters: Filters, subject: TimelineSubject
) -> pa.Table:
    """Return the telemetry, a row per step; null = no samples.

    Columns: at (UTC), activity_pct (mean of the devices), most_pct
    and least_pct (highest value and lowest mean of a device), memory_gb and power_w (of
    the devices together: whole ones, also where shared), temp_c (hottest), clock_mhz
    (mean of the SM clocks) and least_clock_mhz, xid (largest code that a device shows; null =
    none), devices.
    """
    fine = align_window(window).seconds <= FINE.total_seconds()
    rolled = f"timeline/{'fine' if fine else 'coarse'}/rolled"
    steps = ("timeline/allocations", rolled, "timeline/device_rollups", "timeline/measures")
    sample_every_s = 300 if fine else 3600
    step_s = sample_every_s if fine else sample_every_s * choose_step_h(window)
    return _query_timeline(
        views, steps, window, filters, subject, sample_every_s=sample_every_s, step_s=step_s
    )


def read_events(
    views: Views, window: Window, filters: Filters, subject: TimelineSubject
) -> pa.Table:
    """Return the events, the newest first: at (UTC), kind, detail, and the id of what it shows.

    The id is in the column incident or finding; both are null for events of pods and nodes.
    """
    return _query_timeline(
        views, (POD_OWNERS, "timeline/events"), window, filters, subject, most=MOST_EVENTS
    )


def choose_step_h(window: Window) -> int:
    """Return the hours of a step: at most `MOST_STEPS` fit into the window."""
    hours = align_window(window).seconds / 3600
    return next((step for step in STEPS_H if hours / step <= MOST_STEPS), STEPS_H[-1])


def _query_timeline(
    views: Views,
    steps: tuple[str, ...],
    window: Window,
    filters: Filters,
    subject: TimelineSubject,
    **more: Any,
) -> pa.Table:
    return run_query(views, steps, window, filters, **msgspec.structs.asdict(subject), **more)
