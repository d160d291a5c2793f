"""Write the GPU-hour ledger: every second of every device in exactly one state, with its price."""

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fallow.errors import UsageError
from fallow.settings import Settings
from fallow.tables import get_schema
from fallow.window import Window
from warehouse import signals
from warehouse.dirty import find_hours_end, mark_hours
from warehouse.pricing import ERAS, PRICES
from warehouse.signals import BUCKET_S, FleetDevices
from warehouse.steps import compose_query

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.ledger")

STEPS = (
    *ERAS,
    "inventory/value_eras",
    *(
        f"ledger/{name}"
        for name in (
            "begun",
            "node_models",
            "spans",
            "owners",
            "holders",
            "cuts",
            "fine",
            "fine_hours",
            "signal_seconds",
            "down",
            "unreadable",
            "crowds",
            "plain",
            "buckets",
            "cells",
            "startups",
            "holder_seconds",
            "claimed",
            "lost",
            "vacancies",
            "untracked",
            "states",
            "devices",
            "device_places",
            "pooled",
            "weights",
        )
    ),
    *PRICES,
    "ledger/ledger_rows",
)
SIZES = {"1h": 3600, "5m": 300}
DEVICE_HOURS = 500_000
"""Device-buckets that one statement processes: two days of 10,000 GPUs take 1 GB of memory."""
LAST_STEP = "bucket >= $since AND bucket < $until"


def write_ledger(wh: "Warehouse", window: Window, step: str = "1h") -> int:
    """Write the `ledger` rows of every bucket that the window touches; return how many.

    Read: rollup_5m and rollup_1h (through `signal`, which is written first), allocation,
    work_lost, device, node, pod, event, rate. Hours in which a device changes hands, starts up or
    computes what is later lost are read in five-minute steps. A repeated call gives the same rows;
    a call after late data gives the rows that follow from all data.

    Raises:
        UsageError: `step` is neither 1h nor 5m.
    """
    whole = align_window(window, step)
    fleet = signals.read_fleet(wh.whole)
    signals.write_signals(wh, widen_to_startups(wh.settings, whole), fleet)
    return sum(
        wh.derive(
            "ledger", compose_query(STEPS), LAST_STEP, build_parameters(chunk, wh.settings, step)
        )
        for chunk in whole.chunks(compute_stride(fleet, step))
    )


def widen_to_startups(settings: Settings, window: Window) -> Window:
    """Return the window of the signals that the ledger of a window reads.

    Startups depend on what a device did before the window.
    """
    early = timedelta(seconds=settings.ledger.startup.total_seconds() + BUCKET_S)
    return align_window(Window(window.start - early, window.end), "5m")


def withdraw_future_hours(wh: "Warehouse") -> int:
    """Remove the rows of hours that have not begun, and mark these hours; return how many.

    A clock that was set forward and then back leaves such rows. The totals follow.
    """
    limit = {"limit": find_hours_end(wh)}
    sql = "SELECT count(DISTINCT bucket) AS n, max(bucket) AS last FROM ledger"
    row = wh.query(f"{sql} WHERE bucket >= $limit", limit).to_pylist()[0]
    if not row["n"]:
        return 0
    first = limit["limit"].replace(tzinfo=None)
    with wh.transaction() as cursor:
        mark_hours(cursor, first, row["last"] + timedelta(hours=1))
    wh.replace("ledger", get_schema("ledger").empty_table(), "bucket >= $first", {"first": first})
    log.warning(
        "the ledger had hours that have not begun: a clock was ahead",
        extra={"hours": row["n"], "last": row["last"]},
    )
    return int(row["n"])


def compute_stride(fleet: FleetDevices, step: str = "1h") -> timedelta:
    """Return the time one statement processes, in whole hours: less for a larger fleet."""
    hours = DEVICE_HOURS // max(1, fleet.devices) * SIZES[step] // 3600
    return timedelta(hours=max(1, hours))


def build_parameters(window: Window, settings: Settings, step: str = "1h") -> dict[str, Any]:
    """Return the parameters of the ledger's statement, beside the tables."""
    return {
        **window.bounds(),
        "step_s": SIZES[step],
        "startup_s": settings.ledger.startup.total_seconds(),
        "region": settings.prices.region,
    }


def align_window(window: Window, step: str = "1h") -> Window:
    """Return the window widened to whole buckets.

    Raises:
        UsageError: `step` is neither 1h nor 5m.
    """
    if step not in SIZES:
        raise UsageError(f"the ledger has no step {step!r}", hint=f"legal: {', '.join(SIZES)}")
    return window.whole(timedelta(seconds=SIZES[step]))
