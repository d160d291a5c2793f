"""What is true of every workload at every tick, gathered from a world's blocks.

A workload is truly idle at a tick when every device that it holds is in the state `idle`; stopping
it hurts when the block says so of any of them (`simulator.work.behaviours` says what hurts).
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.exporters.shown import key
from simulator.nouns import STATES, TICK_S, Block, Codes, Device, Marks, Tenure
from simulator.work.behaviours import Script

Doubles = npt.NDArray[np.float64]
Owner = tuple[str, str, str]
"""Namespace, kind and name of the topmost owner."""
HOUR_S = 3600.0
_IDLE = STATES.index("idle")


class Truth(msgspec.Struct, frozen=True):
    """States and hurts by [device, tick], and who held what."""

    ticks: Doubles
    devices: tuple[Device, ...]
    state: Codes
    hurts: Marks
    tenures: tuple[Tenure, ...]


class Course(msgspec.Struct, frozen=True):
    """One workload over all ticks."""

    owner: Owner
    held: Doubles
    """GPUs that it holds: instances by their slices, shares by their size."""
    idle: Marks
    """It holds devices, and every one of them is truly idle."""
    hurts: Marks
    """A stop at this tick would lose work."""
    by_device: dict[str, tuple[Doubles, Marks]]
    """GPUs held of a device and whether it is truly idle, by the device's canonical identity."""


def gather(blocks: Iterable[Block], tenures: Iterable[Tenure]) -> Truth:
    """Join a world's blocks; they must follow one another.

    Raises:
        ValueError: there is no block, or one does not begin where the one before ends.
    """
    parts = [(b.ticks, b.devices, b.state.astype(np.int8), b.hurts) for b in blocks]
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
        tuple(tenures),
    )


def courses(truth: Truth, scripts: Mapping[str, Script]) -> dict[Owner, Course]:
    """Return the course of every workload that held a device.

    A shared device is idle when all who share it leave it idle. Whether a stop hurts is said of
    each of them by its script (by pod uid).
    """
    by_owner: dict[Owner, list[Tenure]] = {}
    for tenure in truth.tenures:
        holder = tenure.holder
        owner = (holder.namespace, holder.workload_kind, holder.workload)
        by_owner.setdefault(owner, []).append(tenure)
    return {owner: _course(truth, owner, found, scripts) for owner, found in by_owner.items()}


def _course(
    truth: Truth, owner: Owner, tenures: Sequence[Tenure], scripts: Mapping[str, Script]
) -> Course:
    count = len(truth.ticks)
    held, busy, hurts = np.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    by_device: dict[str, tuple[Doubles, Marks]] = {}
    for tenure in tenures:
        begin, end = np.searchsorted(truth.ticks, [tenure.start_s, tenure.end_s]).tolist()
        span = slice(begin, end)
        idle, hurting = _own(truth, tenure, span, scripts)
        hurts[span] |= hurting.any(axis=0)
        for place, rests in zip(tenure.devices, idle, strict=True):
            device = truth.devices[place]
            gpus = device.weight * tenure.share
            held[span] += gpus
            busy[span] |= ~rests
            empty = (np.zeros(count), np.zeros(count, np.bool_))
            own, marks = by_device.setdefault(key(device), empty)
            own[span] += gpus
            marks[span] |= rests
    return Course(owner, held, (held > 0) & ~busy, hurts, by_device)


def _own(
    truth: Truth, tenure: Tenure, span: slice, scripts: Mapping[str, Script]
) -> tuple[Marks, Marks]:
    """Return whether a pod's devices are idle and whether a stop hurts it, by [device, tick]."""
    rows = (list(tenure.devices), span)
    idle: Marks = truth.state[rows] == _IDLE
    if tenure.share >= 1:
        return idle, truth.hurts[rows]
    own = scripts[tenure.holder.uid].hurts(truth.ticks[span])
    return idle, np.broadcast_to(own, idle.shape)


def runs(marks: Marks) -> list[tuple[int, int]]:
    """Return [begin, end) of every run of marks."""
    steps = np.diff(np.concatenate([[0], marks.astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
