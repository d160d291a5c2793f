"""Sum GPU-hours with their dollars, and claim parts of them."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, Decimal

import msgspec

from analyzers.money import SMALLEST
from analyzers.workload_rows import Owner
from fallow.models import Claim, State


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
