"""Compute the funnel of the paid GPU-hours: allocated, active, effective, useful, by job size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from dashboards.figures.query import BY_DAY, Filters, run_query
from fallow.money import sum_known
from fallow.protocols import Views
from fallow.window import Window

STEPS = (*BY_DAY, "funnel/sizes", "funnel/stages")
JOB_SIZES = ((1, "1 GPU"), (7, "2 to 7"), (8, "8"), (31, "9 to 31"), (math.inf, "32 and more"))
"""The most GPUs of each class of jobs, and its name."""
UNKNOWN_SIZE = "unknown"
HOURS = ("known", "busy", "measured", "effective", "useful")


class FunnelPart(msgspec.Struct, frozen=True):
    """GPU-hours of jobs of one size, or of all that was paid, and what was left at each stage.

    A factor is a share (0-1) of the stage before, of the hours where it is known; None = of none.
    """

    size: str
    gpu_hours: float
    usd: Decimal | None
    allocated_gpu_hours: float
    known_gpu_hours: float
    """Allocated hours with known use; `busy_gpu_hours` are those of them with work."""
    busy_gpu_hours: float
    measured_gpu_hours: float
    """Of the busy hours: their effective use was measured; it is `effective_gpu_hours`."""
    effective_gpu_hours: float
    useful_gpu_hours: float
    """Of the effective: work that was not lost."""

    @property
    def allocated(self) -> float | None:
        """Return the allocated share of the paid hours."""
        return _divide(self.allocated_gpu_hours, self.gpu_hours)

    @property
    def active(self) -> float | None:
        """Return the share with work of the allocated hours whose use is known."""
        return _divide(self.busy_gpu_hours, self.known_gpu_hours)

    @property
    def effective(self) -> float | None:
        """Return the use over its practical peak in active hours, where it was measured."""
        return _divide(self.effective_gpu_hours, self.measured_gpu_hours)

    @property
    def useful(self) -> float | None:
        """Return the share of effective use whose work was not lost."""
        return _divide(self.useful_gpu_hours, self.effective_gpu_hours)

    @property
    def factors(self) -> dict[str, float | None]:
        """Return the factor of each stage, in order."""
        shares = (self.allocated, self.active, self.effective, self.useful)
        return dict(zip(STAGES, shares, strict=True))

    @property
    def stages(self) -> list[tuple[str, float | None, float | None]]:
        """Return each stage: its name, its factor, and the share of the paid that is left."""
        factors = [*self.factors.items()]
        return [
            (name, factor, _multiply(before for _, before in factors[: number + 1]))
            for number, (name, factor) in enumerate(factors)
        ]

    @property
    def share(self) -> float | None:
        """Return the effective share of the paid hours: the product of all factors."""
        return _multiply(self.factors.values())

    @property
    def share_of_allocated(self) -> float | None:
        """Return the effective share of the allocated hours: the product of the later factors."""
        return _multiply(factor for name, factor in self.factors.items() if name != "allocated")


STAGES = ("allocated", "active", "effective", "useful")


class Funnel(msgspec.Struct, frozen=True):
    """All that was paid, and the allocated hours by job size: they sum to the allocated."""

    whole: FunnelPart
    by_size: tuple[FunnelPart, ...]


def read_funnel(views: Views, window: Window, filters: Filters) -> Funnel:
    """Return the stages of the paid hours, and of the allocated ones by job size (GPUs at once)."""
    rows = run_query(views, STEPS, window, filters).to_pylist()
    allocated = [row for row in rows if not row["unallocated"]]
    by_size = {name: [r for r in allocated if _name_size(r["devices"]) == name] for name in _NAMES}
    return Funnel(
        _sum_rows("", rows, allocated),
        tuple(_sum_rows(name, part, part) for name, part in by_size.items() if part),
    )


_NAMES = (*(name for _, name in JOB_SIZES), UNKNOWN_SIZE)


def _name_size(devices: int | None) -> str:
    if devices is None:
        return UNKNOWN_SIZE
    return next(name for most, name in JOB_SIZES if devices <= most)


def _sum_rows(
    size: str, rows: Sequence[Mapping[str, Any]], allocated: Sequence[Mapping[str, Any]]
) -> FunnelPart:
    return FunnelPart(
        size,
        gpu_hours=sum(row["gpu_hours"] for row in rows),
        usd=sum_known(row["usd"] for row in rows),
        allocated_gpu_hours=sum(row["gpu_hours"] for row in allocated),
        **{f"{name}_gpu_hours": sum(row[f"{name}_gpu_hours"] for row in rows) for name in HOURS},
    )


def _divide(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _multiply(factors: Iterable[float | None]) -> float | None:
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product
