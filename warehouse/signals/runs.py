"""Idle runs of devices: gaps and islands over sorted looks, without a loop over them.

An idle run is a maximal stretch of idle looks, all live or all repeated. A silence longer than the
gap ends it, and so do
`exit_samples` looks in a row from the exit threshold on, or witnesses that contradict each
other. A look between the thresholds is not idle, but ends nothing by itself; a look without an
activity is as if it had not been (telemetry-and-waste.md#idle).
"""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLIND, IDLE, BETWEEN, BUSY, CONFLICT = range(5)
"""Kinds of a look, as `idle_looks.sql` numbers them."""

LIVE, ENERGY_STILL, POWER_STILL = range(3)
"""Whether a sample shows new values, or repeats old ones (frozen.py)."""

MICRO = 1_000_000


class DeviceSamples(msgspec.Struct, frozen=True):
    """Samples (or five-minute buckets of them) of some devices, sorted by device and moment.

    `at` and `speaks` are microseconds: a look's moment and the length it speaks for; `gap` the
    longest silence that its run survives. `measures` holds one array per column, NaN = missing.
    """

    device: Ints
    at: Ints
    validity: Ints
    gap: Ints
    kind: npt.NDArray[np.int8]
    sample_count: Ints
    interval_s: Floats
    measures: dict[str, npt.NDArray[Any]]
    still: npt.NDArray[np.int8] | None = None
    """Class of each sample by `frozen.classify_samples`; None = all are live."""
    bucketed: bool = False
    """Rows are five-minute buckets: `energy_mj` is the energy used in one, not a counter."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.at)


class IdleRuns(msgspec.Struct, frozen=True):
    """Idle runs: rows `first`..`last` (inclusive) of the looks, from `start` to `end` (us)."""

    device: Ints
    first: Ints
    last: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.start)


def find_idle_runs(samples: DeviceSamples, *, exit_samples: int, shortest_s: float) -> IdleRuns:
    """Return the idle runs of at least `shortest_s` seconds (last idle look + what it speaks for).

    Samples must be sorted by device and moment and hold no blind ones.
    """
    barrier = samples.kind == CONFLICT
    if (samples.kind == BUSY).any():
        barrier |= _count_streak(samples) >= exit_samples
    rows = np.flatnonzero(samples.kind == IDLE)
    if not rows.size:
        none = np.empty(0, dtype=np.int64)
        return IdleRuns(none, none, none, none, none)
    device, at = samples.device[rows], samples.at[rows]
    broken = (device[1:] != device[:-1]) | (at[1:] - at[:-1] > samples.gap[rows[1:]])
    if barrier.any():
        barriers_before = np.cumsum(barrier)[rows]
        broken |= barriers_before[1:] != barriers_before[:-1]
    if samples.still is not None:
        still = samples.still[rows]
        broken |= still[1:] != still[:-1]
    begins = np.concatenate([[0], np.flatnonzero(broken) + 1])
    ends = np.concatenate([begins[1:] - 1, [len(rows) - 1]])
    start, end = at[begins], at[ends] + samples.validity[rows[ends]]
    long_enough = end - start >= round(shortest_s * MICRO)
    begins, ends = begins[long_enough], ends[long_enough]
    return IdleRuns(device[begins], rows[begins], rows[ends], start[long_enough], end[long_enough])


def _count_streak(samples: DeviceSamples) -> Ints:
    """Count, per look, how many looks in a row have reached the exit threshold, 0 = this not."""
    index = np.arange(len(samples), dtype=np.int64)
    busy = samples.kind == BUSY
    other = np.concatenate([[True], samples.device[1:] != samples.device[:-1]])
    before = np.where(busy, np.where(other, index - 1, -1), index)
    counted: Ints = np.where(busy, index - np.maximum.accumulate(before), 0)
    return counted
