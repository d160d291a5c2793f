"""The GPU-hour waterfall: from what was paid to what grew, and what could be saved of the rest."""

from datetime import datetime
from decimal import Decimal

import msgspec

from dashboards.figures.asking import Filters, ask
from fallow.seams import Views
from fallow.window import Window

FALL = (
    ("unavailable", "broken or cordoned"),
    ("stranded", "free, but nothing fits"),
    ("free", "held by nobody"),
    ("unknown", "no telemetry, or odd"),
    ("idle", "held, not used"),
    ("lost", "work thrown away"),
    ("startup", "starting up"),
    ("low", "working below target"),
    ("productive", "working"),
)
"""The ledger's states from what nobody could use to what worked."""


class Step(msgspec.Struct, frozen=True):
    """One state: its hours and dollars, and what is left below it (`left` includes its own)."""

    state: str
    meaning: str
    gpu_hours: float
    usd: Decimal | None
    left_gpu_hours: float
    left_usd: Decimal | None


class Saving(msgspec.Struct, frozen=True):
    """What one analyzer's findings would save, by kind of saving and evidence."""

    analyzer: str
    saving: str
    evidence: str
    findings: int
    gpu_hours: float
    usd: Decimal | None
    found_at: datetime


class Waterfall(msgspec.Struct, frozen=True):
    """States sum to the paid hours and the bill; savings never exceed what is paid."""

    gpu_hours: float
    usd: Decimal | None
    steps: tuple[Step, ...]
    savings: tuple[Saving, ...]
    kept_gpu_hours: float
    """Paid hours that no finding would save."""


def waterfall(views: Views, window: Window, filters: Filters) -> Waterfall:
    """Return how the paid hours fall state by state, and what findings would save of them."""
    rows = {
        r["state"]: r for r in ask(views, ("paid", "waterfall/states"), window, filters).to_pylist()
    }
    hours = sum(r["gpu_hours"] for r in rows.values())
    priced = [r["usd"] for r in rows.values() if r["usd"] is not None]
    usd = sum(priced, Decimal()) if priced else None
    steps: list[Step] = []
    left_hours, left_usd = hours, usd
    for state, meaning in FALL:
        row = rows.get(state)
        if row is None:
            continue
        steps.append(Step(state, meaning, row["gpu_hours"], row["usd"], left_hours, left_usd))
        left_hours -= row["gpu_hours"]
        left_usd = None if left_usd is None else left_usd - (row["usd"] or 0)
    savings = savings_of(views, window, filters)
    saved = sum(s.gpu_hours for s in savings)
    return Waterfall(hours, usd, tuple(steps), savings, max(0.0, hours - saved))


def savings_of(views: Views, window: Window, filters: Filters) -> tuple[Saving, ...]:
    """Return what the stored findings would save in the window, the dearest first."""
    rows = ask(views, ("advice", "waterfall/steps"), window, filters).to_pylist()
    return tuple(Saving(**row) for row in rows)
