"""Find stretches in which a series is out of control; compute their excess cost and its causes."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.anomalies.control_chart import (
    WEEK,
    Expected,
    compute_expected,
    find_alarms,
    find_episodes,
)
from analyzers.anomalies.effects import AllocatedHours, ModelChange, round_to_cents, split_effects
from analyzers.anomalies.series import DOLLAR, GPU_HOUR, SeriesGrid, SeriesKey
from analyzers.arrays import Ints
from fallow.settings.anomalies import AnomaliesSettings

JOIN = 24
"""Stretches at most this many hours apart are one: a daily repetition is one change."""
ORDINARY = 3.5
"""Past hours within this many sigma of their median are the usual hours of the comparison."""

Measure = Literal["spend", "waste"]


class SpendChange(msgspec.Struct, frozen=True):
    """One stretch of one series: its amounts, and the excess over the usual (negative = less)."""

    key: SeriesKey
    measure: Measure
    start: datetime
    onset: datetime
    """When it began, which may be before the window."""
    end: datetime
    hours: int
    weeks: int
    """The smallest number of past weeks behind any of its hours."""
    score: float
    spike: bool
    gpu_hours: Fraction
    gpu_hours_usual: Fraction
    usd: Fraction | None
    usd_usual: Fraction | None
    causes: Mapping[str, Decimal]
    change: Decimal
    """In dollars, or in GPU-hours where a part has no price: the sum of `causes`."""
    by: tuple[Mapping[str, Any], ...]
    """The contributions, the largest first; all others are together in one row."""


def find_changes(grid: SeriesGrid, settings: AnomaliesSettings) -> Iterator[SpendChange]:
    """Return the window's rises and falls that are large enough to report."""
    first = grid.hours.judged - grid.hours.begin
    begin = grid.hours.window - grid.hours.judged
    if not grid.keys or begin >= grid.hours.end - grid.hours.judged:
        return
    for measure, values in grid.values.items():
        expected = compute_expected(values, first, settings.weeks, settings.least_weeks)
        alarms = find_alarms(expected, settings.spike, settings.slack, settings.limit)
        for marks in (alarms.up, alarms.down):
            for row in np.flatnonzero(marks[:, begin:].any(axis=1)):
                for since, until in find_episodes(marks[row], JOIN):
                    if until <= begin:
                        continue
                    marked = np.flatnonzero(marks[row, :until])
                    at = marked[marked >= max(since, begin)]
                    change = _measure_change(grid, expected, measure, int(row), at, settings.weeks)
                    onset = grid.hours.get_time(grid.hours.judged + since)
                    if _is_worth_reporting(change, settings):
                        spike = bool(alarms.spikes[row, at].any())
                        yield msgspec.structs.replace(change, onset=onset, spike=spike)


def _is_worth_reporting(change: SpendChange, settings: AnomaliesSettings) -> bool:
    priced = change.usd is not None
    least = settings.min_usd if priced else Decimal(repr(settings.min_gpu_hours))
    usual = change.usd_usual if change.usd_usual is not None else change.gpu_hours_usual
    return abs(change.change) >= max(float(least), settings.min_share * float(usual))


def _measure_change(  # noqa: PLR0917
    grid: SeriesGrid, expected: Expected, measure: str, row: int, at: Ints, weeks: int
) -> SpendChange:
    """Compare hours with the same hours of ordinary weeks: sums, not medians."""
    key, values = grid.keys[row], grid.values[measure][row]
    first = grid.hours.judged - grid.hours.begin
    now = at + first
    past = now[:, None] - WEEK * np.arange(1, weeks + 1)[None, :]
    seen = values[past]
    near = np.abs(seen - expected.median[row, at][:, None]) <= (
        ORDINARY * np.maximum(expected.sigma[row, at], 0)[:, None] + 1e-9
    )
    other = "namespace" if key.team else "team"
    rows = grid.rows.filter(
        (pl.col("cluster") == key.cluster) & (pl.col(key.column) == key.name)
    ).with_columns(at=pl.col("hour") - grid.hours.begin)
    names = ("wasted", "wasted_usd") if measure == "waste" else ("allocated", "usd")
    parts = {}
    for group, some in rows.partition_by(other, "model", as_dict=True).items():
        parts[str(group[0]), str(group[1])] = tuple(
            _sum_hours(some, column, grid.hours.width, now, past, near)
            for column in (*names, "allocated")
        )
    priced = bool(grid.priced[row])
    hours = _compute_total_sums(parts, 0, GPU_HOUR)
    usd = _compute_total_sums(parts, 1, DOLLAR) if priced else None
    causes, change = _split_causes(parts, measure, priced)
    return SpendChange(
        key=key,
        measure=measure,  # type: ignore[arg-type]
        start=grid.hours.get_time(grid.hours.begin + int(now[0])),
        onset=grid.hours.get_time(grid.hours.begin + int(now[0])),
        end=grid.hours.get_time(grid.hours.begin + int(now[-1]) + 1),
        hours=len(at),
        weeks=int(expected.weeks[row, at].min()),
        score=float(max(expected.score[row, at], key=abs)),
        spike=False,
        gpu_hours=hours[1],
        gpu_hours_usual=hours[0],
        usd=None if usd is None else usd[1],
        usd_usual=None if usd is None else usd[0],
        causes=causes,
        change=change,
        by=_rank_parts(parts, other, priced),
    )


