"""Findings by the dollars they save: effort x impact, as people plan their work.

Effort is the first recommendation's: *quick win* (one setting, undone as fast), *advanced* (a
project), *continuous* (a practice). Impact is what the finding saves on top of those before it in
the waterfall, as a share of the bill (`impact.csv`); where nothing has a price, of the GPU-hours.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Literal

import msgspec

from analyzers.queries import rows_of
from analyzers.waterfall import Amount, Step, Waterfall
from fallow.nouns import Effort, Finding

Impact = Literal["high", "medium", "low"]
EFFORTS: tuple[Effort, ...] = ("quick win", "advanced", "continuous")


class Ranked(msgspec.Struct, frozen=True):
    """A finding with its class: who should do it when, and what that is worth."""

    finding: Finding
    effort: Effort | None
    """None = nothing is recommended."""
    impact: Impact
    gpu_hours: float
    """Saved on top of those before it; 0 where nothing is claimed."""
    usd: Decimal | None


def ranked(found: Sequence[Finding], waterfall: Waterfall) -> list[Ranked]:
    """Return findings by the dollars they save, the most first; then by those they show."""
    steps: dict[str, list[Step]] = {}
    for step in waterfall.steps:
        steps.setdefault(step.finding, []).append(step)
    rows = [_ranked(finding, steps.get(finding.id, ()), waterfall.bill) for finding in found]
    return sorted(rows, key=_dearest)


def impact(saved: Amount, bill: Amount) -> Impact:
    """Return the class of a saving beside the bill."""
    if saved.usd is not None and bill.usd:
        share = float(saved.usd / bill.usd)
    else:
        share = saved.gpu_hours / bill.gpu_hours if bill.gpu_hours else 0.0
    return next(name for name, least in _classes() if share >= least)


def _ranked(finding: Finding, steps: Sequence[Step], bill: Amount) -> Ranked:
    known = [step.marginal.usd for step in steps if step.marginal.usd is not None]
    saved = Amount(
        round(sum(step.marginal.gpu_hours for step in steps), 6),
        sum(known, Decimal(0)) if known else None,
    )
    advice = finding.recommendations
    return Ranked(
        finding=finding,
        effort=advice[0].effort if advice else None,
        impact=impact(saved, bill),
        gpu_hours=saved.gpu_hours,
        usd=saved.usd,
    )


def _dearest(row: Ranked) -> tuple[Decimal, Decimal, float, float, str]:
    shown = row.finding.usd or Decimal(0)
    return (
        -(row.usd or Decimal(0)),
        -shown,
        -row.gpu_hours,
        -row.finding.gpu_hours,
        row.finding.id,
    )


@cache
def _classes() -> tuple[tuple[Impact, float], ...]:
    rows = rows_of("impact")
    return tuple((row["impact"], float(row["least_share_of_bill"])) for row in rows)  # type: ignore[misc]
