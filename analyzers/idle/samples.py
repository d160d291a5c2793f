"""Read the samples behind an idle verdict, a bounded part of the devices at a time."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from analyzers.idle import kept_rows
from analyzers.idle.kept_rows import Range
from analyzers.idle.rows import (
    AllocatedDevice,
    count_samples,
    read_devices,
    read_idle_power,
    read_kept_hours,
    read_measures,
)
from analyzers.idle.spans import MEASURES
from analyzers.queries import compose_steps, load_sql
from fallow.gpu_models import find_gpu_model
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.signals import frozen
from warehouse.signals.power_band import EnergyRows, is_above_band
from warehouse.signals.runs import (
    BLIND,
    BUCKET_US,
    CONFLICT,
    IDLE,
    MICRO,
    DeviceSamples,
    Ints,
)
from warehouse.steps import ACTIVE_SAMPLE

MOST_SAMPLES = 30_000_000
"""Windows with more raw samples are judged from 5-minute rollups."""

PER_PART = {"sample": 1_500_000, "rollup_5m": 5_000_000}
"""Most rows of one part; two parts and the copy in order of one are in memory, 60 bytes a row.

Of rollups only idle rows are returned.
"""
UNKNOWN_INTERVAL_S = 60.0
"""The interval of a device that has none yet, to size the parts."""

BUCKET_S = 300
NAMED, LOW, FROZEN = 1, 2, 4
"""Bits of five minutes: accounting wrote a row of `states.sql`, which is low, which is frozen."""

MOST_RANGES = 8
"""Between so many ranges of kept hours the rest is read range by range."""
AROUND_US = kept_rows.HOUR_US
"""Of rows in whose neighbours what is frozen shows."""

LEAST_SAMPLES = 3
"""A duration of fewer sampling intervals than this is too noisy (dstack issue 2384)."""
WHOLE: Mapping[str, Any] = MappingProxyType({"bucket": 0, "buckets": 1, "workloads": []})
"""Parameters of SQL that reads all workloads."""


class SampleQuery(msgspec.Struct, frozen=True):
    """The rows from which a window is judged, and the parameters that all queries share."""

    source: str
    """`sample` or `rollup_5m`."""
    rows: int
    devices: pl.DataFrame
    """number, cluster, device, node, parent, model, weight, gpu_model, tdp_w, prior_w."""
    rows_per_device: float
    """Rows that a device has in the window, on average."""
    parameters: dict[str, Any]
    accounted: tuple[int, int] = (0, 0)
    """The first and last time (microseconds) for which the accounting step has written states."""
    kept_ranges: tuple[Range, ...] = ()
    """Whole hours whose rows are kept: five-minute rows are read of the rest only."""


def read_shortest_interval_s(views: Views, window: Window) -> float | None:
    """Return the shortest interval between the samples of an allocated device of a window."""
    devices = read_devices(views, window, WHOLE)
    return min((d.interval_s for d in devices if d.interval_s is not None), default=None)


def plan_query(
    views: Views,
    window: Window,
    settings: IdleSettings,
    bucket: Mapping[str, Any] = WHOLE,
    *,
    times: Ints | None = None,
    is_bucketed: bool = False,
) -> SampleQuery:
    """Number the allocated devices; choose raw samples where they are complete and few enough.

    `bucket`: only the devices of a bucket of workloads (`holders.WorkloadBucket.parameters`).
    `times`: those of the verdicts (microseconds), to read rows of whole hours where they are kept;
    None reads none. `is_bucketed`: never raw samples.
    """
    devices = read_devices(views, window, bucket)
    counts = count_samples(views, window)
    raw = not is_bucketed and counts.rolled <= counts.samples <= MOST_SAMPLES
    parameters: dict[str, Any] = {
        **window.bounds(),
        "threshold": settings.threshold,
        "exit_threshold": max(settings.exit_threshold, settings.threshold),
    }
    if not raw:
        parameters |= _choose_rollup_parameters(views, window, settings)
    numbered = _number_devices(devices)
    interval_s = numbered["interval_s"].fill_null(UNKNOWN_INTERVAL_S) if raw else None
    ranges = () if raw or times is None else _list_kept(views, window, settings, times)
    kept_s = sum(until - since for since, until in ranges) / MICRO
    per_device = _compute_rows_per_device(window, interval_s)
    return SampleQuery(
        "sample" if raw else "rollup_5m",
        counts.samples if raw else counts.rolled,
        numbered,
        # An hour has one or two rows of five minutes that are alike.
        per_device - kept_s * (1 / BUCKET_S - 1 / 1800),
        parameters,
        (counts.accounted_from or 0, counts.accounted_until or 0),
        ranges,
    )


def _list_kept(
    views: Views, window: Window, settings: IdleSettings, times: Ints
) -> tuple[Range, ...]:
    """Return the hours whose kept rows serve: no verdict's time is within one.

    Where too many parts are left between them, all is read from rollups.
    """
    rows = read_kept_hours(views, window, kept_rows.name_shape(settings))
    hours = [row.hour_us for row in rows]
    within = set((times[times % kept_rows.HOUR_US != 0] // kept_rows.HOUR_US).tolist())
    ranges = kept_rows.list_ranges([h for h in hours if h // kept_rows.HOUR_US not in within])
    return tuple(ranges) if len(ranges) <= MOST_RANGES else ()


def _compute_rows_per_device(window: Window, interval_s: pl.Series | None) -> float:
    """Return the mean number of samples of a device, or of five-minute rows without intervals."""
    if interval_s is None:
        return window.seconds / BUCKET_S
    return float(np.sum(window.seconds / interval_s.to_numpy()) / max(1, len(interval_s)))


def _number_devices(devices: Sequence[AllocatedDevice]) -> pl.DataFrame:
    """Return devices with a number and the power figures of their model."""
    models = [find_gpu_model(device.model) for device in devices]
    return pl.DataFrame(
        {
            "number": range(len(devices)),
            "cluster": [device.cluster for device in devices],
            "device": [device.device for device in devices],
            "node": [device.node for device in devices],
            "parent": [device.parent for device in devices],
            "model": [device.model for device in devices],
            "weight": [device.weight for device in devices],
            "interval_s": [device.interval_s for device in devices],
            "gpu_model": [m and m.gpu_model for m in models],
            "tdp_w": [m and m.tdp_w for m in models],
            "prior_w": [m and m.idle_context_w for m in models],
        },
        schema={
            "number": pl.Int64, "cluster": pl.String, "device": pl.String, "node": pl.String,
            "parent": pl.String, "model": pl.String, "weight": pl.Float64,
            "interval_s": pl.Float64, "gpu_model": pl.String, "tdp_w": pl.Float64,
            "prior_w": pl.Float64,
        },
    )  # fmt: skip


def _choose_rollup_parameters(
    views: Views, window: Window, settings: IdleSettings
) -> dict[str, Any]:
    """Return the parameters of `buckets.sql` that `samples.sql` does not have."""
    gap = settings.max_gap.total_seconds() if settings.max_gap else None
    barriers = gap is not None and gap > BUCKET_S
    measures = read_measures(views, window)
    return {
        "exit_samples": settings.exit_samples,
        "max_gap_s": gap,
        "barriers": barriers,
        **msgspec.structs.asdict(measures),
        "every": barriers or measures.every,
    }


def read_parts(
    views: Views, chosen: SampleQuery, settings: IdleSettings, holds: pl.DataFrame | None = None
) -> Iterator[DeviceSamples]:
    """Yield the samples of parts of the devices in turn, with their states in `signal`.

    Where rollups serve they are idle buckets only, of kept hours several in a row. Where the
    accounting step wrote nothing, the readings stand as they are. `holds`: number, start and end of
    today's allocations, by which kept rows are checked.
    """
    for samples in read_apart(views, chosen, settings, holds):
        still = samples.still
        # Over all hours: an old value may stand for days. Only the accounting step sees it.
        if still is not None and chosen.accounted[0] < chosen.accounted[1]:
            still = frozen.extend_repeats(samples, still)
        yield msgspec.structs.replace(samples, still=still)


def read_apart(
    views: Views, chosen: SampleQuery, settings: IdleSettings, holds: pl.DataFrame | None = None
) -> Iterator[DeviceSamples]:
    """Yield what `read_parts` extends: `still` are the rows that show by themselves."""
    count = chosen.devices.height
    if not count:
        return
    step = max(1, int(PER_PART[chosen.source] / max(1.0, chosen.rows_per_device)))
    parts = [chosen.devices[begin : begin + step] for begin in range(0, count, step)]
    bands = _read_bands(views, chosen)
    # The next part is read while this one is judged, on a second core.
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(_read_part, views, chosen, parts[0])
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            read = ahead.result()
            if following is not None:
                ahead = reader.submit(_read_part, views, chosen, following)
            rest = [_build_range(rows, chosen, settings, bands) for rows in read.rest]
            if not chosen.kept_ranges:
                yield rest[0]
                continue
            stored = kept_rows.build_samples(read.stored, settings)
            del read
            yield kept_rows.merge(
                [*_replace_doubtful(views, chosen, settings, bands, part, stored, holds), *rest]
            )


class RangeRows(NamedTuple):
    """Rows of samples of a time, read with those around it, and their rows of `states.sql`."""

    range: Range | None
    """None = the whole window."""
    samples: pa.Table
    states: pa.Table


class PartRows(NamedTuple):
    """What is read of a part of the devices."""

    stored: pa.Table
    rest: list[RangeRows]


def _read_part(views: Views, chosen: SampleQuery, part: pl.DataFrame) -> PartRows:
    if not chosen.kept_ranges:
        return PartRows(pa.table({}), [_read_range(views, chosen, part, None)])
    parameters = build_parameters(chosen, part)
    named = ("numbers", "clusters", "devices", "first", "last")
    bounds = _write_bounds((chosen.kept_ranges[0][0], chosen.kept_ranges[-1][1]))
    stored = views.query(
        load_sql("idle/kept_rows"), {**{name: parameters[name] for name in named}, **bounds}
    )
    whole = (_count_micros(parameters["since"]), _count_micros(parameters["until"]))
    rest = kept_rows.list_rest(whole, chosen.kept_ranges)
    return PartRows(stored, [_read_range(views, chosen, part, each) for each in rest])


def _read_range(
    views: Views, chosen: SampleQuery, part: pl.DataFrame, wanted: Range | None
) -> RangeRows:
    parameters = build_parameters(chosen, part)
    if wanted is not None:
        # What is frozen shows in the rows around it.
        since, until = wanted[0] - AROUND_US, wanted[1] + AROUND_US
        bounds = _write_bounds((since, until))
        parameters["since"] = max(parameters["since"], bounds["since"])
        parameters["until"] = min(parameters["until"], bounds["until"])
    named = ("numbers", "clusters", "devices", "since", "until")
    states = views.query(load_sql("idle/states"), {name: parameters[name] for name in named})
    return RangeRows(wanted, views.query(load_statement(chosen), parameters), states)


def _build_range(
    rows: RangeRows, chosen: SampleQuery, settings: IdleSettings, bands: Any
) -> DeviceSamples:
    samples = _build_samples(rows.samples, settings, bucketed=chosen.source != "sample")
    samples = add_states(samples, rows.states, chosen.accounted)
    samples = drop_above_band(samples, bands, chosen.accounted, settings.power_margin_w)
    if not samples.bucketed:
        return samples
    # Five minutes of work end a run by the silence between those that are idle.
    used = (samples.kind != CONFLICT) | (samples.gap > BUCKET_US)
    if rows.range is None:
        return samples if used.all() else kept_rows.select(samples, used)
    used &= (samples.at >= rows.range[0]) & (samples.at < rows.range[1])
    return kept_rows.widen(kept_rows.select(samples, used))


def _replace_doubtful(  # noqa: PLR0917  (one caller)
    views: Views, chosen: SampleQuery, settings: IdleSettings, bands: Any, part: pl.DataFrame,
    stored: DeviceSamples, holds: pl.DataFrame | None,
) -> Iterator[DeviceSamples]:  # fmt: skip
    """Yield kept rows; of devices whose holders do not fit them, those of rollups."""
    rest = kept_rows.list_rest(
        (chosen.kept_ranges[0][0], chosen.kept_ranges[-1][1]), chosen.kept_ranges
    )
    used = np.ones(len(stored), dtype=bool)
    for since, until in rest:
        used &= (stored.at < since) | (stored.at >= until)
    doubtful = kept_rows.list_doubtful(stored, holds) if holds is not None else np.empty(0)
    if len(doubtful):
        used &= ~np.isin(stored.device, doubtful)
        devices = part.filter(pl.col("number").is_in(doubtful))
        for each in chosen.kept_ranges:
            rows = _read_range(views, chosen, devices, each)
            yield _build_range(rows, chosen, settings, bands)
    yield stored if used.all() else kept_rows.select(stored, used)


def _write_bounds(wanted: Range) -> dict[str, datetime]:
    since, until = (datetime(1970, 1, 1) + timedelta(microseconds=at) for at in wanted)  # noqa: DTZ001  (the engine's times are naive UTC)
    return {"since": since, "until": until}


def _count_micros(naive: datetime) -> int:
    return (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001  (naive UTC)


def add_states(
    samples: DeviceSamples, states: pa.Table, accounted: tuple[int, int]
) -> DeviceSamples:
    """Set the kind of samples to what the ledger counts: `states` are the rows of `states.sql`.

    No idle run extends over time that is not idle in the ledger, so no idle finding does. Time that
    is idle in the ledger is no steady low activity. The states are known in the time `accounted`.
    """
    repeats = frozen.classify_samples(samples)
    if not len(samples) or accounted[0] >= accounted[1]:
        return msgspec.structs.replace(samples, still=repeats)
    state = _find_states(samples, states)
    stale, low = state & FROZEN != 0, state & LOW != 0
    # In a bucket with work the idle part is unknown.
    works = (state != 0) & ~stale & (low | (samples.kind != IDLE) | samples.bucketed)
    unnamed = (samples.at < accounted[0]) | (samples.at >= accounted[1])
    activity = np.where(unnamed, samples.measures["activity"], np.nan)
    return msgspec.structs.replace(
        samples,
        measures={**samples.measures, "activity": activity},
        kind=np.where(works, CONFLICT, samples.kind).astype(np.int8),
        still=repeats | stale,
    )


def _read_bands(views: Views, chosen: SampleQuery) -> Any:
    """Return the newest idle power of each number's model, NaN for an unknown model.

    The devices may be some of those that were numbered.
    """
    until = datetime.fromtimestamp(chosen.accounted[1] / MICRO, UTC) + timedelta(hours=1)
    bands = {row.gpu_model: row.band_w for row in read_idle_power(views, [until])}
    numbers = chosen.devices["number"].to_numpy()
    listed = chosen.devices.select("gpu_model", "prior_w").iter_rows()
    by_number = np.full(numbers.max() + 1, np.nan)
    by_number[numbers] = [
        np.nan if (w := bands.get(m, prior)) is None else w for m, prior in listed
    ]
    return by_number


def drop_above_band(
    samples: DeviceSamples, bands: Any, accounted: tuple[int, int], margin_w: float
) -> DeviceSamples:
    """Mark idle samples of five minutes above the idle band as work, as the ledger will.

    `bands`: watts by device. Only those after the time `accounted`: before it, states are written.
    """
    rows = np.flatnonzero(samples.at >= accounted[1])
    if not rows.size or accounted[0] >= accounted[1]:
        return samples
    device, at = samples.device[rows], samples.at[rows]
    five, same = at // (BUCKET_S * MICRO), device[1:] == device[:-1]
    energy = samples.measures["energy_mj"][rows]
    interval_s = samples.interval_s[rows]
    seconds = np.maximum(samples.sample_count[rows] * interval_s, 1.0)
    if not samples.bucketed:
        step = np.diff(energy, prepend=np.nan)
        step[1:][~same] = np.nan
        energy = np.where(step >= 0, step, np.nan)
        seconds = np.diff(at, prepend=0) / MICRO
    begins = np.flatnonzero(np.append(True, ~same | (five[1:] != five[:-1])))

    def total(values: Any) -> Any:
        return np.add.reduceat(np.nan_to_num(values), begins)

    power = samples.measures["power_w"][rows]
    with np.errstate(invalid="ignore", divide="ignore"):
        power_w = total(power) / total(~np.isnan(power))
    counted = ~np.isnan(energy)
    used = np.where(total(counted) > 0, total(energy), np.nan)
    rows_of = EnergyRows(used, total(np.where(counted, seconds, 0.0)), interval_s[begins])
    above = is_above_band(device[begins], power_w, rows_of, bands[device[begins]] + margin_w)
    above &= total(samples.kind[rows] != IDLE) == 0
    kind = samples.kind.copy()
    kind[rows[np.repeat(above, np.diff(np.append(begins, len(rows))))]] = CONFLICT
    return msgspec.structs.replace(samples, kind=kind)


def _find_states(samples: DeviceSamples, states: pa.Table) -> np.ndarray[Any, Any]:
    """Return, per sample, the `NAMED`, `LOW` and `FROZEN` bits of its five minutes; 0 = no row.

    Each device and five minutes has a place of its own, so that millions of rows need no order.
    Devices without samples share the places behind the others.
    """
    of_samples = samples.at // (BUCKET_S * MICRO)
    if not states.num_rows:
        return np.zeros(len(samples), dtype=np.uint8)
    device, five_minutes, bits = (states[name].to_numpy() for name in _STATE_COLUMNS)
    first = min(int(of_samples.min()), int(five_minutes.min()))
    wide = max(int(of_samples.max()), int(five_minutes.max())) - first + 1
    begins = np.flatnonzero(np.diff(samples.device, prepend=-1))
    devices = max(int(samples.device[-1]), int(device.max())) + 1
    origin = np.full(devices, len(begins) * wide - first)
    origin[samples.device[begins]] = np.arange(len(begins)) * wide - first
    at = origin[device] + five_minutes
    table = np.zeros((len(begins) + 1) * wide, dtype=np.uint8)
    table[at] = NAMED
    for bit in (LOW, FROZEN):
        table[at[bits & bit != 0]] |= bit
    state: np.ndarray[Any, Any] = table[origin[samples.device] + of_samples]
    return state


_STATE_COLUMNS = ("device", "five_minutes", "bits")


def load_statement(chosen: SampleQuery) -> str:
    """Return the SQL that fetches samples for a plan."""
    if chosen.source == "sample":
        return compose_steps(ACTIVE_SAMPLE, "idle/samples")
    return load_sql("idle/buckets")


def build_parameters(chosen: SampleQuery, part: pl.DataFrame) -> dict[str, Any]:
    """Return the parameters that fetch the samples of these devices."""
    parameters: dict[str, Any] = {
        **chosen.parameters,
        "numbers": part["number"].to_list(),
        "clusters": part["cluster"].to_list(),
        "devices": part["device"].to_list(),
        "whole_gpus": part["parent"].is_null().to_list(),
        "first": part["device"].min(),
        "last": part["device"].max(),
    }
    if chosen.source == "sample":
        parameters["half_tdp_w"] = (part["tdp_w"] / 2).to_list()
        parameters["context_w"] = part["prior_w"].to_list()
    return parameters


def _build_samples(table: pa.Table, settings: IdleSettings, *, bucketed: bool) -> DeviceSamples:
    rows = pl.DataFrame(table)
    if (rows["kind"] == BLIND).any():
        rows = rows.filter(pl.col("kind") != BLIND)
    count = rows.height
    device = rows["device"].cast(pl.Int64).to_numpy()
    order = _find_order(device, rows["at"].to_numpy())

    def column(name: str, dtype: type[pl.DataType]) -> np.ndarray[Any, Any]:
        """Return a column in order; a constant column stores its value once."""
        values = rows[name]
        if count and values.null_count() == count:
            return np.broadcast_to(np.float32(np.nan), count)
        if count and values.null_count() == 0 and values.min() == values.max():
            return np.broadcast_to(values[:1].cast(dtype).to_numpy(), count)
        array = values.cast(dtype).to_numpy()
        return array if order is None else array[order]

    interval = column("interval_s", pl.Float64)
    once = interval[:1] if interval.strides == (0,) else interval
    length = np.full(len(once), float(BUCKET_S)) if bucketed else once
    gap = once * 3 if settings.max_gap is None else settings.max_gap.total_seconds()
    gap = np.maximum(gap, BUCKET_S if bucketed else 0.0)
    return DeviceSamples(
        device=device if order is None else device[order],
        at=column("at", pl.Int64),
        validity=np.broadcast_to(np.rint(length * MICRO).astype(np.int64), count),
        gap=np.broadcast_to(np.rint(gap * MICRO).astype(np.int64), count),
        kind=column("kind", pl.Int8),
        sample_count=column("samples", pl.Int64),
        interval_s=interval,
        measures={
            name: column(name, pl.Float64 if name == "energy_mj" else pl.Float32)
            for name in MEASURES
        },
        peak=column("peak", pl.Boolean) if rows["peak"].any() else None,
        bucketed=bucketed,
    )


def _find_order(
    device: np.ndarray[Any, Any], at: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any] | None:
    """Return the rows' order by device and time; None where they are in order.

    Files have days in this order: a stable sort by one number only merges these runs.
    """
    if not len(at):
        return None
    origin = at.min()
    key = device * (at.max() - origin + 1) + (at - origin)
    if np.all(key[1:] >= key[:-1]):
        return None
    return np.argsort(key, kind="stable")
