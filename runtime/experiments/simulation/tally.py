"""Sum up a world: GPU-hours by true state, dollars, waiting times, finished jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from simulator.exporters.device_telemetry import get_key
from simulator.models import STATES, Block, SimulatedDevice
from simulator.world import World

HOUR_S = 3600.0
WORKS = ("low", "productive")


class Tally:
    """Adds up the blocks of one world."""

    def __init__(self, devices: Sequence[SimulatedDevice]) -> None:
        self.weight = np.array([d.weight for d in devices])
        self.ticks = np.zeros((len(STATES), len(devices)))
        """Seconds of each state, by device."""
        self.active_s = 0.0
        """GPU-seconds of SM activity in work that was not lost."""

    def add(self, block: Block) -> None:
        """Add a block."""
        for place in range(len(STATES)):
            self.ticks[place] += (block.state == place).sum(axis=1) * block.every_s
        works = np.isin(block.state, [STATES.index(name) for name in WORKS])
        self.active_s += float((block.sm_active * works).sum(axis=1) @ self.weight) * block.every_s

    def hours(self, state: str) -> float:
        """Return the GPU-hours of a state."""
        return float(self.ticks[STATES.index(state)] @ self.weight) / HOUR_S


class WorldMeasures(msgspec.Struct, frozen=True):
    """One world's figures."""

    paid_gpu_hours: float
    usd: float | None
    effective_utilisation: float
    queue_wait_p50_s: float | None
    queue_wait_p95_s: float | None
    job_completion_p50_s: float | None
    jobs_finished: int
    states: dict[str, float]


class WorldSums(msgspec.Struct, frozen=True):
    """One world's figures without dollars, and for how long each device is paid."""

    measures: WorldMeasures
    paid_s: tuple[tuple[str, float], ...]

    def price(self, rates: Mapping[str, float]) -> WorldMeasures:
        """Return the figures; `rates` are dollars per hour by device."""
        device_rates = [(rates.get(device), seconds) for device, seconds in self.paid_s]
        priced = [rate * s / HOUR_S for rate, s in device_rates if rate is not None]
        usd = round(sum(priced), 2) if len(priced) == len(device_rates) else None
        return msgspec.structs.replace(self.measures, usd=usd)


def measure_world(world: World, tally: Tally) -> WorldSums:
    """Return a world's figures without dollars.

    Every device is paid, whatever its state, except a spot node after its removal. Effective
    utilisation is SM activity in work that was not lost, over the paid time. Waits and completion
    count every pod that requested a GPU; a pod that still waits at the end has waited until then.
    """
    end_s = world.now_s
    away = np.zeros(len(world.devices))
    for outage in world.cluster.outages:
        if outage.why == "spot":
            away[outage.device] += min(outage.end_s, end_s) - outage.start_s
    paid_s = tally.ticks.sum(axis=0) - away
    paid = float(paid_s @ tally.weight) / HOUR_S
    waits_begun = [w for w in world.cluster.waits if w.queued_s < end_s]
    waits = [(w.bound_s or w.ended_s or end_s) - w.queued_s for w in waits_begun]
    durations = [
        world.finished.get(name, end_s) - role.arrival.at_s
        for name, role in world.cast.roles.items()
        if role.ends and role.arrival.at_s < end_s
    ]
    measures = WorldMeasures(
        paid_gpu_hours=round(paid, 3),
        usd=None,
        effective_utilisation=round(tally.active_s / HOUR_S / paid, 5) if paid else 0.0,
        queue_wait_p50_s=_compute_quantile(waits, 0.5),
        queue_wait_p95_s=_compute_quantile(waits, 0.95),
        job_completion_p50_s=_compute_quantile(durations, 0.5),
        jobs_finished=len(world.finished),
        states={name: round(tally.hours(name), 3) for name in STATES},
    )
    devices = [get_key(d) for d in world.devices]
    return WorldSums(measures, tuple(zip(devices, paid_s.tolist(), strict=True)))


def _compute_quantile(values: Sequence[float], part: float) -> float | None:
    return round(float(np.quantile(values, part)), 1) if values else None


def document(figures: WorldMeasures) -> dict[str, Any]:
    """Return the figures as a plain document."""
    body: dict[str, Any] = msgspec.to_builtins(figures)
    return body
