"""Control charts of many hourly series: the expected values, and the hours outside them.

The same hour of the past weeks gives the expected value (median) and its variation (MAD, with the
neighbouring hours). A CUSUM of the scores detects shifts that are too small for a spike.
"""

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays import Doubles, Ints

WEEK = 168
BESIDE = 3
"""Neighbouring hours for the estimate of an hour's variation: eight weeks alone are too few."""
LEAST_SCALE = 0.05
"""Minimum sigma as a share of the level, for a series that was constant.

Source: telemetry-and-waste.md#anomalies."""
MOST_SCORE = 10.0
"""Scores are capped at this value: one hour is no stronger evidence."""
MOST_RHO = 0.95
SIGMA_PER_MAD = 1.4826
SIGMA_PER_UPPER_QUARTILE = 1 / 1.1503
"""Sigma per median absolute deviation, for a normal variable."""

Bools = npt.NDArray[np.bool_]


class Expected(msgspec.Struct, frozen=True):
    """Expected values of hours, by series: NaN where there are too few past weeks."""

    median: Doubles
    sigma: Doubles
    weeks: Ints
    """The number of past weeks with data."""
    score: Doubles
    rho: Doubles
    """The autocorrelation of the scores of consecutive hours, by series."""


class ControlAlarms(msgspec.Struct, frozen=True):
    """Hours that are out of control, by series, upwards and downwards."""

    up: Bools
    down: Bools
    spikes: Bools


def compute_expected(values: Doubles, first: int, weeks: int, least_weeks: int) -> Expected:
    """Return the expectation of the hours from `first` on, by series (rows) and hour (columns).

    `values` has at least `weeks` weeks and an hour before `first`; NaN = no data. The spread is
    widened for a small number of weeks: n / (n - 0.8) for the MAD's bias in samples of n (Croux and
    Rousseeuw 1992), and the median's own variance, pi / 2n.
    """
    count, hours = values.shape
    judged = hours - first
    median = np.full((count, judged), np.nan)
    sigma = np.full((count, judged), np.nan)
    week_counts = np.zeros((count, judged), dtype=np.int64)
    rho = np.zeros(count)
    padded = np.pad(values, ((0, 0), (0, BESIDE)), constant_values=np.nan)
    square_sums, following = np.zeros(count), np.zeros(count)
    for begin in range(0, judged, WEEK):
        length = min(WEEK, judged - begin)
        at = first + begin
        width = length + 2 * BESIDE
        past = np.stack(
            [
                padded[:, at - k * WEEK - BESIDE : at - k * WEEK - BESIDE + width]
                for k in range(1, weeks + 1)
            ],
            axis=1,
        )
        middle, seen = _compute_median(past)
        away = past - middle[:, None, :]
        each = np.lib.stride_tricks.sliding_window_view(
            _estimate_sigma(np.abs(away)), 1 + 2 * BESIDE, axis=1
        )
        spread = np.nansum(each, axis=2) / np.maximum(np.isfinite(each).sum(axis=2), 1)
        inside = slice(BESIDE, BESIDE + length)
        n = seen[:, inside]
        with np.errstate(divide="ignore", invalid="ignore"):
            few = np.where(n > 1, n / (n - 0.8) * np.sqrt(1 + math.pi / (2 * n)), np.nan)
            level = np.nansum(past, axis=(1, 2)) / np.maximum(np.isfinite(past).sum(axis=(1, 2)), 1)
            least = LEAST_SCALE * np.maximum(np.abs(middle[:, inside]), level[:, None])
            scaled = np.clip(away[:, :, inside] / np.maximum(spread, least)[:, None, :], -3.5, 3.5)
        enough = n >= least_weeks
        columns = slice(begin, begin + length)
        median[:, columns] = np.where(enough, middle[:, inside], np.nan)
        sigma[:, columns] = np.where(enough, np.maximum(spread * few, least), np.nan)
        week_counts[:, columns] = n
        both = scaled[:, :, 1:] * scaled[:, :, :-1]
        squares = scaled[:, :, :-1] ** 2
        following += np.nansum(both, axis=(1, 2))
        square_sums += np.nansum(np.where(np.isfinite(both), squares, np.nan), axis=(1, 2))
    np.divide(following, square_sums, out=rho, where=square_sums > 0)
    now = values[:, first:]
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (now - median) / sigma
    flat = np.isfinite(median) & np.isfinite(now) & (sigma == 0)
    score = np.where(flat, np.sign(now - median) * MOST_SCORE, score)
    score = np.clip(score, -MOST_SCORE, MOST_SCORE)
    return Expected(median, sigma, week_counts, score, np.clip(rho, 0, MOST_RHO))


