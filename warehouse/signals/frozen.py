"""Detect telemetry that repeats an old value: equal readings of power, and another sign.

An idle GPU's power stands still too, for minutes, and at a coarse resolution for hours: equal
readings alone are no sign, nor are still clocks, memory or temperature. The signs are an energy
counter that stands still while power is above 0 (`classify_samples`, per sample, with those around
it, so that one live minute does not hide six frozen hours; where the power moves, the two
contradict each other, and that is unknown as well), and the other devices of the model
(`frozen_power.sql`; telemetry-and-waste.md#safety, stale metrics). Where none of them is seen,
nothing tells an idle GPU from frozen telemetry (`is_still`), and power is no second signal.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fallow.window import Window
from warehouse.signals.runs import DeviceSamples, Floats, Ints
from warehouse.steps import load_step

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

STILL_US = 600_000_000
"""Ten minutes without a change of the energy counter: it repeats an old value."""

SIGNS = ("still_w", "energy_mj", "traffic_bps", "kernel_age_s")
"""Measures of which one change shows that the telemetry of an idle device is live."""

Flags = npt.NDArray[np.bool_]


def is_still(changes: Any, readings: Any) -> Any:
    """Return whether nothing tells an idle GPU from frozen telemetry, of numbers or columns.

    There are `readings` of its power, and no `changes` of `SIGNS` between them.
    """
    return (readings > 0) & (changes <= 0)


def count_changes(samples: DeviceSamples, low: Ints, high: Ints) -> Ints:
    """Count the changes of `SIGNS` between the rows from each `low` to the one before `high`.

    The rows of a piece are of one device. A missing value is no change, and neither is what differs
    from a value before the piece.
    """
    changes = np.zeros(len(low), dtype=np.int64)
    for name in SIGNS:
        values = samples.measures[name]
        rows = np.flatnonzero(~np.isnan(values))
        begin, end = np.searchsorted(rows, low), np.searchsorted(rows, high)
        several = end - begin > 1
        changed = np.cumsum(_find_changes(values[rows]))
        changes[several] += changed[end[several] - 1] - changed[begin[several]]
    if samples.bucketed:
        moves = samples.wide.moved if samples.wide else find_moves(samples)
        total = np.concatenate([[0], np.cumsum(moves)])
        changes += total[high] - total[low]
    return changes


def find_moves(samples: DeviceSamples) -> Flags:
    """Return the buckets that use energy, or within which the power changes."""
    m = samples.measures
    moves: Flags = (m["energy_mj"] > 0) | (np.isnan(m["still_w"]) & ~np.isnan(m["power_w"]))
    return moves


def classify_samples(samples: DeviceSamples) -> Flags:
    """Return which samples repeat an old value by their energy counter.

    The first of several equal samples does not: its value was new.
    """
    energy = samples.measures["energy_mj"]
    if not len(samples) or bool(np.isnan(energy).all()):
        return np.zeros(len(samples), dtype=bool)
    # A bucket has the energy that was used in it; a sample has the counter.
    changed = energy != 0 if samples.bucketed else _find_changes(energy)
    changed |= _find_changes(samples.device)
    first, last = _find_groups(changed)
    begin = np.minimum(first + 1, last) if samples.bucketed else first
    length = samples.at[last] - samples.at[begin]
    length = length + (samples.validity[last] if samples.bucketed else 0)
    still = (length >= STILL_US) & ~np.isnan(energy) & ~(samples.measures["power_w"] <= 0)
    inside = np.arange(len(samples)) != first
    if samples.bucketed:
        inside |= energy == 0
    repeats: Flags = still & inside
    return repeats


def extend_repeats(samples: DeviceSamples, repeats: Flags) -> Flags:
    """Return the samples that repeat an old value, with the later ones that still read the same."""
    if not repeats.any():
        return repeats
    index = np.arange(len(samples))
    latest = np.maximum.accumulate(np.where(repeats, index, -1))
    first, _ = _find_groups(_find_power_changes(samples))
    power = samples.measures["power_w"]
    extended: Flags = repeats | ((latest >= first) & ~np.isnan(power))
    return extended


class FrozenPower:
    """The five minutes of a window in which a power repeats an old value, read at most once.

    Each hour is judged by the day before and after it, alone or within a week alike.
    """

    def __init__(self, warehouse: "Warehouse", window: Window) -> None:
        self.window = window
        self._warehouse = warehouse
        self._buckets: pl.DataFrame | None = None

    def flag_rows(self, rows: pl.DataFrame, owners: pl.DataFrame) -> Flags:
        """Return which rows of `read_readings` are in them.

        The fleet is read only where equal readings have no energy counter beside them.
        """
        equal = pl.col("still_w").is_not_null() & ~(pl.col("energy_mj") > 0).fill_null(False)
        if rows.is_empty() or not rows.select(equal.any()).item():
            return np.zeros(rows.height, dtype=bool)
        if self._buckets is None:
            sql = load_step("signals/frozen_power")
            threshold = self._warehouse.settings.ledger.idle_threshold
            parameters = {**self.window.bounds(), "threshold": threshold}
            self._buckets = pl.DataFrame(self._warehouse.query_whole(sql, parameters))
        numbers = owners.select("cluster", "device", owner=pl.int_range(pl.len(), dtype=pl.Int32))
        frozen = self._buckets.join(numbers, on=["cluster", "device"])
        place = rows.select("owner", "at_us").with_row_index("row")
        flags = np.zeros(rows.height, dtype=bool)
        flags[place.join(frozen, on=["owner", "at_us"], how="semi")["row"].to_numpy()] = True
        return flags


def _find_power_changes(samples: DeviceSamples) -> Flags:
    """Return the samples whose power differs from the one before, or of another device."""
    # Without a sensor nothing changes; a bucket with several readings is never equal to another.
    power = np.where(np.isnan(samples.measures["power_w"]), -1.0, samples.measures["still_w"])
    changed = _find_changes(power)
    return changed | _find_changes(samples.device)


def _find_changes(values: Floats | Ints) -> Flags:
    """Return, per sample, whether its value differs from the one before it."""
    changed = np.ones(len(values), dtype=bool)
    changed[1:] = ~(values[1:] == values[:-1])
    return changed


def _find_groups(changed: Flags) -> tuple[Ints, Ints]:
    """Return, per sample, the first and the last one of the equal values around it."""
    begins = np.flatnonzero(changed)
    group = np.cumsum(changed) - 1
    ends = np.append(begins[1:], len(changed)) - 1
    return begins[group], ends[group]
