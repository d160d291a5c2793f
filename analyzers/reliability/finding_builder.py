"""Build findings from hours with their dollars, and the claims on these hours."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from analyzers.checkpoints import Owner
from analyzers.money import CENT, SMALLEST
from fallow.models import Claim, Finding, Recommendation, State, Subject, finding_id
from fallow.window import Window

ANALYZER = "reliability"
MOST_NAMED = 16


class GpuCost(msgspec.Struct, frozen=True):
    """GPU-hours and their dollars; None = part of them has no price."""

    gpu_hours: float
    usd: Decimal | None

    def plus(self, other: "GpuCost") -> "GpuCost":
        """Return the sum of both."""
        priced = self.usd is not None and other.usd is not None
        usd = (self.usd or Decimal()) + (other.usd or Decimal()) if priced else None
        return GpuCost(self.gpu_hours + other.gpu_hours, usd)

    def part(self, gpu_hours: float) -> Decimal | None:
        """Return the dollars of some of the hours."""
        if self.usd is None or self.gpu_hours <= 0:
            return None
        share = Decimal(repr(min(gpu_hours / self.gpu_hours, 1.0)))
        return (self.usd * share).quantize(SMALLEST, ROUND_DOWN)


def build_claims(owner: Owner, costs: Mapping[str, GpuCost], gpu_hours: float) -> tuple[Claim, ...]:
    """Claim a number of a workload's working hours, in proportion to its hours in each state."""
    states: tuple[State, ...] = ("lost", "productive", "low")
    total = sum_states(costs, states).gpu_hours
    cluster, namespace, kind, name = owner
    return tuple(
        Claim(cluster, namespace, kind, name, None, state, part, costs[state].part(part))
        for state in states
        if state in costs and (part := gpu_hours * costs[state].gpu_hours / total) > 0
    )


def sum_states(costs: Mapping[str, GpuCost], states: Sequence[str]) -> GpuCost:
    """Return the sum over some states."""
    bill = GpuCost(0.0, Decimal())
    for state in states:
        if state in costs:
            bill = bill.plus(costs[state])
    return bill


def round_value(value: float | None) -> float | None:
    """Return a value rounded as findings show it."""
    return None if value is None else round(value, 2)


def build_finding(  # noqa: PLR0917  (one place where findings are made)
    kind: str,
    about: Subject,
    window: Window,
    bill: GpuCost,
    details: dict[str, Any],
    advice: Recommendation | None,
    *,
    certain: bool,
) -> Finding:
    """Build a finding from its bill, its details and its advice."""
    days = Decimal(repr(window.seconds / 86_400))
    claims = advice.claims if advice else ()
    saved = sum(c.gpu_hours for c in claims)
    usd = sum((c.usd or Decimal() for c in claims), Decimal())
    return Finding(
        id=finding_id(ANALYZER, kind, about, window.start),
        analyzer=ANALYZER,
        kind=kind,
        subject=about,
        window=window,
        verdict="wasteful",
        evidence="confirmed" if certain else "suspected",
        confidence=0.9 if certain else 0.6,
        gpu_hours=round(bill.gpu_hours, 6),
        usd=None if bill.usd is None else bill.usd.quantize(SMALLEST, ROUND_DOWN),
        details=details,
        recommendations=()
        if advice is None
        else (
            msgspec.structs.replace(
                advice,
                gpu_hours_per_day=round(saved / float(days), 4) if saved else None,
                usd_per_day=(usd / days).quantize(CENT, ROUND_DOWN) if usd else None,
            ),
        ),
    )