def compute_innovations(score: Doubles, rho: Doubles) -> Doubles:
    """Return the part of an hour's score that the hour before does not explain.

    Jobs last for hours.

    (z_t - rho z_(t-1)) / sqrt(1 - rho^2), the residual of a first-order autoregression. Where the
    hour before has no data, the score itself: both have variance 1 in control.
    """
    before = np.concatenate([np.full((len(score), 1), np.nan), score[:, :-1]], axis=1)
    new = (score - rho[:, None] * before) / np.sqrt(1 - rho[:, None] ** 2)
    return np.where(np.isfinite(before), new, score)


def run_cusum(score: Doubles, slack: float, limit: float) -> tuple[Bools, Bools, Bools]:
    """Return hours from onset to alarm, upwards and downwards, and the hours of alarms.

    S+ = max(0, S+ + z - slack), S- likewise; alarm above `limit`, then both start again at 0 (Page
    1954; slack 0.5 and limit 5: one false alarm in 465 hours of independent normal scores). An hour
    without data changes nothing.
    """
    count, hours = score.shape
    marked = [np.zeros((count, hours), dtype=bool) for _ in range(2)]
    alarms = np.zeros((count, hours), dtype=bool)
    sums = [np.zeros(count), np.zeros(count)]
    onset = [np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)]
    for hour in range(hours):
        z = score[:, hour]
        seen = np.isfinite(z)
        hit = np.zeros(count, dtype=bool)
        for side, sign in enumerate((1.0, -1.0)):
            fresh = seen & (sums[side] == 0)
            onset[side][fresh] = hour
            sums[side] = np.where(seen, np.maximum(0.0, sums[side] + sign * z - slack), sums[side])
            over = sums[side] > limit
            for row in np.flatnonzero(over):
                marked[side][row, onset[side][row] : hour + 1] = True
            hit |= over
        alarms[:, hour] = hit
        for side in range(2):
            sums[side][hit] = 0.0
    return marked[0], marked[1], alarms


def find_alarms(expected: Expected, spike: float, slack: float, limit: float) -> ControlAlarms:
    """Return the hours of spikes, and those in which the CUSUM rose to an alarm.

    In a stretch with an alarm only hours on the alarm's side count.
    """
    up, down, _ = run_cusum(compute_innovations(expected.score, expected.rho), slack, limit)
    with np.errstate(invalid="ignore"):
        spikes = np.abs(expected.score) >= spike
        above, below = expected.score > 0, expected.score < 0
    return ControlAlarms((up | spikes) & above, (down | spikes) & below, spikes)


def find_episodes(marked: Bools, join: int) -> list[tuple[int, int]]:
    """Return the half-open stretches of marked hours, joined over gaps shorter than `join`."""
    at = np.flatnonzero(marked)
    if not len(at):
        return []
    cuts = np.flatnonzero(np.diff(at) > join)
    starts = np.concatenate([at[:1], at[cuts + 1]])
    ends = np.concatenate([at[cuts], at[-1:]]) + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _compute_median(past: Doubles) -> tuple[Doubles, Ints]:
    """Return medians over axis 1 of the values present, and the number of these values."""
    seen = np.isfinite(past).sum(axis=1)
    return _pick_rank(np.sort(past, axis=1), seen, axis=1), seen


def _estimate_sigma(away: Doubles) -> Doubles:
    """Return sigma from the median of absolute deviations, or from their quartile if that is 0."""
    ordered = np.sort(away, axis=1)
    seen = np.isfinite(away).sum(axis=1)
    mad = _pick_rank(ordered, seen, axis=1)
    upper = np.maximum((seen * 3 + 3) // 4 - 1, 0)
    quartile = np.take_along_axis(ordered, upper[:, None, :], axis=1)[:, 0, :]
    spread: Doubles = np.where(mad > 0, mad * SIGMA_PER_MAD, quartile * SIGMA_PER_UPPER_QUARTILE)
    return spread


def _pick_rank(ordered: Doubles, seen: npt.NDArray[Any], axis: int) -> Doubles:
    low = np.expand_dims(np.maximum((seen - 1) // 2, 0), axis)
    high = np.expand_dims(np.minimum(seen // 2, ordered.shape[axis] - 1), axis)
    both = np.take_along_axis(ordered, low, axis) + np.take_along_axis(ordered, high, axis)
    return np.squeeze(both / 2, axis)
