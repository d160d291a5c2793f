"""Rank findings by the dollars they save, and classify their effort and impact.

The effort is that of the first recommendation: *quick win* (one setting, undone as fast),
*advanced* (a project), *continuous* (a practice). The impact is the finding's additional saving
after those before it in the waterfall, with its bound, as a share of the bill (`impact.csv`); where
nothing has a price, of the GPU-hours.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Literal

import msgspec

from analyzers.queries import load_records
from analyzers.waterfall import SavedAmount, SavingStage, SavingsWaterfall
from fallow.models import Effort, Finding
from fallow.money import sum_known
from fallow.rows import Row

Impact = Literal["high", "medium", "low"]


class ImpactClass(Row, frozen=True):
    """One row of `impact.csv`: a class of savings, from a share of the bill on."""

    impact: Impact
    least_share_of_bill: float
    why: str


class RankedFinding(msgspec.Struct, frozen=True):
    """A finding with its class: the effort, and the saving."""

    finding: Finding
    effort: Effort | None
    """None = there is no recommendation."""
    impact: Impact
    gpu_hours: float
    """The saving in addition to those before it; 0 where nothing is claimed."""
    usd: Decimal | None
    at_most_gpu_hours: float = 0.0
    """The bound beside it: hours in use that it could free at most."""
    at_most_usd: Decimal | None = None


def rank_findings(findings: Sequence[Finding], waterfall: SavingsWaterfall) -> list[RankedFinding]:
    """Return findings by the dollars they save, the largest first.

    Then by what they could free at most of hours in use, then by the dollars they show.
    """
    steps: dict[str, list[SavingStage]] = {}
    for step in waterfall.steps:
        steps.setdefault(step.finding, []).append(step)
    rows = [
        _rank_finding(finding, steps.get(finding.id, ()), waterfall.bill) for finding in findings
    ]
    return sorted(rows, key=_get_sort_key)


def classify_impact(saved: SavedAmount, bill: SavedAmount) -> Impact:
    """Return the class of a saving as a share of the bill."""
    if saved.usd is not None and bill.usd:
        share = float(saved.usd / bill.usd)
    else:
        share = saved.gpu_hours / bill.gpu_hours if bill.gpu_hours else 0.0
    return next(name for name, least in _read_classes() if share >= least)


def _rank_finding(
    finding: Finding, steps: Sequence[SavingStage], bill: SavedAmount
) -> RankedFinding:
    saved = add_amounts([step.marginal for step in steps])
    at_most = add_amounts([step.at_most for step in steps])
    advice = finding.recommendations
    return RankedFinding(
        finding=finding,
        effort=advice[0].effort if advice else None,
        impact=classify_impact(add_amounts([saved, at_most]), bill),
        gpu_hours=saved.gpu_hours,
        usd=saved.usd,
        at_most_gpu_hours=at_most.gpu_hours,
        at_most_usd=at_most.usd,
    )


def add_amounts(amounts: Sequence[SavedAmount]) -> SavedAmount:
    """Return a sum of savings; dollars None = none has a price."""
    return SavedAmount(
        round(sum(amount.gpu_hours for amount in amounts), 6),
        sum_known(amount.usd for amount in amounts),
    )


def _get_sort_key(row: RankedFinding) -> tuple[Decimal, Decimal, Decimal, float, float, str]:
    total_usd = row.finding.usd or Decimal(0)
    return (
        -(row.usd or Decimal(0)),
        -(row.at_most_usd or Decimal(0)),
        -total_usd,
        -row.gpu_hours,
        -row.finding.gpu_hours,
        row.finding.id,
    )


@cache
def _read_classes() -> tuple[tuple[Impact, float], ...]:
    rows = load_records("impact", ImpactClass)
    return tuple((row.impact, row.least_share_of_bill) for row in rows)