Two = tuple[Fraction, Fraction]
"""The usual amounts, and the present ones."""
Parts = Mapping[tuple[str, str], tuple[Two, ...]]


def _sum_hours(  # noqa: PLR0917
    some: pl.DataFrame,
    column: str,
    count: int,
    now: Ints,
    past: Ints,
    ordinary: npt.NDArray[np.bool_],
) -> Two:
    """Return the usual and the present sums; an hour's usual is the mean of its ordinary weeks."""
    line = np.zeros(count, dtype=np.int64)
    np.add.at(line, some["at"].to_numpy(), some[column].to_numpy())
    weeks = ordinary.sum(axis=1)
    sums = np.where(ordinary, line[past], 0).sum(axis=1)
    usual = sum(
        (Fraction(int(sums[weeks == n].sum()), int(n)) for n in np.unique(weeks) if n), Fraction()
    )
    return usual, Fraction(int(line[now].sum()))


def _compute_total_sums(parts: Parts, place: int, unit: int) -> Two:
    usual = sum((p[place][0] for p in parts.values()), Fraction()) / unit
    return usual, sum((p[place][1] for p in parts.values()), Fraction()) / unit


def _split_causes(parts: Parts, measure: str, priced: bool) -> tuple[dict[str, Decimal], Decimal]:
    models: dict[str, list[ModelChange]] = {}
    for (_, model), (hours, usd, _) in parts.items():
        dollars = (
            (usd[0] / DOLLAR, usd[1] / DOLLAR)
            if priced
            else (hours[0] / GPU_HOUR, hours[1] / GPU_HOUR)
        )
        models.setdefault(model, []).append(
            ModelChange(hours[0] / GPU_HOUR, dollars[0], hours[1] / GPU_HOUR, dollars[1])
        )
    summed = [
        ModelChange(*(sum((p[n] for p in some), Fraction()) for n in range(4)))
        for _, some in sorted(models.items())
    ]
    allocated = (
        AllocatedHours(*_compute_total_sums(parts, 2, GPU_HOUR)) if measure == "waste" else None
    )
    effects = split_effects(summed, allocated)
    if not priced:
        effects = {name: value for name, value in effects.items() if name not in {"mix", "price"}}
    return round_to_cents(effects)


def _rank_parts(
    parts: Parts, other: str, priced: bool, most: int = 5
) -> tuple[Mapping[str, Any], ...]:
    place, unit = (1, DOLLAR) if priced else (0, GPU_HOUR)
    more = {k: (p[place][1] - p[place][0]) / unit for k, p in parts.items()}
    change = sum(more.values(), Fraction())
    ranked = sorted(more, key=lambda k: (-abs(more[k]), k))
    name = "usd" if priced else "gpu_hours"

    def share(value: Fraction) -> dict[str, float]:
        pct = round(100 * float(value / change), 1) if change else 0.0
        return {name: round(float(value), 2), "pct": pct}

    listed = [
        {other: k[0] or "none", "gpu_model": k[1] or "unknown", **share(more[k])}
        for k in ranked[:most]
        if more[k]
    ]
    rest = sum((more[k] for k in ranked[most:]), Fraction())
    return (*listed, {other: "all others", **share(rest)}) if rest else tuple(listed)
