"""Derive states from five-minute readings: a device is idle for a stretch, not for one reading.

Seconds of idle readings are `idle` inside a stretch of such readings. Between active readings of
the same pod they are `low`: a job with zeros between bursts uses its device a little. Power above
the idle band by more than the margin is low too, as is steady light work above it, and so is a
spinning device. Counters that do not change give no information: unknown.
"""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from fallow.settings import Settings
from warehouse.signals import frozen
from warehouse.signals.power_band import LOOKAROUND, EnergyRows, is_above_band, sum_around
from warehouse.signals.runs import (
    BETWEEN,
    BLIND,
    BUCKET_US,
    CONFLICT,
    IDLE,
    MICRO,
    DeviceSamples,
    Floats,
    IdleRuns,
    Ints,
    find_idle_runs,
)

LOW_ACTIVITY = 0.01
"""Activity from which a reading shows some work; the noise of a device without work is lower."""

LOW_SHARE = 0.5
"""Share of idle readings with some work from which a device works lightly but steadily."""

BAND_STEP_W = 1.0
"""The learned band is in whole watts: only a larger excess counts as above the band."""

REACH_US = 3600 * MICRO
"""How far from a row active readings are searched (microseconds); zeros between them are low."""

Flags = npt.NDArray[np.bool_]


def name_states(
    rows: pl.DataFrame, settings: Settings, repeats: Flags | None = None
) -> pl.DataFrame:
    """Give each row of `readings.sql` its seconds by state, and the `rule` that changed any.

    rule: `stretch` (idle), `among` (zeros among active readings: low), `steady` (power above the
    idle band: low), `spinning` (low), `frozen` (unknown); null where the readings are not changed.
    `burst` changes nothing: activity between idle stretches, at which an idle run ends. `repeats`:
    rows whose power repeats an old value (`frozen_power.sql`).
    """
    if rows.is_empty():
        return rows.with_columns(rule=pl.lit(None, dtype=pl.String))
    # Once: each step below reads them without a copy.
    named, rows = rows, rows.with_columns(_fill_measures())
    stream, at = rows["stream"].to_numpy().astype(np.int64), rows["at_us"].to_numpy()
    kind = rows["kind"].to_numpy().copy()
    allocated, active = rows["allocated"].to_numpy(), rows["active"].to_numpy()
    samples = _build_samples(rows, stream, at, kind)
    stale = frozen.classify_samples(samples)
    stale = allocated & (stale if repeats is None else stale | repeats)
    line = np.cumsum(_find_changes(stream, rows["hold"].to_numpy())) - 1
    # An energy increase counts where it ends: a sample's interval has one.
    seconds = np.maximum(rows["sample_count"].to_numpy() * samples.interval_s, 1.0)
    energy = EnergyRows(rows["energy_mj"].to_numpy(), seconds, samples.interval_s)
    limit_w = rows["band_w"].to_numpy() + settings.idle.power_margin_w
    above = is_above_band(line, rows["power_w"].to_numpy(), energy, limit_w)
    # The power of a shared GPU does not describe one of its pods, nor that of five minutes with an
    # active reading the others.
    hot = above & (kind == IDLE) & ~active & ~rows["shares"].to_numpy()
    steady = allocated & ~stale & (hot | _flag_steady(rows, line, kind))
    usable = allocated & ~stale & ~steady & (kind != BLIND)
    # A row without an activity is ignored. Any other row that cannot be used ends a stretch.
    usable_kind = np.where(usable, kind, np.where(kind == BLIND, BETWEEN, CONFLICT)).astype(np.int8)
    of_lines = msgspec.structs.replace(samples, device=line, kind=usable_kind)
    stretch = _flag_stretches(rows, of_lines, settings)
    among = (
        usable
        & ~stretch
        & _flag_among(
            line,
            at,
            stretch=stretch,
            active=active & usable,
            above=above,
            gap=samples.gap,
            reach=REACH_US,
        )
    )
    joined = _flag_joined(line, at, samples.gap)
    return _move_seconds(named, joined, stretch=stretch, among=among, steady=steady, stale=stale)


