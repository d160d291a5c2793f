"""Find on-demand work that could run on spot, and the saving after the cost of interruptions.

ledger ──► hours by workload and node type ─┐
pod, pod_sample ──► tolerance.py ───────────┼─► plans.py ─► findings.py
rate, event, node ──► market.py ────────────┘
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from analyzers.query_cache import cache_query
from analyzers.spot import tolerance
from analyzers.spot.findings import build_finding
from analyzers.spot.market import CLOUDS, SpotMarket
from analyzers.spot.plans import NoPlan, SpotPlan, plan_move
from analyzers.spot.rows import WorkedHours, read_worked_hours
from analyzers.spot.tolerance import ToleranceSignals
from analyzers.workload_rows import Owner
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.workloads import SpotSettings
from fallow.spot_advisor import NodeType
from fallow.window import Window

BOUGHT = ("on-demand", "unknown")
"""Left out: commitments are paid in any case, and spot is already spot."""


class SpotCandidate(msgspec.Struct, frozen=True):
    """One workload with on-demand hours: the advice, or why there is none."""

    owner: Owner
    team: str | None
    models: tuple[str, ...]
    gpu_hours: float
    usd: Decimal | None
    plans: tuple[SpotPlan, ...] = ()
    reasons: tuple[str, ...] = ()
    unknown: bool = False
    signals: ToleranceSignals | None = None

    @property
    def subject(self) -> Subject:
        """The subject of its finding."""
        return Subject(*self.owner, team=self.team, models=self.models)


class SpotAnalyzer:
    """Find on-demand work that spot capacity would do for less (telemetry-and-waste.md#spot)."""

    def __init__(self, settings: SpotSettings | None = None) -> None:
        self.settings = settings or SpotSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return the saving of each tolerant workload, the most dollars first."""
        findings = [
            build_finding(case.subject, case.signals, case.plans, window, case.usd)
            for case in self._cases(views, window)
            if case.plans and case.signals
        ]
        return sorted(findings, key=lambda f: (-(f.usd or Decimal()), f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the workloads with unknown tolerance, price or risk, and which of the three."""
        return [
            Unjudged(case.subject, round(case.gpu_hours, 6), case.reasons)
            for case in self._cases(views, window)
            if case.unknown
        ]

    def summary(self, views: Views, window: Window) -> dict[str, Any]:
        """Return the fleet's worked GPU-hours: how they were bought, and what could change."""
        hours = self._hours(views, window)
        sums: dict[str, list[Any]] = defaultdict(lambda: [0.0, Decimal()])

        def add(name: str, gpu_hours: float, usd: Decimal | None) -> None:
            sums[name][0] += gpu_hours
            sums[name][1] += usd or Decimal()

        for row in (r for rows in hours.values() for r in rows):
            if row.capacity_type not in BOUGHT:
                add(f"on {row.capacity_type} already", row.gpu_hours, row.usd)
            elif row.provider not in CLOUDS:
                add("in no known cloud", row.gpu_hours, row.usd)
        for case in self._cases(views, window):
            name = "advised" if case.plans else "unknown" if case.unknown else "not suited"
            add(name, case.gpu_hours, case.usd)
        return {
            "gpu_hours": {name: round(values[0], 3) for name, values in sorted(sums.items())},
            "usd": {name: round(float(values[1]), 2) for name, values in sorted(sums.items())},
        }

    @cache_query
    def _hours(self, views: Views, window: Window) -> dict[Owner, list[WorkedHours]]:
        by_owner: dict[Owner, list[WorkedHours]] = defaultdict(list)
        for row in read_worked_hours(views, window):
            by_owner[row.owner].append(row)
        return by_owner

    @cache_query
    def _cases(self, views: Views, window: Window) -> list[SpotCandidate]:
        hours = self._hours(views, window)
        return [*self._judging(views, window, hours)] if hours else []

    def _judging(
        self, views: Views, window: Window, hours: Mapping[Owner, Sequence[WorkedHours]]
    ) -> Iterator[SpotCandidate]:
        signals = tolerance.read_signals(views, window, self.settings)
        market = SpotMarket(views, window, self.settings)
        for owner, rows in hours.items():
            bought = [r for r in rows if r.capacity_type in BOUGHT and r.provider in CLOUDS]
            total = sum(r.gpu_hours for r in bought)
            if total < max(self.settings.min_gpu_hours, 1e-9):
                continue
            whole = all(r.priced for r in bought)
            case = SpotCandidate(
                owner=owner,
                team=next((r.team for r in bought if r.team), None),
                models=tuple(sorted({r.model for r in bought if r.model})),
                gpu_hours=total,
                usd=sum((r.cost for r in bought), Decimal()) if whole else None,
                signals=signals.get(owner),
            )
            yield self._judged(case, bought, market)

    def _judged(
        self, case: SpotCandidate, bought: Sequence[WorkedHours], market: SpotMarket
    ) -> SpotCandidate:
        seen = case.signals
        refused = _find_refusal(case)
        if refused is not None or seen is None:
            why = refused or NoPlan("")
            return msgspec.structs.replace(case, reasons=(why.reason,), unknown=why.unknown)
        by_type: dict[NodeType, list[WorkedHours]] = defaultdict(list)
        for row in bought:
            by_type[row.node_type].append(row)
        tried = [
            plan_move(key, rows, seen, market, self.settings)
            for key, rows in sorted(by_type.items())
        ]
        plans = tuple(p for p in tried if isinstance(p, SpotPlan))
        if plans:
            return msgspec.structs.replace(case, plans=plans)
        refusals = [n for n in tried if isinstance(n, NoPlan)]
        unknown = any(n.unknown for n in refusals)
        reasons = dict.fromkeys(n.reason for n in refusals if n.unknown or not unknown)
        return msgspec.structs.replace(case, reasons=tuple(reasons), unknown=unknown)


def _find_refusal(case: SpotCandidate) -> NoPlan | None:
    """Return why a workload is not evaluated at all."""
    seen = case.signals
    if seen is None:
        return NoPlan("no pod of it is in the inventory", unknown=True)
    unsure = f"it is unknown whether a {case.owner[2] or 'workload'} bears an interruption"
    tests = (
        (seen.tolerance == "unknown", NoPlan(unsure, unknown=True)),
        (seen.tolerance == "never", NoPlan(seen.owner)),
        (seen.forbidden is not None, NoPlan(f"{seen.forbidden} forbids it")),
        (bool(seen.misread), NoPlan("; ".join(seen.misread), unknown=True)),
        (case.usd is None, NoPlan("part of it has no price", unknown=True)),
    )
    return next((no for failed, no in tests if failed), None)
