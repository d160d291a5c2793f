"""Detect telemetry that repeats an old value: an energy counter or a power that does not change.

A GPU with power uses energy, and the last digits of a fine power reading change all the time. Both
are checked per sample, with the samples around it, so that one live minute does not hide six frozen
hours (telemetry-and-waste.md#safety, stale metrics).
"""

import numpy as np
import numpy.typing as npt

from warehouse.signals.runs import ENERGY_STILL, LIVE, POWER_STILL, DeviceSamples, Floats, Ints

STILL_US = 600_000_000
"""Ten minutes without a change of the energy counter: it repeats an old value."""

STILL_READINGS = 20
"""Equal power readings in a row from which they are a repeat, where the source reports power finer
than whole watts."""


def classify_samples(samples: DeviceSamples) -> npt.NDArray[np.int8]:
    """Return, per sample, `LIVE`, `ENERGY_STILL` or `POWER_STILL`.

    The first of several equal samples is live: its value was new.
    """
    classes = np.full(len(samples), LIVE, dtype=np.int8)
    if not len(samples):
        return classes
    other = np.concatenate([[True], samples.device[1:] != samples.device[:-1]])
    power = samples.measures["power_w"]
    if not _is_absent(power):
        first, last = _find_groups(_find_changes(power, other))
        readings = np.concatenate([[0], np.cumsum(samples.sample_count)])
        still = (readings[last + 1] - readings[first] >= STILL_READINGS) & ~np.isnan(power)
        classes[still & _has_fine_power(samples, power)] = POWER_STILL
        classes[first] = LIVE
    energy = samples.measures["energy_mj"]
    if not _is_absent(energy):
        # A bucket has the energy that was used in it; a sample has the counter.
        changed = other | (energy != 0) if samples.bucketed else _find_changes(energy, other)
        first, last = _find_groups(changed)
        begin = np.minimum(first + 1, last) if samples.bucketed else first
        length = samples.at[last] - samples.at[begin]
        length = length + (samples.validity[last] if samples.bucketed else 0)
        still = (length >= STILL_US) & ~np.isnan(energy)
        inside = np.arange(len(samples)) != first
        if samples.bucketed:
            inside |= energy == 0
        classes[still & inside] = ENERGY_STILL
    return classes


def _has_fine_power(samples: DeviceSamples, power: Floats) -> npt.NDArray[np.bool_]:
    """Return, per sample, whether its source reports power finer than whole watts.

    A bucket's mean can have decimals with every source, so there only the bucket's own value
    counts.
    """
    decimals = np.abs(power - np.rint(power)) > 1e-3  # noqa: PLR2004  (a milliwatt)
    decimals &= ~np.isnan(power)
    if samples.bucketed:
        return decimals
    some = np.zeros(int(samples.device.max()) + 1, dtype=bool)
    some[samples.device[decimals]] = True
    fine: npt.NDArray[np.bool_] = some[samples.device]
    return fine


def _find_changes(values: Floats, other: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return, per sample, whether its value differs from the one before it on its device."""
    changed = other.copy()
    changed[1:] |= ~(values[1:] == values[:-1])
    return changed


def _find_groups(changed: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return, per sample, the first and the last one of the equal values around it."""
    begins = np.flatnonzero(changed)
    group = np.cumsum(changed) - 1
    ends = np.append(begins[1:], len(changed)) - 1
    return begins[group], ends[group]


def _is_absent(values: Floats) -> bool:
    return bool(np.isnan(values).all())