def _move_seconds(
    rows: pl.DataFrame, joined: Flags, *, stretch: Flags, among: Flags, steady: Flags, stale: Flags
) -> pl.DataFrame:
    # Activity of an earlier reading that is still valid in a stretch's first row is not a burst.
    inside = stretch & _flag_beside(stretch, joined, -1)
    burst = (
        ~stretch
        & rows["active"].to_numpy()
        & (_flag_beside(stretch, joined) | _flag_beside(stretch, joined, -1))
    )
    flags = {"stretch": stretch, "among": among, "steady": steady, "stale": stale}
    flagged = rows.with_columns(
        *(pl.Series(f"is_{n}", v) for n, v in flags.items()),
        whole=pl.Series(inside) | (pl.Series(stretch) & pl.col("active")),
    )
    idle, low, busy = pl.col("idle_s"), pl.col("low_s"), pl.col("busy_s")
    # A zero with high power among active readings is a burst that the utilisation did not show.
    hot = pl.when("is_among").then(pl.col("hot_s")).otherwise(0.0)
    spins = pl.col("spins") & ~pl.col("is_stale") & (busy > 0)
    emptied = pl.col("is_among") | pl.col("is_steady")
    return flagged.with_columns(
        idle_s=pl.when("is_stale").then(0.0).when("whole").then(idle + low + busy)
        .when(emptied).then(0.0).otherwise(idle),
        low_s=pl.when("is_stale").then(0.0).when("whole").then(0.0)
        .otherwise(
            low + pl.when(emptied).then(idle).otherwise(0.0) + hot
            + pl.when(spins).then(busy).otherwise(0.0)
        ),
        busy_s=pl.when(pl.col("is_stale") | pl.col("whole") | spins).then(0.0).otherwise(busy),
        unknown_s=pl.col("unknown_s") - hot
        + pl.when("is_stale").then(idle + low + busy).otherwise(0.0),
        rule=pl.when("is_stale").then(pl.lit("frozen"))
        .when("is_stretch").then(pl.lit("stretch"))
        .when("is_steady").then(pl.lit("steady"))
        .when(spins).then(pl.lit("spinning"))
        .when(pl.col("is_among") & (idle > 0)).then(pl.lit("among"))
        .when(pl.Series(burst) & (idle <= 0)).then(pl.lit("burst"))
        .otherwise(None),
    )  # fmt: skip


def _build_samples(
    rows: pl.DataFrame, stream: Ints, at: Ints, kind: npt.NDArray[np.int8]
) -> DeviceSamples:
    interval = rows["interval_s"].to_numpy()
    gap = np.maximum(np.rint(interval * 3 * MICRO), BUCKET_US).astype(np.int64)
    return DeviceSamples(
        device=stream,
        at=at,
        validity=np.full(len(at), BUCKET_US),
        gap=gap,
        kind=kind,
        sample_count=rows["sample_count"].to_numpy().astype(np.int64),
        interval_s=interval,
        measures={
            "power_w": rows["power_w"].to_numpy(),
            "energy_mj": rows["energy_mj"].to_numpy(),
            "still_w": rows["still_w"].to_numpy(),
        },
        bucketed=True,
    )


