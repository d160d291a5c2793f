"""The GPU-hour ledger: every device's every second in exactly one state, priced."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from fallow.errors import UsageError
from fallow.seams import Views
from fallow.settings import Settings
from fallow.tables import schema
from fallow.window import Window
from warehouse.allocation import bounds
from warehouse.pricing import PRICES
from warehouse.steps import compose

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

STEPS = (
    *(
        f"ledger/{name}"
        for name in (
            "spans",
            "owners",
            "holders",
            "cuts",
            "fine",
            "fine_hours",
            "looks",
            "cells",
            "startups",
            "held",
            "claimed",
            "down",
            "vacancies",
            "states",
            "untracked",
            "devices",
            "counted",
        )
    ),
    *PRICES,
    "ledger/posted",
)
SIZES = {"1h": 3600, "5m": 300}
CHUNK = {"1h": timedelta(days=2), "5m": timedelta(hours=4)}
"""How much one statement posts: 10,000 GPUs stay under a gigabyte."""
POSTED = "bucket >= $since AND bucket < $until"


def post(wh: "Warehouse", window: Window, step: str = "1h") -> int:
    """Write the `ledger` rows of every bucket that the window touches; return how many.

    Read: rollup_1h and rollup_5m, allocation, device, node, pod, event, rate. Hours in which a
    device changes hands or starts up are read in five-minute steps. Posting again gives the same
    rows; posting after late data gives what is then true.

    Raises:
        UsageError: `step` is neither 1h nor 5m.
    """
    posted = 0
    for chunk in aligned(window, step).chunks(CHUNK[step]):
        rows = entries(wh, chunk, wh.settings, step=step)
        wh.replace("ledger", rows, POSTED, bounds(chunk))
        posted += int(rows.num_rows)
    return posted


def entries(views: Views, window: Window, settings: Settings, *, step: str = "1h") -> pa.Table:
    """Return the `ledger` rows of an aligned window, as `post` writes them, in one query."""
    rows = views.query(
        compose(STEPS),
        {
            **bounds(window),
            "step_s": SIZES[step],
            "startup_s": settings.ledger.startup.total_seconds(),
            "region": settings.prices.region,
        },
    )
    return rows.cast(schema("ledger"))


def aligned(window: Window, step: str = "1h") -> Window:
    """Return the window widened to whole buckets.

    Raises:
        UsageError: `step` is neither 1h nor 5m.
    """
    if step not in SIZES:
        raise UsageError(f"the ledger has no step {step!r}", hint=f"legal: {', '.join(SIZES)}")
    size = timedelta(seconds=SIZES[step])
    start = _floor(window.start, size)
    end = _floor(window.end - timedelta(microseconds=1), size) + size
    return Window(start, end)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _floor(moment: datetime, size: timedelta) -> datetime:
    return moment - (moment - _EPOCH) % size
