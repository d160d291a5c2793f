"""Show the fleet now: every GPU's state in the newest accounted hour, and its idle cost."""

from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pyarrow as pa

from dashboards.figures.query import BY_DEVICE, COVERED, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

MOST_CELLS = 4500
"""With more GPUs than this, the GPUs of one node in one state are one cell."""
MOST_ROWS = 500
MOST_DEVICES = 20_000
FIVE_MINUTES, HOUR = timedelta(minutes=5), timedelta(hours=1)
LIVE = (*BY_DEVICE, COVERED, "fleet/span")
"""The steps of what was paid in an hour, and how much of it is accounted."""


class StateRate(msgspec.Struct, frozen=True):
    """One state now: GPUs in it, and what they cost per hour; None = no price."""

    state: str
    gpus: float
    gpu_hours: float
    usd: Decimal | None
    usd_h: Decimal | None


def find_hour(until: datetime) -> Window:
    """Return the hour that contains or ends at a time, up to that time."""
    inside = until - timedelta(microseconds=1)
    return Window(inside.replace(minute=0, second=0, microsecond=0), until)


def read_states(views: Views, until: datetime, filters: Filters) -> tuple[StateRate, ...]:
    """Return how many GPUs are in each state, most first; `usd` sums to the hour's bill."""
    rows = run_query(views, (*LIVE, "fleet/states"), find_hour(until), filters).to_pylist()
    return tuple(StateRate(**row) for row in rows)


def read_cells(views: Views, until: datetime, filters: Filters) -> pa.Table:
    """Return a row per GPU, or per node and state of a fleet of more than `MOST_CELLS`.

    Columns: cluster, pool, node, device (null = several), state (the longest of the hour), model,
    devices, gpus (physical), usd_h, idle_usd_h, workload (null = several), workloads, node_gpus.
    """
    steps = (*LIVE, "fleet/newest_hour", "fleet/cells")
    return run_query(views, steps, find_hour(until), filters, most=MOST_CELLS)


def read_nodes(views: Views, until: datetime, filters: Filters) -> pa.Table:
    """Return the nodes with the highest idle cost.

    Columns: cluster, pool, node, model, gpus, idle_gpus, free_gpus, unknown_gpus, idle_usd_h,
    usd_h, workload (the one that holds most of the node).
    """
    steps = (*LIVE, "fleet/newest_hour", "fleet/nodes")
    return run_query(views, steps, find_hour(until), filters, most=MOST_ROWS)


def read_devices(views: Views, at: datetime, filters: Filters) -> pa.Table:
    """Return every GPU with its telemetry at a time, those with the highest idle cost first.

    The telemetry is the mean of the five minutes up to the time, or of its hour where the five
    minutes are not kept any more. Columns: cluster, pool, node, device, model, state (longest of
    the hour), workload (null = not allocated), activity_pct, tensor_pct, power_w, temp_c (highest),
    memory_gb, clock_mhz (SM; null = not measured), no_samples.
    """
    table = pa.table({})
    for step, rolled in ((FIVE_MINUTES, "fine"), (HOUR, "coarse")):
        steps = (
            *LIVE,
            "fleet/newest_hour",
            f"timeline/{rolled}/rolled",
            "fleet/device_measures",
            "fleet/devices",
        )
        more = {"step": _find_step(at, step), "most": MOST_DEVICES}
        table = run_query(views, steps, find_hour(at), filters, **more)
        if not all(table["no_samples"].to_pylist()):
            return table
    return table


def _find_step(at: datetime, step: timedelta) -> datetime:
    """Return the start of the step that contains or ends at a time, naive UTC."""
    inside = (at - timedelta(microseconds=1)).replace(tzinfo=None)
    return inside - (inside - datetime.min) % step  # noqa: DTZ901  (both are naive UTC)


def read_holders(views: Views, until: datetime, filters: Filters) -> pa.Table:
    """Return owners of idle GPUs: cluster, team, workload, model, idle_gpus, idle_usd_h, nodes."""
    return run_query(
        views,
        (*LIVE, "fleet/holders"),
        find_hour(until),
        filters,
        most=MOST_ROWS,
    )
