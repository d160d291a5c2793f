"""Find the cost of failures: lost work, time to recover, sick GPUs, outages, slow GPUs.

rollup_1h ──► XIDs, clocks ─┐   devices.py   sick GPUs      ─┐
sample ────► memory errors ─┼─► failures.py  lost work, steps ─┼─► findings.py
event, pod, node, ledger ───┘   clocks.py    slow GPUs        ─┘
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
import polars as pl

from analyzers.budgets import DisruptionBudget, DisruptionBudgets
from analyzers.checkpoints import WORKLOAD, Checkpoints, Owner, find_write_bursts, parse_interval
from analyzers.interruptions import read_causes
from analyzers.queries import load_sql
from analyzers.query_cache import cache_query
from analyzers.reliability import clocks, devices, event_queries
from analyzers.reliability.devices import SickDevice
from analyzers.reliability.failures import (
    AFTER,
    BEFORE,
    STEPS,
    TOGETHER,
    Failure,
    find_failures,
    sort_signs,
)
from analyzers.reliability.finding_builder import GpuCost
from analyzers.reliability.findings import build_missing_device, build_outages, build_sick_node
from analyzers.reliability.lost_work import SURVIVORS
from analyzers.reliability.work import (
    LostWork,
    build_lost_work,
    build_slow_gpus,
    build_unknown_loss,
)
from analyzers.tolerances import read_tolerances
from fallow.checkpointing import mtbf
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings import ReliabilitySettings
from fallow.window import Window

RECENT = timedelta(days=1)
"""Counters of memory errors are read from the last raw samples only: counters are cumulative."""
Place = tuple[str, str]


class FailureRecords(msgspec.Struct, frozen=True):
    """The failure data of the window."""

    pods: pl.DataFrame
    nodes: dict[Place, Mapping[str, Any]]
    failures: list[Failure]
    sick: dict[Place, list[SickDevice]]
    down: dict[Place, list[tuple[datetime, datetime]]]
    slow: list[clocks.SlowDevice]
    checkpoints: dict[Owner, Checkpoints]
    costs: dict[Owner, dict[str, GpuCost]]
    """By workload and state."""
    lost: dict[tuple[Owner, datetime], LostWork]
    """The work that each failure lost (`work_lost`)."""
    away: dict[Place, GpuCost]
    missing: list[Mapping[str, Any]]
    """Nodes with fewer GPUs in telemetry than they have (`missing.sql`)."""
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


class ReliabilityAnalyzer:
    """Find GPU-hours that failures cost (telemetry-and-waste.md#health)."""

    def __init__(self, settings: ReliabilitySettings | None = None) -> None:
        self.settings = settings or ReliabilitySettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return findings on nodes (sick, incomplete, down) and on work, the most dollars first."""
        site = self._read(views, window)
        findings = [
            *self._nodes(site, window),
            *self._work(site, window),
            *self._slow(site, window),
        ]
        return sorted(findings, key=lambda f: (-(f.usd or Decimal()), -f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the workloads that failed with an unknown amount of lost work."""
        site = self._read(views, window)
        return [
            build_unknown_loss(owner, failed, window)
            for owner, failed in _group_by_owner(site.failures).items()
            if owner[2] in _list_surviving_kinds() and owner not in site.checkpoints
        ]

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return the fleet's failures by cause, its MTBF and its mean time to recover by step."""
        site = self._read(views, window)
        if not site.nodes:
            return {}
        hours = sum(row["hours"] for row in site.nodes.values())
        measured = mtbf(_count_incidents(site.failures), hours)
        steps = [f.seconds for f in site.failures if f.seconds]
        return {
            "failures_of_work": dict(sorted(Counter(f.cause for f in site.failures).items())),
            "node_hours": round(hours, 1),
            "mtbf_node_hours": _round_value(measured.mean_h),
            "mtbf_node_hours_95": [_round_value(measured.low_h), _round_value(measured.high_h)],
            "mean_seconds_to_recover": {
                step: round(sum(s[step] for s in steps) / len(steps), 1) for step in STEPS
            }
            if steps
            else None,
            "sick_nodes": sum(any(s.level == "sick" for s in v) for v in site.sick.values()),
            "missing_boards": sum(row["expected"] - row["visible"] for row in site.missing),
            "slow_gpus": len({(s.owner[0], s.device) for s in site.slow}),
        }

    def _nodes(self, site: FailureRecords, window: Window) -> Iterator[Finding]:
        for place, sick in sorted(site.sick.items()):
            guards = site.guards(place) if site.budgets.is_polled(place[0]) else None
            node, away_ = site.nodes.get(place), site.away.get(place)
            yield build_sick_node(place, sick, away_, node, guards, window)
        for row in site.missing:
            yield build_missing_device(row, window)
        pools: dict[Place, list[Place]] = defaultdict(list)
        for place, row in sorted(site.nodes.items()):
            pools[place[0], row["pool"]].append(place)
        for pool, members in sorted(pools.items()):
            # A finding of a sick node is not repeated for its pool.
            downs = {p: site.down[p] for p in members if p in site.down and p not in site.sick}
            away = {p: site.away[p] for p in downs if p in site.away}
            lost = sum(b.gpu_hours for b in away.values())
            if lost > 0 and lost >= self.settings.min_gpu_hours:
                hours = sum(site.nodes[p]["hours"] for p in members)
                yield build_outages(pool, downs, away, hours, self.settings, window)

    def _work(self, site: FailureRecords, window: Window) -> Iterator[Finding]:
        for owner, failed in _group_by_owner(site.failures).items():
            checkpoints = site.checkpoints.get(owner)
            if owner[2] not in _list_surviving_kinds() or checkpoints is None:
                continue
            thrown = {f.at: site.lost[owner, f.at] for f in failed if (owner, f.at) in site.lost}
            costs = site.costs.get(owner, {})
            finding = build_lost_work(
                owner, failed, checkpoints, costs, thrown, self.settings, window
            )
            if finding is not None:
                yield finding

    def _slow(self, site: FailureRecords, window: Window) -> Iterator[Finding]:
        by_owner: dict[Owner, list[clocks.SlowDevice]] = defaultdict(list)
        for device in site.slow:
            by_owner[device.owner].append(device)
        for owner, slow in sorted(by_owner.items()):
            finding = build_slow_gpus(
                owner, slow, site.costs.get(owner, {}), owner[2] in _list_surviving_kinds(), window
            )
            if finding.gpu_hours >= self.settings.min_gpu_hours:
                yield finding

    @cache_query
    def _read(self, views: Views, window: Window) -> FailureRecords:
        parameters: dict[str, Any] = {
            **window.bounds(),
        }
        recent = max(window.start, window.end - RECENT).replace(tzinfo=None)
        pods = event_queries.read_lifetimes(views, parameters)
        events, xids = (
            event_queries.read_events(views, parameters),
            event_queries.read_xids(views, parameters),
        )
        health = views.query(
            load_sql("reliability/health"), {"recent": recent, "until": parameters["until"]}
        ).to_pylist()
        costs, away = _sum_bills(views.query(load_sql("reliability/bill"), parameters).to_pylist())
        ran = pl.DataFrame(
            views.query(
                load_sql("reliability/clocks"), {**parameters, "throttles": clocks.compute_mask()}
            )
        )
        rows = pods.to_dicts()
        signs = sort_signs(events, read_causes(), xids)
        failed, struck = find_failures(rows, signs, _compute_load_times(pods, costs))
        down = _find_down(events, read_causes(), parameters["until"])
        starts = {place: [at for at, _ in spans] for place, spans in down.items()}
        nodes = views.query(load_sql("reliability/nodes"), parameters).to_pylist()
        since = parameters["since"]
        return FailureRecords(
            pods=pods,
            nodes={(r["cluster"], r["node"]): r for r in nodes},
            failures=[f for f in failed if f.at >= since],
            sick=devices.find_sick(xids, health, struck, starts, self.settings.repeats),
            down=down,
            slow=clocks.find_slow(
                ran, pods, ratio=self.settings.slow_ratio, hours=self.settings.slow_hours
            ),
            checkpoints=self._checkpoints(views, parameters, pods, failed),
            costs=costs,
            lost={
                (tuple(r[n] for n in WORKLOAD), r["failed_at"]): LostWork(
                    r["gpu_hours"], r["measured"]
                )
                for r in views.query(load_sql("reliability/work_lost"), parameters).to_pylist()
            },
            away=away,
            missing=views.query(load_sql("reliability/missing"), parameters).to_pylist(),
            budgets=DisruptionBudgets.read(views, window),
        )

    def _checkpoints(
        self,
        views: Views,
        parameters: Mapping[str, Any],
        pods: pl.DataFrame,
        failed: Sequence[Failure],
    ) -> dict[Owner, Checkpoints]:
        """Return the checkpoints of the workloads that failed; no others are read."""
        owners = {f.owner for f in failed if f.owner[2] in _list_surviving_kinds()}
        if not owners:
            return {}
        who = pl.DataFrame(sorted(owners), schema=WORKLOAD, orient="row")
        mine = pods.join(who, on=WORKLOAD)
        loud = pl.DataFrame(
            views.query(load_sql("bursts"), {**parameters, "burst_bps": self.settings.burst_bps})
        )
        checkpoints = find_write_bursts(
            mine, loud.filter(pl.col("who").is_in(mine["who"].unique().to_list()))
        )
        for row in mine.filter(pl.col("annotations").is_not_null()).iter_rows(named=True):
            annotated = parse_interval(msgspec.json.decode(row["annotations"]), [])
            if annotated is not None:
                owner: Owner = tuple(row[name] for name in WORKLOAD)
                checkpoints[owner] = annotated
        return checkpoints


@cache
def _list_surviving_kinds() -> frozenset[str]:
    return frozenset(kind for kind, row in read_tolerances().items() if row.tolerance in SURVIVORS)


def _count_incidents(failed: Sequence[Failure]) -> int:
    """Count the failures of nodes: all workloads that one failure stops are one incident.

    Not counted: errors of the application, a pod that was preempted for another, and a spot node
    that its cloud reclaims (the `spot` analyzer measures these).
    """
    last: dict[Place, datetime] = {}
    count = 0
    for failure in failed:
        if failure.cause in {"application", "spot", "preemption"}:
            continue
        places = [(failure.owner[0], node) for node in failure.nodes]
        count += any(failure.at - last.get(p, datetime.min) > TOGETHER for p in places)  # noqa: DTZ901
        last.update(dict.fromkeys(places, failure.at))
    return count


def _group_by_owner(failed: Sequence[Failure]) -> dict[Owner, list[Failure]]:
    by_owner: dict[Owner, list[Failure]] = defaultdict(list)
    for failure in failed:
        by_owner[failure.owner].append(failure)
    return dict(sorted(by_owner.items()))


def _sum_bills(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[dict[Owner, dict[str, GpuCost]], dict[Place, GpuCost]]:
    costs: dict[Owner, dict[str, GpuCost]] = defaultdict(dict)
    away: dict[Place, GpuCost] = {}
    for row in rows:
        bill = GpuCost(row["gpu_hours"], row["usd"])
        if row["state"] == "unavailable":
            place = row["cluster"], row["node"]
            away[place] = away.get(place, GpuCost(0.0, Decimal())).plus(bill)
        else:
            owner: Owner = tuple(row[name] for name in WORKLOAD)
            costs[owner][row["state"]] = bill
    return dict(costs), away


def _compute_load_times(
    pods: pl.DataFrame, costs: Mapping[Owner, Mapping[str, GpuCost]]
) -> dict[Owner, float]:
    """Return how long a pod of each workload takes to start, on average, in seconds."""
    if pods.is_empty():
        return {}
    gpu_sums = pods.group_by(WORKLOAD).agg(pl.col("gpus").sum())
    return {
        row[:4]: costs[row[:4]]["startup"].gpu_hours * 3600 / row[4]
        for row in gpu_sums.iter_rows()
        if "startup" in costs.get(row[:4], {})
    }


def _find_down(
    events: Sequence[Mapping[str, Any]], causes: Mapping[str, str], until: datetime
) -> dict[Place, list[tuple[datetime, datetime]]]:
    """Return the stretches in which each node was not ready.

    A spot node that is not ready because its cloud reclaims it had no outage.
    """
    reclaimed: dict[Place, list[datetime]] = defaultdict(list)
    for row in events:
        if row["kind"] == "Node" and causes.get(row["reason"]) == "spot":
            reclaimed[row["cluster"], row["name"]].append(row["ts"])
    down: dict[Place, list[tuple[datetime, datetime]]] = defaultdict(list)
    since: dict[Place, datetime] = {}
    for row in events:
        place = row["cluster"], row["name"]
        if row["kind"] == "Node" and row["reason"] == "NodeNotReady":
            since.setdefault(place, row["ts"])
        elif row["kind"] == "Node" and row["reason"] == "NodeReady" and place in since:
            down[place].append((since.pop(place), row["ts"]))
    for place, at in since.items():
        down[place].append((at, until))
    outages = {
        place: [s for s in spans if not any(s[0] - BEFORE <= at <= s[0] + AFTER for at in reclaims)]
        for place, spans in down.items()
        for reclaims in [reclaimed.get(place, [])]
    }
    return {place: spans for place, spans in outages.items() if spans}


def _round_value(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
