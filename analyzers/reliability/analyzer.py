"""Find the cost of failures: lost work, time to recover, sick GPUs, outages, slow GPUs.

rollup_1h ──► XIDs, clocks ─┐   devices.py   sick GPUs      ─┐
sample ────► memory errors ─┼─► failures.py  lost work, steps ─┼─► findings.py
event, pod, node, ledger ───┘   clocks.py    slow GPUs        ─┘
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from analyzers.query_cache import cache_query
from analyzers.reliability.clocks import SlowDevice
from analyzers.reliability.failure_records import (
    FailureRecords,
    list_surviving_kinds,
    read_failures,
)
from analyzers.reliability.failures import STEPS, Failure, Place, count_incidents
from analyzers.reliability.findings import (
    build_lost_work,
    build_missing_device,
    build_outages,
    build_sick_node,
    build_slow_gpus,
    build_unknown_loss,
    round_value,
)
from analyzers.workload_rows import Owner
from fallow.checkpointing import compute_mtbf
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.reliability import ReliabilitySettings
from fallow.window import Window


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
            if owner[2] in list_surviving_kinds() and owner not in site.checkpoints
        ]

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return the fleet's failures by cause, its MTBF and its mean time to recover by step."""
        site = self._read(views, window)
        if not site.nodes:
            return {}
        hours = sum(node.hours for node in site.nodes.values())
        measured = compute_mtbf(count_incidents(site.failures), hours)
        steps = [f.seconds for f in site.failures if f.seconds]
        return {
            "failures_of_work": dict(sorted(Counter(f.cause for f in site.failures).items())),
            "node_hours": round(hours, 1),
            "mtbf_node_hours": round_value(measured.mean_h),
            "mtbf_node_hours_95": [round_value(measured.low_h), round_value(measured.high_h)],
            "mean_seconds_to_recover": {
                step: round(sum(s[step] for s in steps) / len(steps), 1) for step in STEPS
            }
            if steps
            else None,
            "sick_nodes": sum(any(s.level == "sick" for s in v) for v in site.sick.values()),
            "missing_gpus": sum(node.expected - node.visible for node in site.missing),
            "slow_gpus": len({(s.owner[0], s.device) for s in site.slow}),
        }

    def _nodes(self, site: FailureRecords, window: Window) -> Iterator[Finding]:
        for place, sick in sorted(site.sick.items()):
            guards = site.guards(place) if site.budgets.is_polled(place[0]) else None
            node, away_ = site.nodes.get(place), site.away.get(place)
            yield build_sick_node(place, sick, away_, node, guards, window)
        for missing in site.missing:
            yield build_missing_device(missing, window)
        pools: dict[Place, list[Place]] = defaultdict(list)
        for place, lifetime in sorted(site.nodes.items()):
            pools[place[0], lifetime.pool].append(place)
        for pool, members in sorted(pools.items()):
            # A finding of a sick node is not repeated for its pool.
            downs = {p: site.down[p] for p in members if p in site.down and p not in site.sick}
            away = {p: site.away[p] for p in downs if p in site.away}
            lost = sum(b.gpu_hours for b in away.values())
            if lost > 0 and lost >= self.settings.min_gpu_hours:
                hours = sum(site.nodes[p].hours for p in members)
                yield build_outages(pool, downs, away, hours, self.settings, window)

    def _work(self, site: FailureRecords, window: Window) -> Iterator[Finding]:
        for owner, failed in _group_by_owner(site.failures).items():
            checkpoints = site.checkpoints.get(owner)
            if owner[2] not in list_surviving_kinds() or checkpoints is None:
                continue
            thrown = {f.at: site.lost[owner, f.at] for f in failed if (owner, f.at) in site.lost}
            costs = site.costs.get(owner, {})
            finding = build_lost_work(
                owner, failed, checkpoints, costs, thrown, self.settings, window
            )
            if finding is not None:
                yield finding

    def _slow(self, site: FailureRecords, window: Window) -> Iterator[Finding]:
        by_owner: dict[Owner, list[SlowDevice]] = defaultdict(list)
        for device in site.slow:
            by_owner[device.owner].append(device)
        for owner, slow in sorted(by_owner.items()):
            finding = build_slow_gpus(
                owner, slow, site.costs.get(owner, {}), owner[2] in list_surviving_kinds(), window
            )
            if finding.gpu_hours >= self.settings.min_gpu_hours:
                yield finding

    @cache_query
    def _read(self, views: Views, window: Window) -> FailureRecords:
        return read_failures(views, window, self.settings)


def _group_by_owner(failed: Sequence[Failure]) -> dict[Owner, list[Failure]]:
    by_owner: dict[Owner, list[Failure]] = defaultdict(list)
    for failure in failed:
        by_owner[failure.owner].append(failure)
    return dict(sorted(by_owner.items()))
