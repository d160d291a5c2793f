"""Measure commitments: how much of them is used, what they cover, and until when they run.

    utilisation = committed node-hours that ran / committed node-hours of hours that are known
    coverage    = committed node-hours that ran / all node-hours of that kind that ran
    break-even  = effective price / list price: used less than that, on demand would be cheaper

A node-hour runs when its GPUs are in the ledger; whether it was allocated or used is a separate
figure. In hours without data of a cluster with such nodes it is unknown what ran. A commitment is
of no cluster: all are counted. Of several commitments of one kind, the one that starts first is
used first, hour by hour, as in the bill (`warehouse/pricing/covered.sql`). Prices are the stored
ones that the ledger was charged: of one whose price changed there is a row for each price.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from dashboards.figures.query import ERAS, run_query
from fallow.protocols import Views
from fallow.settings.prices import ReservedCapacity
from fallow.window import Window
from warehouse.ledger import align_window

SOON_DAYS = 60
"""A commitment whose term ends so soon wants a decision."""
_CENT = Decimal("0.01")


class CommitmentUse(msgspec.Struct, frozen=True):
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
    """The committed node-hours that ran."""
    held_node_hours: float
    used_node_hours: float
    utilisation: float | None
    coverage: float | None
    break_even: float | None
    committed_usd: Decimal
    unused_usd: Decimal
    """Cost of the committed node-hours that did not run: a shared cost without an owner."""
    unknown_usd: Decimal
    """Cost of those of which it is unknown."""
    days_left: float
    """From the end of the window; negative = it has ended."""


class CommitmentTotals(msgspec.Struct, frozen=True):
    """All commitments of a window together; None = nothing to divide by, or nothing is known."""

    count: int
    committed_usd: Decimal
    unused_usd: Decimal | None
    unknown_usd: Decimal
    committed_node_hours: float
    running_node_hours: float
    ending: int
    """Those whose term ends within `SOON_DAYS`."""

    @property
    def utilisation(self) -> float | None:
        """Return the dollars of node-hours that ran, as a share (0-1) of those that are known."""
        measured_usd = self.committed_usd - self.unknown_usd
        if self.unused_usd is None or not measured_usd:
            return None
        return float((measured_usd - self.unused_usd) / measured_usd)


def sum_commitments(uses: Sequence[CommitmentUse]) -> CommitmentTotals:
    """Return the sums of commitments."""
    committed = sum((use.committed_usd for use in uses), Decimal())
    unknown = sum((use.unknown_usd for use in uses), Decimal())
    unused = sum((use.unused_usd for use in uses), Decimal())
    return CommitmentTotals(
        count=len(uses),
        committed_usd=committed,
        unused_usd=None if uses and unknown == committed else unused,
        unknown_usd=unknown,
        committed_node_hours=sum(use.committed_node_hours for use in uses),
        running_node_hours=sum(use.running_node_hours for use in uses),
        ending=sum(0 <= use.days_left <= SOON_DAYS for use in uses),
    )


def read_totals(
    views: Views, window: Window, promised: Sequence[ReservedCapacity]
) -> CommitmentTotals:
    """Return the sums of the commitments of `read_commitments`."""
    return sum_commitments(read_commitments(views, window, promised))


def read_commitments(
    views: Views, window: Window, promised: Sequence[ReservedCapacity]
) -> tuple[CommitmentUse, ...]:
    """Return the commitments that run in the window or later, the earliest end first."""
    whole_window = align_window(window)
    stored = _list_stored(views)
    names = {promise.name for promise in stored}
    ordered = sorted(
        (*stored, *(p for p in promised if p.name not in names)), key=lambda p: (p.start, p.name)
    )
    uses = [
        _build_commitment_use(views, whole_window, promise, ordered[:n])
        for n, promise in enumerate(ordered)
        if promise.end > whole_window.start
    ]
    return tuple(sorted(uses, key=lambda c: (c.end, c.name)))


def _list_stored(views: Views) -> list[ReservedCapacity]:
    rows = run_query(views, ("commitments/stored",), None).to_pylist()
    return [
        ReservedCapacity(**row | {name: row[name].replace(tzinfo=UTC) for name in ("start", "end")})
        for row in rows
    ]


def _count_nodes(earlier: Sequence[ReservedCapacity], kind: ReservedCapacity, at: datetime) -> int:
    """Return how many nodes of a kind the commitments that are used before it have at a time."""
    return sum(
        p.nodes
        for p in earlier
        if (p.instance_type, p.region) == (kind.instance_type, kind.region)
        and p.start <= at < p.end
    )


def _build_commitment_use(
    views: Views,
    window: Window,
    promise: ReservedCapacity,
    earlier: Sequence[ReservedCapacity],
) -> CommitmentUse:
    parameters: dict[str, Any] = {
        "instance_type": promise.instance_type,
        "region": promise.region,
    }
    start, end = max(window.start, promise.start), min(window.end, promise.end)
    hours = max(0.0, (end - start).total_seconds() / 3600)
    pool_hours = allocated_hours = used = before = np.empty(0)
    is_known, known_hours = np.empty(0, bool), 0.0
    if hours:
        term = Window(start, end)
        gpus = promise.gpus_per_node
        rows = run_query(views, (*ERAS, "commitments/nodes"), term, gpus=gpus, **parameters)
        known_rows = run_query(views, (*ERAS, "commitments/known_hours"), term, **parameters)
        is_known = np.isin(rows["hour"].to_numpy(), known_rows["hour"].to_numpy())
        known_hours = min(hours, float(known_rows.num_rows))
        pool_hours, allocated_hours, used = (
            rows[name].to_numpy() for name in ("node_hours", "held_node_hours", "used_node_hours")
        )
        times = [hour.replace(tzinfo=UTC) for hour in rows["hour"].to_pylist()]
        before = np.array([_count_nodes(earlier, promise, hour) for hour in times])
    running_hours = np.clip(pool_hours - before, 0, promise.nodes)
    part = np.divide(
        running_hours, pool_hours, out=np.zeros_like(running_hours), where=pool_hours > 0
    )
    price = run_query(views, ("commitments/list_price",), window, **parameters).to_pylist()
    committed, running = promise.nodes * hours, float(running_hours.sum())
    known_nodes = promise.nodes * known_hours
    known_running = float(running_hours[is_known].sum())
    rate = promise.usd_per_node_hour
    return CommitmentUse(
        name=promise.name,
        provider=promise.provider,
        instance_type=promise.instance_type,
        region=promise.region,
        nodes=promise.nodes,
        start=promise.start,
        end=promise.end,
        usd_per_node_hour=rate,
        committed_node_hours=committed,
        running_node_hours=running,
        held_node_hours=float((allocated_hours * part).sum()),
        used_node_hours=float((used * part).sum()),
        utilisation=known_running / known_nodes if known_nodes else None,
        coverage=running / float(pool_hours.sum()) if pool_hours.sum() else None,
        break_even=float(rate / price[0]["node_usd_h"]) if price else None,
        committed_usd=_parse_usd(committed, rate),
        unused_usd=_parse_usd(max(0.0, known_nodes - known_running), rate),
        unknown_usd=_parse_usd(committed - known_nodes - (running - known_running), rate),
        days_left=(promise.end - window.end).total_seconds() / 86400,
    )


def _parse_usd(hours: float, rate: Decimal) -> Decimal:
    return (Decimal(repr(hours)) * rate).quantize(_CENT)
