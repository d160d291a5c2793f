"""Waste by owner: what was paid and grew nothing, of whom, in which way."""

import pyarrow as pa

from dashboards.figures.asking import Filters, ask
from fallow.errors import UsageError
from fallow.seams import Views
from fallow.window import Window

KEYS = ("team", "namespace", "workload", "model", "pool", "cluster")
STATES = ("idle", "lost", "free", "stranded", "unavailable")
"""The states that count: low use is none of them, and unknown is never waste."""


def by_owner(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return a row per name of `key`, the most wasted dollars first.

    Columns: name, waste_gpu_hours (GPU h), waste_usd, dollars of each state (idle_usd, lost_usd,
    free_usd, stranded_usd, unavailable_usd; they sum to waste_usd), unknown_usd, gpu_hours and usd
    of all states, waste_pct (% of its own GPU-hours). Null dollars = nothing of it has a price.

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group waste by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return ask(views, ("paid", "waste/owners"), window, filters, by=key)
