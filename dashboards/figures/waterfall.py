"""Compute the GPU-hour waterfall: from paid to productive hours, and the possible savings."""

from datetime import datetime
from decimal import Decimal

import msgspec

from dashboards.figures.query import ADVICE, BY_HOUR, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

FALL = (
    ("unavailable", "broken or cordoned"),
    ("stranded", "free, but nothing fits"),
    ("free", "not allocated"),
    ("unknown", "no telemetry, or odd"),
    ("idle", "allocated, not used"),
    ("lost", "work thrown away"),
    ("startup", "starting up"),
    ("low", "working below target"),
    ("productive", "working"),
)
"""The ledger's states, from unusable to productive."""


class WaterfallStage(msgspec.Struct, frozen=True):
    """One state: its hours and dollars, and what is left below it (`left` includes its own)."""

    state: str
    meaning: str
    gpu_hours: float
    usd: Decimal | None
    left_gpu_hours: float
    left_usd: Decimal | None


class Saving(msgspec.Struct, frozen=True):
    """What one analyzer's findings would save, by kind of saving."""

    analyzer: str
    saving: str
    evidence: str
    """confirmed, suspected or partly suspected."""
    findings: int
    gpu_hours: float
    usd: Decimal | None
    idle_gpu_hours: float
    """Of these hours, those that are idle in the ledger."""
    in_use_gpu_hours: float
    """Of these hours, those that are not waste: cash; `in_use_usd` is their saving."""
    in_use_usd: Decimal | None
    at_most_gpu_hours: float
    """Beside them: hours in use that advice could free at most, and their dollars."""
    at_most_usd: Decimal | None
    divided: bool
    """Whether its findings have their saving of hours in use."""
    found_at: datetime


class GpuHourWaterfall(msgspec.Struct, frozen=True):
    """States sum to the paid hours and the bill; savings never exceed what is paid."""

    gpu_hours: float
    usd: Decimal | None
    steps: tuple[WaterfallStage, ...]
    savings: tuple[Saving, ...]
    kept_gpu_hours: float
    """Paid hours that no finding would save."""
    unadvised_gpu_hours: float
    """Idle hours of findings that save nothing: without advice, or whose action took effect."""


def compute_waterfall(views: Views, window: Window, filters: Filters) -> GpuHourWaterfall:
    """Return the stages of the paid hours, state by state, and what findings would save of them."""
    rows = {
        r["state"]: r
        for r in run_query(views, (*BY_HOUR, "waterfall/states"), window, filters).to_pylist()
    }
    hours = sum(r["gpu_hours"] for r in rows.values())
    priced = [r["usd"] for r in rows.values() if r["usd"] is not None]
    usd = sum(priced, Decimal()) if priced else None
    steps: list[WaterfallStage] = []
    left_hours, left_usd = hours, usd
    for state, meaning in FALL:
        row = rows.get(state)
        if row is None:
            continue
        steps.append(
            WaterfallStage(state, meaning, row["gpu_hours"], row["usd"], left_hours, left_usd)
        )
        left_hours -= row["gpu_hours"]
        left_usd = None if left_usd is None else left_usd - (row["usd"] or 0)
    savings, unadvised_hours = _list_savings(views, window, filters)
    saved = sum(s.gpu_hours for s in savings)
    remaining_hours = max(0.0, hours - saved)
    return GpuHourWaterfall(hours, usd, tuple(steps), savings, remaining_hours, unadvised_hours)


def _list_savings(
    views: Views, window: Window, filters: Filters
) -> tuple[tuple[Saving, ...], float]:
    """Return what the stored findings would save in the window, the most expensive first.

    And the idle GPU-hours of findings that save nothing.
    """
    rows = run_query(
        views,
        (*ADVICE, "waterfall/steps", "waterfall/unadvised", "waterfall/savings"),
        window,
        filters,
    ).to_pylist()
    unadvised = [row.pop("unadvised_gpu_hours") for row in rows]
    return tuple(Saving(**row) for row in rows if row["analyzer"] is not None), unadvised[0]
