"""Compute what workloads did while they worked, from hourly rollups, and the cost of those hours.

    rollup_1h ─► hours at work, per pod and device ─► a frame (`device_work.sql`)
    ledger ───► GPU-hours and dollars per workload and state ─► `GpuCost`

An hour counts as work if the device is active for half of its observed time. Idle time then belongs
to the idle analyzer only.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal

import msgspec
import polars as pl

from analyzers.money import CENT, SMALLEST
from analyzers.queries import DEVICE_OWNERS, POD_HOURS, compose_steps
from analyzers.rows import read_bill
from analyzers.workload_rows import Owner, WorkloadPlaceRow
from fallow.models import Claim, State, Subject
from fallow.protocols import Views
from fallow.window import Window
from warehouse.signals import SPIN as SPINS

MOST_NAMED = 16
WORKED: tuple[State, ...] = ("low", "productive", "lost")
ALLOCATED: tuple[State, ...] = (*WORKED, "idle")

HOURS = (DEVICE_OWNERS, "busy_hours", POD_HOURS, "device_work")
SPIN = {n: SPINS[n] for n in ("spin_engine", "spin_tensor", "spin_dram", "spin_bps")}
"""Busy without any traffic or tensor activity: the hours of a hung collective.

Source: telemetry-and-waste.md#signals."""


COUNTERS = {
    "sm": "DCGM_FI_PROF_SM_ACTIVE, gauge, SM cycles with a resident warp (0-1).",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Cycles of the tensor pipe (0-1).",
    "fp32": "DCGM_FI_PROF_PIPE_FP32_ACTIVE, gauge, Cycles of the FP32 pipe (0-1).",
    "dram": "DCGM_FI_PROF_DRAM_ACTIVE, gauge, Cycles of the memory interface (0-1).",
}
"""Lines of dcgm-exporter's counters file, by what they measure (telemetry-and-waste.md#signals)."""


class StateCost(msgspec.Struct, frozen=True):
    """GPU-hours of one state and their cost; None = some of it has no price."""

    gpu_hours: float
    usd: Decimal | None


class WorkloadCosts(msgspec.Struct, frozen=True):
    """The cost of each workload's hours, by state."""

    of: Mapping[Owner, Mapping[str, StateCost]]

    def total(self, owner: Owner, states: Sequence[State]) -> StateCost | None:
        """Return a workload's hours in these states together; None where the ledger has none."""
        have = [a for s, a in self.of.get(owner, {}).items() if s in states]
        if not have:
            return None
        dollars = [a.usd for a in have if a.usd is not None]
        whole = len(dollars) == len(have)
        return StateCost(
            sum(a.gpu_hours for a in have), sum(dollars, Decimal(0)) if whole else None
        )

    def claims(self, owner: Owner, share: float, states: Sequence[State]) -> tuple[Claim, ...]:
        """Claim a share of a workload's hours in these states."""
        claims = []
        for state in states:
            amount = self.of.get(owner, {}).get(state)
            hours = round(amount.gpu_hours * share, 6) if amount else 0.0
            if amount is None or not hours:
                continue
            usd = None if amount.usd is None else compute_share(amount.usd, share)
            claims.append(Claim(*owner, None, state, hours, usd))
        return tuple(claims)


def read_work(views: Views, window: Window) -> pl.DataFrame:
    """Return one row per pod and device: its measures while it worked (`device_work.sql`)."""
    parameters = {"since": window.start, "until": window.end, **SPIN}
    return pl.DataFrame(views.query(compose_steps(*HOURS, once="busy_hours"), parameters))


def read_costs(views: Views, window: Window) -> WorkloadCosts:
    """Return the cost of each workload's hours in the window."""
    of: dict[Owner, dict[str, StateCost]] = {}
    for row in read_bill(views, window):
        usd = row.usd if row.priced else None
        of.setdefault(row.owner, {})[row.state] = StateCost(row.gpu_hours, usd)
    return WorkloadCosts(of)


def list_counters(*names: str) -> str:
    """Return the lines of dcgm-exporter's counters file that turn these on."""
    return " | ".join(COUNTERS[name] for name in names)


def compute_share(usd: Decimal, share: float) -> Decimal:
    """Return a share of dollars, rounded down: never above the bill."""
    return (usd * Decimal(repr(share))).quantize(SMALLEST, ROUND_DOWN)


def compute_per_day(usd: Decimal | None, window: Window) -> Decimal | None:
    """Return dollars of a window per day, to the cent."""
    if usd is None:
        return None
    return (usd * 86_400 / Decimal(repr(window.seconds))).quantize(CENT, ROUND_DOWN)


def build_subject(row: WorkloadPlaceRow) -> Subject:
    """Return the workload of a row, with its nodes and models."""
    return Subject(
        *row.owner,
        team=row.team,
        nodes=tuple(_sort_words(row.nodes))[:MOST_NAMED],
        models=tuple(_sort_words(row.models)),
    )


def _sort_words(words: Iterable[str | None]) -> list[str]:
    return sorted({word for word in words if word})
