"""Find idle runs of devices: gaps and islands over sorted samples, without a loop over them.

An idle run is a maximal stretch of idle samples, either all live or all repeated. Three things end
it: a gap without samples that is longer than the maximum gap; `exit_samples` samples in a row at or
above the exit threshold; signals that contradict each other. A sample between the thresholds is not
idle, but does not end the run. A sample without an activity is ignored
(telemetry-and-waste.md#idle).
"""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLIND, IDLE, BETWEEN, BUSY, CONFLICT = range(5)
"""Kinds of a sample, as `readings.sql` numbers them."""

MICRO = 1_000_000
BUCKET_US = 300 * MICRO


class WideRows(msgspec.Struct, frozen=True):
    """What rows of several five-minute buckets, one after another, have beside one bucket's."""

    buckets: Ints
    moved: Ints
    """Signs of live telemetry within the row (`frozen.count_changes`)."""
    silent_us: Floats
    """Time between its buckets without a valid sample."""
    spoken_us: Floats
    """For how long the samples of its last bucket are valid, from that bucket's start."""


class DeviceSamples(msgspec.Struct, frozen=True):
    """Samples (or five-minute buckets of them) of some devices, sorted by device and time.

    `at` and `validity` are microseconds: a sample's timestamp and the time for which it is valid.
    `gap` is the longest time without samples that does not end a run. `measures` holds one array
    per column, NaN = missing.
    """

    device: Ints
    at: Ints
    validity: Ints
    gap: Ints
    kind: npt.NDArray[np.int8]
    sample_count: Ints
    interval_s: Floats
    measures: dict[str, npt.NDArray[Any]]
    still: npt.NDArray[np.bool_] | None = None
    """Whether each sample repeats an old value (frozen.py); None = all are live."""
    peak: npt.NDArray[Any] | None = None
    """Whether each row has a reading from the exit threshold on; None = no row has. Of wide rows a
    bit for each bucket, the first is 1."""
    bucketed: bool = False
    """Rows are five-minute buckets: `energy_mj` is the energy used in one, not a counter."""
    wide: WideRows | None = None
    """Rows are of one or several buckets; None = of one each."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.at)

    @property
    def last_at(self) -> Ints:
        """Return the time of each row's last sample or bucket."""
        return self.at if self.wide is None else self.at + (self.wide.buckets - 1) * BUCKET_US

    @property
    def once_valid(self) -> Ints:
        """Return for how long one sample or bucket of each row is valid."""
        if self.wide is None:
            return self.validity
        return np.broadcast_to(np.int64(BUCKET_US), len(self))


class IdleRuns(msgspec.Struct, frozen=True):
    """Idle runs: rows `first`..`last` (inclusive) of the samples, from `start` to `end` (us)."""

    device: Ints
    first: Ints
    last: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.start)


def find_idle_runs(samples: DeviceSamples, *, exit_samples: int, shortest_s: float) -> IdleRuns:
    """Return the idle runs of at least `shortest_s` seconds, the last sample's validity included.

    Samples must be sorted by device and time; samples without an activity must be left out.
    """
    barrier = samples.kind == CONFLICT
    if (samples.kind == BUSY).any():
        barrier |= _count_streak(samples) >= exit_samples
    rows = np.flatnonzero(samples.kind == IDLE)
    if not rows.size:
        none = np.empty(0, dtype=np.int64)
        return IdleRuns(none, none, none, none, none)
    device, at = samples.device[rows], samples.at[rows]
    last_at = samples.last_at[rows]
    broken = (device[1:] != device[:-1]) | (at[1:] - last_at[:-1] > samples.gap[rows[1:]])
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
    """Return, per sample, how many in a row up to it are at the exit threshold; 0 = it is not."""
    index = np.arange(len(samples), dtype=np.int64)
    busy = samples.kind == BUSY
    other = np.concatenate([[True], samples.device[1:] != samples.device[:-1]])
    before = np.where(busy, np.where(other, index - 1, -1), index)
    counted: Ints = np.where(busy, index - np.maximum.accumulate(before), 0)
    return counted
