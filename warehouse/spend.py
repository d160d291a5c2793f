"""Report where GPU-hours and dollars went, by the requested columns; the rows add up."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, get_args

import pyarrow as pa

from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.window import Window
from warehouse import totals
from warehouse.ledger import align_window
from warehouse.steps import compose_query

SpendKey = Literal["cluster", "namespace", "team", "workload", "model", "pool", "node", "state"]
SpendView = Literal["loaded", "gpu"]
KEYS: tuple[str, ...] = get_args(SpendKey)
VIEWS: tuple[str, ...] = get_args(SpendView)
STEPS = ("spend/grouped", "spend/shared_out", "spend/answered")
FINE_KEYS = {"workload", "node"}
"""Keys that the totals by hour do not have."""


def write_estimate_notes(gpu_hours: float, usd: Decimal | None) -> list[str]:
    """Return a sentence about the dollars that are estimates, if there are any."""
    if not usd:
        return []
    hours = f"{gpu_hours:,.1f} GPU-hours without a price of their own"
    basis = "of another region, on demand (spot: less the published discount) or of the GPU model"
    return [f"{usd:,.2f} USD are estimates, of {hours}: {basis} (docs/prices.md)"]


def read_spend(
    views: Views,
    window: Window,
    by: Sequence[str],
    view: str = "loaded",
    *,
    share_unallocated: bool = False,
    cluster: str | None = None,
    team: str | None = None,
) -> pa.Table:
    """Return GPU-hours and dollars of the ledger's hours that the window touches.

    Columns: those of `by`, gpu_hours (GPU h), usd (null = no rate), own_usd (before unallocated
    dollars moved), idle_gpu_hours, idle_usd, unknown_gpu_hours, unpriced_gpu_hours,
    estimated_gpu_hours and estimated_usd (without a price of their own), known_gpu_hours
    (allocated, and their use is known),
    busy_gpu_hours (of those, with work), effective_gpu_hours (allocated, times their effective
    utilisation; null = not measured), measured_gpu_hours (allocated, where it was measured),
    share_pct (% of gpu_hours), price_as_of (UTC). Rows sum to the capacity and the bill.
    `(platform)` owns unallocated time. With `share_unallocated` its dollars go to the owners of the
    same cluster in proportion to theirs; its hours stay. A team's rows are its part of all rows.
    View `loaded`: a GPU costs its part of the whole node; `gpu`: its GPU part only.

    Raises:
        UsageError: `by` or `view` is not a legal value.
    """
    wrong = [name for name in by if name not in KEYS]
    if wrong or not by:
        raise UsageError(
            f"cannot group spend by {', '.join(wrong) or 'nothing'}",
            hint=f"legal: {', '.join(KEYS)}",
        )
    if view not in VIEWS:
        raise UsageError(f"spend has no view {view!r}", hint=f"legal: {', '.join(VIEWS)}")
    lines = totals.BY_HOUR if FINE_KEYS.isdisjoint(by) else totals.BY_DAY
    rows = views.query(
        compose_query((lines, *STEPS)),
        {
            **align_window(window).bounds(),
            "by": list(by),
            "view": view,
            "share_unallocated": share_unallocated,
            "cluster": cluster,
            "team": team,
        },
    )
    return rows.select([*dict.fromkeys(by), *rows.column_names[len(KEYS) :]])
