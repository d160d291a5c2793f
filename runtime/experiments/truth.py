"""Collect the truth about every workload at every tick from a world's blocks.

A workload is truly idle at a tick when every device that it holds is in the state `idle`. Stopping
it does harm when the block reports harm for any of its devices (`simulator.work.behaviours` defines
harm).
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.exporters.device_telemetry import get_key
from simulator.models import STATES, TICK_S, Block, Codes, DeviceAllocation, Marks, SimulatedDevice
from simulator.work.behaviours import Script

Doubles = npt.NDArray[np.float64]
Owner = tuple[str, str, str]
"""Namespace, kind and name of the topmost owner."""
HOUR_S = 3600.0
_IDLE = STATES.index("idle")


class Truth(msgspec.Struct, frozen=True):
    """States and harm by [device, tick], and the allocations."""

    ticks: Doubles
    devices: tuple[SimulatedDevice, ...]
    state: Codes
    harm: Marks
    allocations: tuple[DeviceAllocation, ...]


class Course(msgspec.Struct, frozen=True):
    """One workload over all ticks."""

    owner: Owner
    gpus: Doubles
    """GPUs that it holds: instances by their slices, shares by their size."""
    idle: Marks
    """It holds devices, and every one of them is truly idle."""
    harm: Marks
    """Whether a stop at this tick would lose work."""
    by_device: dict[str, tuple[Doubles, Marks]]
    """GPUs held per device, and whether the device is truly idle, by its canonical identity."""


def gather(blocks: Iterable[Block], allocations: Iterable[DeviceAllocation]) -> Truth:
    """Join a world's blocks; they must follow one another.

    Raises:
        ValueError: there is no block, or one does not begin where the one before ends.
    """
    parts = [(b.ticks, b.devices, b.state.astype(np.int8), b.stop_harms) for b in blocks]
    if not parts:
        raise ValueError("no block, no truth")
    ticks = np.concatenate([p[0] for p in parts])
    if np.any(np.diff(ticks) != TICK_S):
        raise ValueError("blocks must follow one another")
    return Truth(
        ticks,
        parts[0][1],
        np.concatenate([p[2] for p in parts], axis=1).astype(np.int16),
        np.concatenate([p[3] for p in parts], axis=1),
        tuple(allocations),
    )


def list_courses(truth: Truth, scripts: Mapping[str, Script]) -> dict[Owner, Course]:
    """Return the course of every workload that held a device.

    A shared device is idle when all pods that share it leave it idle. Each pod's script determines
    whether a stop of the pod does harm (by pod uid).
    """
    by_owner: dict[Owner, list[DeviceAllocation]] = {}
    for allocation in truth.allocations:
        holder = allocation.holder
        owner = (holder.namespace, holder.workload_kind, holder.workload)
        by_owner.setdefault(owner, []).append(allocation)
    return {
        owner: _build_course(truth, owner, allocations, scripts)
        for owner, allocations in by_owner.items()
    }


def _build_course(
    truth: Truth,
    owner: Owner,
    allocations: Sequence[DeviceAllocation],
    scripts: Mapping[str, Script],
) -> Course:
    count = len(truth.ticks)
    held_gpus, busy, harm = np.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    by_device: dict[str, tuple[Doubles, Marks]] = {}
    for allocation in allocations:
        begin, end = np.searchsorted(truth.ticks, [allocation.start_s, allocation.end_s]).tolist()
        span = slice(begin, end)
        idle, pod_harm = _select_own(truth, allocation, span, scripts)
        harm[span] |= pod_harm.any(axis=0)
        for place, is_idle in zip(allocation.devices, idle, strict=True):
            device = truth.devices[place]
            gpus = device.weight * allocation.share
            held_gpus[span] += gpus
            busy[span] |= ~is_idle
            empty = (np.zeros(count), np.zeros(count, np.bool_))
            own, marks = by_device.setdefault(get_key(device), empty)
            own[span] += gpus
            marks[span] |= is_idle
    return Course(owner, held_gpus, (held_gpus > 0) & ~busy, harm, by_device)


def _select_own(
    truth: Truth, allocation: DeviceAllocation, span: slice, scripts: Mapping[str, Script]
) -> tuple[Marks, Marks]:
    """Return whether a pod's devices are idle and whether a stop harms it, by [device, tick]."""
    rows = (list(allocation.devices), span)
    idle: Marks = truth.state[rows] == _IDLE
    if allocation.share >= 1:
        return idle, truth.harm[rows]
    own = scripts[allocation.holder.uid].stop_harms(truth.ticks[span])
    return idle, np.broadcast_to(own, idle.shape)


def list_runs(marks: Marks) -> list[tuple[int, int]]:
    """Return [begin, end) of every run of true marks."""
    steps = np.diff(np.concatenate([[0], marks.astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
