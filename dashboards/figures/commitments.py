"""Commitments: how much of what was promised is used, what of the fleet it covers, until when.

    utilisation = committed node-hours that ran / committed node-hours
    coverage    = committed node-hours that ran / all node-hours of that kind that ran
    break-even  = effective price / list price: used less than that, on demand would be cheaper

A node-hour runs when its GPUs are in the ledger; whether somebody held or used them is told beside.
Of several commitments of one kind the one listed first is used first, hour by hour.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

import msgspec
import numpy as np

from dashboards.figures.asking import Filters, ask
from fallow.seams import Views
from fallow.settings import ReservedCapacity
from fallow.window import Window
from warehouse.ledger import aligned

_CENT = Decimal("0.01")


class Commitment(msgspec.Struct, frozen=True):
    """One commitment over a window; None = nothing to divide by, or no list price is known."""

    name: str
    provider: str
    instance_type: str
    region: str
    nodes: int
    start: datetime
    end: datetime
    usd_per_node_hour: Decimal
    committed_node_hours: float
    running_node_hours: float
    """Of the committed ones, those that ran."""
    held_node_hours: float
    used_node_hours: float
    utilisation: float | None
    coverage: float | None
    break_even: float | None
    committed_usd: Decimal
    unused_usd: Decimal
    """What committed node-hours that did not run cost: a shared cost, nobody's in particular."""
    days_left: float
    """From the end of the window; negative = it ended."""


def commitments(
    views: Views, window: Window, filters: Filters, promised: Sequence[ReservedCapacity]
) -> tuple[Commitment, ...]:
    """Return the commitments that run in the window or later, those that end first first."""
    shown = aligned(window)
    taken: dict[tuple[str, str], int] = {}
    made = []
    for one in promised:
        if one.end <= shown.start:
            continue
        kind = (one.instance_type, one.region)
        made.append(_one(views, shown, filters, one, taken.get(kind, 0)))
        taken[kind] = taken.get(kind, 0) + one.nodes
    return tuple(sorted(made, key=lambda c: (c.end, c.name)))


def _one(
    views: Views, window: Window, filters: Filters, one: ReservedCapacity, before: int
) -> Commitment:
    asked = {"instance_type": one.instance_type, "region": one.region}
    start, end = max(window.start, one.start), min(window.end, one.end)
    hours = max(0.0, (end - start).total_seconds() / 3600)
    there = held = used = np.empty(0)
    if hours:
        rows = ask(
            views,
            ("commitments/nodes",),
            Window(start, end),
            filters,
            gpus=one.gpus_per_node,
            **asked,
        )
        there, held, used = (
            rows[name].to_numpy() for name in ("node_hours", "held_node_hours", "used_node_hours")
        )
    mine = np.clip(there - before, 0, one.nodes)
    part = np.divide(mine, there, out=np.zeros_like(mine), where=there > 0)
    price = ask(views, ("commitments/list_price",), window, filters, **asked).to_pylist()
    committed, running = one.nodes * hours, float(mine.sum())
    rate = one.usd_per_node_hour
    return Commitment(
        name=one.name,
        provider=one.provider,
        instance_type=one.instance_type,
        region=one.region,
        nodes=one.nodes,
        start=one.start,
        end=one.end,
        usd_per_node_hour=rate,
        committed_node_hours=committed,
        running_node_hours=running,
        held_node_hours=float((held * part).sum()),
        used_node_hours=float((used * part).sum()),
        utilisation=running / committed if committed else None,
        coverage=running / float(there.sum()) if there.sum() else None,
        break_even=float(rate / price[0]["node_usd_h"]) if price else None,
        committed_usd=_usd(committed, rate),
        unused_usd=_usd(max(0.0, committed - running), rate),
        days_left=(one.end - window.end).total_seconds() / 86400,
    )


def _usd(hours: float, rate: Decimal) -> Decimal:
    return (Decimal(repr(hours)) * rate).quantize(_CENT)
