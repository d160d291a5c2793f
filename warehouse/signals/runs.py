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
    speaks: Ints
    gap: Ints
    kind: npt.NDArray[np.int8]
    looks: Ints
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


def find_idle_runs(looks: DeviceSamples, *, exit_samples: int, shortest_s: float) -> IdleRuns:
    """Return the idle runs of at least `shortest_s` seconds (last idle look + what it speaks for).

    Samples must be sorted by device and moment and hold no blind ones.
    """
    barrier = looks.kind == CONFLICT
    if (looks.kind == BUSY).any():
        barrier |= _count_streak(looks) >= exit_samples
    rows = np.flatnonzero(looks.kind == IDLE)
    if not rows.size:
        none = np.empty(0, dtype=np.int64)
        return IdleRuns(none, none, none, none, none)
    device, at = looks.device[rows], looks.at[rows]
    broken = (device[1:] != device[:-1]) | (at[1:] - at[:-1] > looks.gap[rows[1:]])
    if barrier.any():
        passed = np.cumsum(barrier)[rows]
        broken |= passed[1:] != passed[:-1]
    if looks.still is not None:
        still = looks.still[rows]
        broken |= still[1:] != still[:-1]
    begins = np.concatenate([[0], np.flatnonzero(broken) + 1])
    ends = np.concatenate([begins[1:] - 1, [len(rows) - 1]])
    start, end = at[begins], at[ends] + looks.speaks[rows[ends]]
    kept = end - start >= round(shortest_s * MICRO)
    begins, ends = begins[kept], ends[kept]
    return IdleRuns(device[begins], rows[begins], rows[ends], start[kept], end[kept])


def _count_streak(looks: DeviceSamples) -> Ints:
    """Count, per look, how many looks in a row have reached the exit threshold, 0 = this not."""
    index = np.arange(len(looks), dtype=np.int64)
    busy = looks.kind == BUSY
    other = np.concatenate([[True], looks.device[1:] != looks.device[:-1]])
    before = np.where(busy, np.where(other, index - 1, -1), index)
    counted: Ints = np.where(busy, index - np.maximum.accumulate(before), 0)
    return counted
