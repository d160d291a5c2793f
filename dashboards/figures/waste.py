"""Show waste by owner: what was paid and wasted, by owner and state."""

import pyarrow as pa

from dashboards.figures import spend
from dashboards.figures.query import BY_DAY, BY_HOUR, Filters, run_query
from fallow import money
from fallow.errors import UsageError
from fallow.models import WASTED
from fallow.protocols import Views
from fallow.window import Window

KEYS = ("team", "namespace", "workload", "model", "pool", "cluster")
STATES = WASTED


def read_by_owner(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return a row per name of `key`, the most wasted dollars first.

    Columns: name, cluster (of a workload; null by another key), waste_gpu_hours (GPU h), waste_usd,
    dollars of each state (idle_usd, lost_usd, free_usd, stranded_usd, unavailable_usd; they sum to
    waste_usd), unknown_usd, gpu_hours and usd of all states, waste_usd_pct (% of its own dollars),
    waste_pct (% of its own GPU-hours), busy_pct and effective_pct (% of its allocated hours; null =
    nothing allocated, not measured). Null dollars = no part of it has a price.

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group waste by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return run_query(
        views,
        (*(BY_DAY if key == "workload" else BY_HOUR), "waste/owners"),
        window,
        filters,
        by=key,
    )


def read_statement(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return the rows of `read_by_owner` in cents that add up.

    The dollars of the states sum to waste_usd row by row, and each column to its total of
    `spend.read_totals`.
    """
    rows = read_by_owner(views, window, filters, key)
    totals = spend.read_totals(views, window, filters)
    if totals.wasted_usd is None:
        return rows
    parts = {f"{state}_usd": rows[f"{state}_usd"].to_pylist() for state in STATES}
    cents = {
        f"{state}_usd": money.apportion_column(parts[f"{state}_usd"], totals.state_usd.get(state))
        for state in STATES
    }
    wasted = [money.sum_known(row) for row in zip(*cents.values(), strict=True)]
    unknown = money.apportion_column(
        rows["unknown_usd"].to_pylist(), totals.state_usd.get("unknown")
    )
    return spend.set_columns(rows, cents | {"waste_usd": wasted, "unknown_usd": unknown})
