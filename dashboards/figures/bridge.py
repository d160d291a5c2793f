"""Compute the bill bridge: why this window cost more or less than the one it is compared with.

    before --volume--waste--mix--price--> after

R is the average rate before; h are the GPU-hours and r the rates of each kind of capacity (cluster,
pool, model). volume = change of hours that were not wasted x R; waste = change of wasted hours x R;
price = sum of h_after x (r_after - r_before); mix = the effect of hours that moved to more or less
expensive kinds; a kind that did not exist before counts wholly as mix. The four sum to the
difference exactly.
"""

from datetime import datetime
from decimal import Decimal

import msgspec

from dashboards.figures.overview import explain_incomparable, get_window_before
from dashboards.figures.query import BY_HOUR, Filters, run_query
from dashboards.figures.spend import read_totals
from fallow.protocols import Views
from fallow.window import Window
from warehouse.ledger import align_window

_SMALLEST = Decimal("0.00000001")


class Bridge(msgspec.Struct, frozen=True):
    """Dollars of two windows and the steps between them; None = nothing to compare."""

    before: Window
    after: Window
    usd_before: Decimal
    usd_after: Decimal
    volume: Decimal
    waste: Decimal
    mix: Decimal
    price: Decimal
    hours_before: float
    hours_after: float
    waste_before: float
    waste_after: float

    @property
    def change(self) -> Decimal:
        """Return the dollars after minus before; the four steps sum to it."""
        return self.usd_after - self.usd_before


def bridge(views: Views, window: Window, filters: Filters) -> Bridge | None:
    """Return the bridge from the window that Overview compares with (`get_window_before`).

    Both dollars are the cents of `spend.read_totals`. A calendar month is compared with the month
    before: more days count as volume. None = nothing was paid then, or the windows cannot be
    compared (`explain_incomparable`). Hours without a price are in neither window.
    """
    why = explain_incomparable(views, window, filters.cluster)
    exact = None if why else compute_bridge(views, window, filters)
    if exact is None:
        return None
    before, after = (
        read_totals(views, side, filters).usd or Decimal() for side in (exact.before, exact.after)
    )
    return msgspec.structs.replace(
        exact,
        usd_before=before,
        usd_after=after,
        mix=after - before - exact.volume - exact.waste - exact.price,
    )


def compute_bridge(views: Views, window: Window, filters: Filters) -> Bridge | None:
    """Return the bridge between hours that can be compared; None = nothing was paid before."""
    after = align_window(window)
    before = get_window_before(after)
    rows = run_query(
        views,
        (*BY_HOUR, "bridge/segments"),
        Window(before.start, after.end),
        filters,
        cut=_drop_zone(after.start),
        before_end=_drop_zone(before.end),
    ).to_pylist()
    hours_before = sum(r["hours_before"] for r in rows)
    if hours_before <= 0:
        return None
    usd_before = sum((r["usd_before"] for r in rows), Decimal())
    usd_after = sum((r["usd_after"] for r in rows), Decimal())
    rate = float(usd_before) / hours_before
    waste = [sum(r[f"waste_{when}"] for r in rows) for when in ("before", "after")]
    hours_after = sum(r["hours_after"] for r in rows)
    price = sum(
        float(r["usd_after"]) - r["hours_after"] * float(r["usd_before"]) / r["hours_before"]
        for r in rows
        if r["hours_before"] > 0 and r["hours_after"] > 0
    )
    volume = _parse_usd((hours_after - waste[1] - hours_before + waste[0]) * rate)
    wasted, priced = _parse_usd((waste[1] - waste[0]) * rate), _parse_usd(price)
    return Bridge(
        before=before,
        after=after,
        usd_before=usd_before,
        usd_after=usd_after,
        volume=volume,
        waste=wasted,
        mix=usd_after - usd_before - volume - wasted - priced,
        price=priced,
        hours_before=hours_before,
        hours_after=hours_after,
        waste_before=waste[0],
        waste_after=waste[1],
    )


def _parse_usd(amount: float) -> Decimal:
    return Decimal(repr(amount)).quantize(_SMALLEST)


def _drop_zone(timestamp: datetime) -> datetime:
    return timestamp.replace(tzinfo=None)