def _flag_stretches(rows: pl.DataFrame, samples: DeviceSamples, settings: Settings) -> Flags:
    """Return which rows are in an idle stretch; `samples` are by line.

    Without an active reading a stretch lasts `ledger.idle_stretch`. With a few active readings it
    lasts `idle.min_duration`, and the device is idle around each of its rows (`_keep_idle_parts`).
    """
    line, kind = samples.device, samples.kind
    quiet = (kind == IDLE) & ~rows["active"].to_numpy()
    strict = np.where(quiet | (kind == BETWEEN), kind, CONFLICT).astype(np.int8)
    edges = np.zeros(len(line) + 1, dtype=np.int64)
    for kinds, length in (
        (strict, settings.ledger.idle_stretch),
        (kind, settings.idle.min_duration),
    ):
        read = msgspec.structs.replace(samples, kind=kinds)
        # A stretch begins and ends within a row: the number of whole rows is up to two less.
        shortest_s = length.total_seconds()
        runs = find_idle_runs(
            read,
            exit_samples=settings.idle.exit_samples,
            shortest_s=max(0.0, shortest_s - 2 * BUCKET_US / MICRO),
        )
        if kinds is kind:
            runs = _keep_idle_parts(rows, line, kind, runs, settings)
        if not len(runs):
            continue
        long_enough = _measure_runs(rows, line, runs) >= shortest_s
        np.add.at(edges, runs.first[long_enough], 1)
        np.add.at(edges, runs.last[long_enough] + 1, -1)
    inside: Flags = np.cumsum(edges[:-1]) > 0
    return inside


def _measure_runs(rows: pl.DataFrame, line: Ints, runs: IdleRuns) -> Floats:
    """Return the seconds of runs, with the idle seconds of the rows before and after them."""
    at, idle = rows["at_us"].to_numpy(), rows["idle_s"].to_numpy()
    before, after = np.maximum(runs.first - 1, 0), np.minimum(runs.last + 1, len(at) - 1)
    first, last = runs.first, runs.last
    joined = (before < first) & (line[before] == line[first])
    joined &= at[first] - at[before] <= BUCKET_US
    follows = (after > last) & (line[after] == line[last]) & (at[after] - at[last] <= BUCKET_US)
    seconds: Floats = (runs.end - runs.start) / MICRO
    ends: Floats = np.where(joined, idle[before], 0.0) + np.where(follows, idle[after], 0.0)
    return seconds + ends


def _keep_idle_parts(
    rows: pl.DataFrame,
    line: Ints,
    kind: npt.NDArray[np.int8],
    runs: IdleRuns,
    settings: Settings,
) -> IdleRuns:
    """Return the parts of runs with active readings in which the device is idle.

    It is idle at a row if few readings of the hour around the row (in the same run) are active and
    their power is within the idle band. Only its neighbours decide about a row, not the whole run,
    so that an hour has the same states whether it is accounted alone or within a week.
    """
    if not len(runs):
        return runs
    count = len(line)
    edges = np.zeros(count + 1, dtype=np.int64)
    edges[runs.first] += 1
    edges[runs.last + 1] -= 1
    index = np.flatnonzero(np.cumsum(edges[:-1]) > 0)  # the rows in runs, whose number is `place`
    place = np.repeat(np.arange(len(runs)), runs.last - runs.first + 1)
    low = np.maximum(index - LOOKAROUND, runs.first[place])
    high = np.minimum(index + LOOKAROUND + 1, runs.last[place] + 1)

    def over(values: Floats) -> Floats:
        # Whole numbers: sums of floats would depend on rows far before.
        total = np.concatenate([[0], np.cumsum(np.rint(values * 1000).astype(np.int64))])
        summed: Floats = (total[high] - total[low]) / 1000
        return summed

    idle, power = rows["idle_s"].to_numpy(), rows["power_w"].to_numpy()
    seconds = over(idle + rows["low_s"].to_numpy() + rows["busy_s"].to_numpy())
    share = over(idle) / np.maximum(seconds, 1e-9)
    band = rows["band_w"].to_numpy()
    has_power = ~np.isnan(power) & ~np.isnan(band)
    above = over(np.where(has_power, power - band, 0.0)) / np.maximum(
        over(has_power.astype(float)), 1
    )
    is_idle = (share >= settings.idle.coverage) & (above <= settings.idle.power_margin_w)
    # A part begins and ends with an idle row.
    here = np.flatnonzero(is_idle & (kind[index] == IDLE))
    if not len(here):
        none = np.empty(0, dtype=np.int64)
        return IdleRuns(none, none, none, none, none)
    cuts_before = np.cumsum(~is_idle)[here]
    quiet, place = index[here], place[here]
    broken = (cuts_before[1:] != cuts_before[:-1]) | (place[1:] != place[:-1])
    begins = np.concatenate([[0], np.flatnonzero(broken) + 1])
    ends = np.concatenate([begins[1:] - 1, [len(quiet) - 1]])
    first, last = quiet[begins], quiet[ends]
    at = rows["at_us"].to_numpy()
    return IdleRuns(line[first], first, last, at[first], at[last] + BUCKET_US)


