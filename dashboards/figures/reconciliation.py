"""Compare possible savings with waste, and idle hours with findings, in sentences.

    could be saved = part of the wasted + cash from hours in use
    beside it      : at most, from hours in use (a bound, in no sum)
    idle hours     = hours in findings + not analysed + idle, no finding

Pages, reports and the command line show the same sentences, each with its own format of amounts.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal

import msgspec

from dashboards.figures.query import Filters
from dashboards.figures.savings import Stages, read_stages
from dashboards.figures.spend import SpendTotals, read_totals
from dashboards.figures.waterfall import GpuHourWaterfall, compute_waterfall
from fallow import money
from fallow.protocols import Views
from fallow.window import Window

LEAST_USD = Decimal("0.005")
"""Dollars below which a part is noise of rounding."""


class Reconciliation(msgspec.Struct, frozen=True):
    """Possible savings beside the waste, and idle hours; dollars None = no price."""

    wasted_gpu_hours: float
    wasted_usd: Decimal | None
    saves_gpu_hours: float | None
    """None = not analysed."""
    saves_usd: Decimal | None
    in_use_gpu_hours: float
    in_use_usd: Decimal | None
    in_use_by: tuple[str, ...]
    """Analyzers whose findings save cash of hours in use, by the dollars they save."""
    at_most_gpu_hours: float
    at_most_usd: Decimal | None
    at_most_by: tuple[str, ...]
    """Analyzers whose advice could free hours in use at most, by the dollars of the bound."""
    idle_gpu_hours: float
    idle_claimed_gpu_hours: float
    """Idle hours in findings, with or without advice; never more than all idle hours."""
    idle_not_analysed_gpu_hours: float = 0.0
    """Of the other idle hours: those that the idle analyzer did not judge, at most all of them."""
    divided: bool = True
    """Whether every finding has its saving of hours in use; older findings do not."""
    missed_hours: int = 0
    """Hours of the window that were not analysed; `gap` says which, "" = (nearly) none."""
    gap: str = ""
    found_at: datetime | None = None
    """When the newest of the stored findings were found, naive UTC."""

    @property
    def idle_without_finding_gpu_hours(self) -> float:
        """Return the judged idle hours that are in no finding: they are too short for one."""
        claimed = self.idle_claimed_gpu_hours + self.idle_not_analysed_gpu_hours
        return self.idle_gpu_hours - claimed

    @property
    def of_waste_usd(self) -> Decimal | None:
        """Return the dollars of savings that are part of the waste, in cents."""
        if self.saves_usd is None:
            return None
        beside = money.round_to_cents(self.in_use_usd or Decimal())
        return money.round_to_cents(self.saves_usd) - beside

    def savings(self, usd: Callable[[Decimal], str]) -> str:
        """Return how the possible savings relate to the waste; "" = nothing could be saved.

        `usd` formats dollars with their cents, so that the shown parts add up.
        """
        gap = f" At least: {self.gap}." if self.gap and self.saves_gpu_hours is not None else ""
        return f"{self._describe_savings(usd)}{gap}".strip()

    def _describe_savings(self, usd: Callable[[Decimal], str]) -> str:
        if not self.saves_gpu_hours:
            return self._describe_bound(usd)
        if not self.divided:
            return (
                "How much of what could be saved is part of what is wasted is known after the next "
                "analysis."
            )
        by = ", ".join(self.in_use_by)
        of_waste = self.of_waste_usd
        if self.saves_usd is None or self.wasted_usd is None or of_waste is None:
            saves, in_use = round(self.saves_gpu_hours, 1), round(self.in_use_gpu_hours, 1)
            rest = f" and {_format_hours(in_use)} from hours in use ({by})" if by else ""
            return (
                f"Of {_format_hours(saves)} that could be saved "
                f"{_format_hours(saves - in_use)} are part of the "
                f"{_format_hours(self.wasted_gpu_hours)} wasted{rest}. {self._describe_bound(usd)}"
            ).rstrip()
        parts = [f"{usd(of_waste)} is part of the {usd(self.wasted_usd)} wasted"]
        if self.in_use_usd and self.in_use_usd >= LEAST_USD:
            parts.append(f"{usd(self.in_use_usd)} cash from hours in use ({by})")
        whole = f"Of {usd(self.saves_usd)} that could be saved {_format_list(parts)}."
        return f"{whole} {self._describe_bound(usd)}".rstrip()

    def _describe_bound(self, usd: Callable[[Decimal], str]) -> str:
        if not round(self.at_most_gpu_hours, 1):
            return ""
        by = ", ".join(self.at_most_by)
        amount = (
            _format_hours(self.at_most_gpu_hours)
            if self.at_most_usd is None
            else usd(self.at_most_usd)
        )
        return f"Hours in use: at most {amount} more ({by}), a bound that is in no sum."

    def idle(self) -> str:
        """Return which idle hours findings claim, in parts that add up; "" = none, not analysed."""
        if not self.idle_gpu_hours or self.saves_gpu_hours is None:
            return ""
        whole, claimed, unjudged = (
            round(hours, 1)
            for hours in (
                self.idle_gpu_hours,
                self.idle_claimed_gpu_hours,
                self.idle_not_analysed_gpu_hours,
            )
        )
        gap = f"{_format_hours(unjudged)} not analysed + " if unjudged else ""
        return (
            f"Idle: {_format_hours(whole)} = {_format_hours(claimed)} in findings + {gap}"
            f"{_format_hours(whole - claimed - unjudged)} idle, no finding."
        )


def read_reconciliation(views: Views, window: Window, filters: Filters) -> Reconciliation | None:
    """Return how the savings of a window relate to its waste; None as `reconcile`."""
    stages, totals = read_stages(views, window, filters), read_totals(views, window, filters)
    return reconcile(compute_waterfall(views, window, filters), totals, stages, filters)


def reconcile(
    waterfall_total: GpuHourWaterfall, totals: SpendTotals, stages: Stages, filters: Filters
) -> Reconciliation | None:
    """Return how the savings of a window relate to its waste.

    None where the two are counted differently: findings are not known by pool, and their savings
    are counted in fully loaded dollars.
    """
    if filters.pool is not None or filters.view != "loaded":
        return None
    in_use = [s for s in waterfall_total.savings if s.in_use_usd or s.in_use_gpu_hours]
    bounds = [s for s in waterfall_total.savings if s.at_most_gpu_hours]
    claimed = min(
        totals.idle_gpu_hours,
        sum(s.idle_gpu_hours for s in waterfall_total.savings)
        + waterfall_total.unadvised_gpu_hours,
    )
    return Reconciliation(
        wasted_gpu_hours=totals.wasted_gpu_hours,
        wasted_usd=totals.wasted_usd,
        saves_gpu_hours=stages.saveable_gpu_hours,
        saves_usd=stages.saveable_usd,
        in_use_gpu_hours=sum(s.in_use_gpu_hours for s in in_use),
        in_use_usd=money.sum_known(s.in_use_usd for s in in_use) or Decimal(),
        in_use_by=rank_by_dollars((s.analyzer, s.in_use_usd) for s in in_use),
        at_most_gpu_hours=stages.at_most_gpu_hours,
        at_most_usd=stages.at_most_usd,
        at_most_by=rank_by_dollars((s.analyzer, s.at_most_usd) for s in bounds),
        idle_gpu_hours=totals.idle_gpu_hours,
        idle_claimed_gpu_hours=claimed,
        idle_not_analysed_gpu_hours=min(totals.idle_gpu_hours - claimed, stages.gap.idle_gpu_hours),
        divided=all(s.divided for s in waterfall_total.savings),
        missed_hours=stages.gap.missed_hours,
        gap=stages.gap.summary,
        found_at=max((s.found_at for s in waterfall_total.savings), default=None),
    )


def rank_by_dollars(amounts: Iterable[tuple[str, Decimal | None]]) -> tuple[str, ...]:
    """Return the names of amounts by the sum of their dollars, the most first."""
    by: dict[str, Decimal] = {}
    for name, usd in amounts:
        by[name] = by.get(name, Decimal()) + (usd or Decimal())
    return tuple(sorted(by, key=lambda name: (-by[name], name)))


def _format_hours(gpu_hours: float) -> str:
    return f"{gpu_hours:,.1f} GPU-h"


def _format_list(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
