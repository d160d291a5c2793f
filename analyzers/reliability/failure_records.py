"""Read the failures of a window: what ended, when, on which nodes, and the hours it cost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
import polars as pl

from analyzers.checkpoints import WORKLOAD, Checkpoints, find_write_bursts, parse_interval
from analyzers.interruptions import read_causes
from analyzers.reliability import clocks, devices
from analyzers.reliability.clocks import SlowDevice
from analyzers.reliability.devices import SickDevice
from analyzers.reliability.failure_loss import LostWork
from analyzers.reliability.failures import (
    AFTER,
    BEFORE,
    Failure,
    Place,
    find_failures,
    sort_signs,
)
from analyzers.reliability.gpu_costs import GpuCost
from analyzers.reliability.lost_work import SURVIVORS
from analyzers.reliability.rows import (
    FailureEvent,
    MissingDevices,
    NodeLifetime,
    StateBill,
    list_lifetimes,
    read_bills,
    read_clocks,
    read_events,
    read_load_times,
    read_memory_signs,
    read_missing_devices,
    read_nodes,
    read_work_lost,
    read_xids,
)
from analyzers.rows import read_bursts, read_lifetimes
from analyzers.workload_rows import Owner
from fallow.protocols import Views
from fallow.settings.reliability import ReliabilitySettings
from fallow.tolerances import read_tolerances
from fallow.window import Window
from warehouse.disruption_budgets import DisruptionBudget, DisruptionBudgets

RECENT = timedelta(days=1)
"""Counters of memory errors are read from the last raw samples only: counters are cumulative."""


class FailureRecords(msgspec.Struct, frozen=True):
    """The failure data of the window."""

    pods: pl.DataFrame
    nodes: dict[Place, NodeLifetime]
    failures: list[Failure]
    sick: dict[Place, list[SickDevice]]
    down: dict[Place, list[tuple[datetime, datetime]]]
    slow: list[SlowDevice]
    checkpoints: dict[Owner, Checkpoints]
    costs: dict[Owner, dict[str, GpuCost]]
    """By workload and state."""
    lost: dict[tuple[Owner, datetime], LostWork]
    """The work that each failure lost (`work_lost`)."""
    away: dict[Place, GpuCost]
    missing: list[MissingDevices]
    budgets: DisruptionBudgets

    def guards(self, place: Place) -> list[DisruptionBudget]:
        """Return the disruption budgets over the pods that are on a node now."""
        there = self.pods.filter(
            (pl.col("cluster") == place[0])
            & (pl.col("node") == place[1])
            & pl.col("ended").is_null()
        )
        rows = there.select("namespace", "labels").unique(maintain_order=True).iter_rows()
        budgets = [b for row in rows for b in self.budgets.of(place[0], *row)]
        return sorted({b.id: b for b in budgets}.values(), key=lambda b: b.id)


def read_failures(views: Views, window: Window, settings: ReliabilitySettings) -> FailureRecords:
    """Return the failures of a window."""
    bounds = window.bounds()
    since, until = bounds["since"], bounds["until"]
    pods = read_lifetimes(views, bounds)
    events = read_events(views, bounds, list(read_causes()))
    xids = read_xids(views, bounds)
    recent = max(window.start, window.end - RECENT).replace(tzinfo=None)
    health = read_memory_signs(views, recent, until)
    costs, away = _sum_bills(read_bills(views, bounds))
    clock_hours = read_clocks(views, bounds, clocks.compute_mask())
    signs = sort_signs(events, read_causes(), xids)
    failed, struck = find_failures(list_lifetimes(pods), signs, read_load_times(views, bounds))
    down = _find_down(events, read_causes(), until)
    starts = {place: [at for at, _ in spans] for place, spans in down.items()}
    return FailureRecords(
        pods=pods,
        nodes={(node.cluster, node.node): node for node in read_nodes(views, bounds)},
        failures=[f for f in failed if f.at >= since],
        sick=devices.find_sick(xids, health, struck, starts, settings.repeats),
        down=down,
        slow=clocks.find_slow(
            clock_hours, pods, ratio=settings.slow_ratio, hours=settings.slow_hours
        ),
        checkpoints=_read_checkpoints(views, bounds, pods, failed, settings.burst_bps),
        costs=costs,
        lost={
            (row.owner, row.failed_at): LostWork(row.gpu_hours, row.gpus, row.measured)
            for row in read_work_lost(views, bounds)
        },
        away=away,
        missing=read_missing_devices(views, bounds),
        budgets=DisruptionBudgets.read(views, window),
    )


@cache
def list_surviving_kinds() -> frozenset[str]:
    """Return the kinds of workload that resume from a checkpoint."""
    return frozenset(kind for kind, row in read_tolerances().items() if row.tolerance in SURVIVORS)


def _read_checkpoints(
    views: Views,
    bounds: Mapping[str, Any],
    pods: pl.DataFrame,
    failed: Sequence[Failure],
    burst_bps: float,
) -> dict[Owner, Checkpoints]:
    """Return the checkpoints of the workloads that failed; no others are read."""
    owners = {f.owner for f in failed if f.owner[2] in list_surviving_kinds()}
    if not owners:
        return {}
    who = pl.DataFrame(sorted(owners), schema=WORKLOAD, orient="row")
    mine = pods.join(who, on=WORKLOAD)
    loud = read_bursts(views, bounds, burst_bps)
    checkpoints = find_write_bursts(
        mine, loud.filter(pl.col("who").is_in(mine["who"].unique().to_list()))
    )
    annotated = mine.filter(pl.col("annotations").is_not_null())
    for row in annotated.select(*WORKLOAD, "annotations").iter_rows():
        interval = parse_interval(msgspec.json.decode(row[4]), [])
        if interval is not None:
            checkpoints[row[:4]] = interval
    return checkpoints


def _sum_bills(
    bills: Sequence[StateBill],
) -> tuple[dict[Owner, dict[str, GpuCost]], dict[Place, GpuCost]]:
    """Return the costs of workloads by state, and of the hours that nodes were not available."""
    costs: dict[Owner, dict[str, GpuCost]] = defaultdict(dict)
    away: dict[Place, GpuCost] = {}
    for bill in bills:
        cost = GpuCost(bill.gpu_hours, bill.usd)
        if bill.state == "unavailable":
            place = bill.cluster, bill.node or ""
            away[place] = away.get(place, GpuCost(0.0, Decimal())).plus(cost)
        else:
            costs[bill.owner][bill.state] = cost
    return dict(costs), away


def _find_down(
    events: Sequence[FailureEvent], causes: Mapping[str, str], until: datetime
) -> dict[Place, list[tuple[datetime, datetime]]]:
    """Return the stretches in which each node was not ready.

    A spot node that is not ready because its cloud reclaims it had no outage.
    """
    reclaimed: dict[Place, list[datetime]] = defaultdict(list)
    for event in events:
        if event.kind == "Node" and causes.get(event.reason) == "spot":
            reclaimed[event.cluster, event.name].append(event.ts)
    down: dict[Place, list[tuple[datetime, datetime]]] = defaultdict(list)
    since: dict[Place, datetime] = {}
    for event in events:
        place = event.cluster, event.name
        if event.kind == "Node" and event.reason == "NodeNotReady":
            since.setdefault(place, event.ts)
        elif event.kind == "Node" and event.reason == "NodeReady" and place in since:
            down[place].append((since.pop(place), event.ts))
    for place, at in since.items():
        down[place].append((at, until))
    outages = {
        place: [s for s in spans if not any(s[0] - BEFORE <= at <= s[0] + AFTER for at in reclaims)]
        for place, spans in down.items()
        for reclaims in [reclaimed.get(place, [])]
    }
    return {place: spans for place, spans in outages.items() if spans}