def _flag_steady(rows: pl.DataFrame, line: Ints, kind: npt.NDArray[np.int8]) -> Flags:
    """Return which idle rows are in an hour of steady light work with power above the band."""
    activity, power = rows["activity"].to_numpy(), rows["power_w"].to_numpy()
    band = rows["band_w"].to_numpy()
    idle = kind == IDLE
    above = ~(power <= band + BAND_STEP_W)
    works = idle & (activity >= LOW_ACTIVITY) & above
    many = np.maximum(sum_around(line, idle.astype(np.int64)), 1)
    steady: Flags = idle & (sum_around(line, works.astype(np.int64)) >= LOW_SHARE * many)
    return steady


def _flag_among(
    line: Ints, at: Ints, *, stretch: Flags, active: Flags, above: Flags, gap: Ints, reach: int
) -> Flags:
    """Return which rows are between active ones, without a stretch or a gap in between.

    The active rows are at most `reach` microseconds away: a longer idle time is a stretch. After
    the last active row of a line, power above the idle band decides. Rows before the first active
    reading of a pod may be its startup, and a row beside a stretch contains the stretch's end.
    """
    if not len(line):
        return np.zeros(0, dtype=bool)
    joined = _flag_joined(line, at, gap)
    cut = np.concatenate([[True], ~joined | (stretch[1:] != stretch[:-1])])
    part = np.cumsum(cut) - 1
    index = np.arange(len(line))
    begins = np.flatnonzero(cut)
    ends = np.append(begins[1:], len(line))
    earlier = np.concatenate([[-1], np.where(active, index, -1)[:-1]])
    last = np.maximum.accumulate(earlier)
    following = np.where(active, index, len(line))
    first = np.minimum.accumulate(following[::-1])[::-1]
    after = (last >= begins[part]) & (at - at[np.maximum(last, 0)] <= reach)
    before = (first < ends[part]) & (at[np.minimum(first, len(line) - 1)] - at <= reach)
    between: Flags = after & (before | above)
    # The row in which a stretch begins is idle for a part of it.
    return between & ~_flag_beside(stretch, joined)


def _flag_joined(line: Ints, at: Ints, gap: Ints) -> Flags:
    """Return which rows but the first follow the row before: of its line, without a silence.

    What a device did before a silence says nothing of the rows after it, and a window that begins
    in the silence does not know it.
    """
    joined: Flags = (line[1:] == line[:-1]) & (
        at[1:] - at[:-1] <= np.maximum(gap[1:], 2 * BUCKET_US)
    )
    return joined


def _flag_beside(stretch: Flags, joined: Flags, step: int = 1) -> Flags:
    """Return which rows are just before (`step` 1) or after (-1) a stretch row that joins them."""
    beside = np.zeros(len(stretch), dtype=bool)
    if step > 0:
        beside[:-1] = stretch[1:] & joined
    else:
        beside[1:] = stretch[:-1] & joined
    return beside


def _find_changes(*columns: npt.NDArray[Any]) -> Flags:
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _fill_measures() -> pl.Expr:
    """Return what the rules measure as numbers, NaN = missing."""
    return (
        pl.col("power_w", "still_w", "energy_mj", "activity", "band_w")
        .cast(pl.Float64)
        .fill_null(np.nan)
    )
