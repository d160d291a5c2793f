"""Draw effects on devices while they work: heat and XID events (`effects.csv`).

Faults that make a device unavailable are outages, which the cluster decides. Rates are estimates:
only those of fatal faults are published (one unplanned interruption in 50,700 GPU-hours, Llama 3).
"""

from collections.abc import Sequence
from functools import cache

import msgspec

from simulator.models import SimulatedDevice
from simulator.work.chance import build_generator
from simulator.work.distributions import read

YEAR_S = 365 * 86_400.0
DAY_S = 86_400


class Effect(msgspec.Struct, frozen=True):
    """A device was too hot for [start, end), or reported an XID at its start."""

    device: int
    start_s: float
    end_s: float
    why: str
    """thermal | xid"""
    code: int = 0


def draw_effects(
    devices: Sequence[SimulatedDevice],
    seed: int,
    since_s: float,
    until_s: float,
    *,
    often: float = 1.0,
) -> list[Effect]:
    """Return what begins in [since, until), `often` times as often as the table says."""
    out = []
    for day in range(int(since_s // DAY_S), int(-(-until_s // DAY_S))):
        rng = build_generator(seed, "effects", day)
        for why, code, rate, low, high in _read_rates():
            count = int(rng.poisson(rate * often * len(devices) * DAY_S / YEAR_S))
            for place, offset, length in rng.random((count, 3)).tolist():
                start = day * DAY_S + offset * DAY_S
                end = start + low + (high - low) * length
                if since_s <= start < until_s:
                    out.append(Effect(int(place * len(devices)), start, end, why, code))
    return sorted(out, key=lambda e: e.start_s)


@cache
def _read_rates() -> tuple[tuple[str, int, float, float, float], ...]:
    return tuple(
        (r["why"], int(r["code"]), float(r["per_gpu_year"]), float(r["low_s"]), float(r["high_s"]))
        for r in read("effects.csv")
    )
