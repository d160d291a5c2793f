"""Read the samples behind an idle verdict, a bounded part of the devices at a time."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from analyzers.idle.rows import (
    AllocatedDevice,
    count_samples,
    read_devices,
    read_idle_power,
    read_measures,
)
from analyzers.queries import compose_steps, load_sql
from fallow.gpu_models import find_gpu_model
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.signals import frozen
from warehouse.signals.power_band import EnergyRows, is_above_band
from warehouse.signals.runs import BLIND, CONFLICT, IDLE, MICRO, DeviceSamples
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

LEAST_SAMPLES = 3
"""A duration of fewer sampling intervals than this is too noisy (dstack issue 2384)."""
WHOLE: Mapping[str, Any] = MappingProxyType({"bucket": 0, "buckets": 1, "workloads": []})
"""Parameters of SQL that reads all workloads."""

MEASURES = (
    "activity", "power_w", "still_w", "energy_mj", "traffic_bps", "procs", "kernel_age_s",
    "idle_clock", "context",
)  # fmt: skip


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


def read_shortest_interval_s(views: Views, window: Window) -> float | None:
    """Return the shortest interval between the samples of an allocated device of a window."""
    devices = read_devices(views, window, WHOLE)
    return min((d.interval_s for d in devices if d.interval_s is not None), default=None)


def plan_query(
    views: Views, window: Window, settings: IdleSettings, bucket: Mapping[str, Any] = WHOLE
) -> SampleQuery:
    """Number the allocated devices; choose raw samples where they are complete and few enough.

    `bucket`: only the devices of a bucket of workloads (`holders.WorkloadBucket.parameters`).
    """
    devices = read_devices(views, window, bucket)
    counts = count_samples(views, window)
    raw = counts.rolled <= counts.samples <= MOST_SAMPLES
    parameters: dict[str, Any] = {
        **window.bounds(),
        "threshold": settings.threshold,
        "exit_threshold": max(settings.exit_threshold, settings.threshold),
    }
    if not raw:
        parameters |= _choose_rollup_parameters(views, window, settings)
    numbered = _number_devices(devices)
    interval_s = numbered["interval_s"].fill_null(UNKNOWN_INTERVAL_S) if raw else None
    return SampleQuery(
        "sample" if raw else "rollup_5m",
        counts.samples if raw else counts.rolled,
        numbered,
        _compute_rows_per_device(window, interval_s),
        parameters,
        (counts.accounted_from or 0, counts.accounted_until or 0),
    )


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
    views: Views, chosen: SampleQuery, settings: IdleSettings
) -> Iterator[DeviceSamples]:
    """Yield the samples of parts of the devices in turn, with their states in `signal`.

    Where rollups serve they are idle buckets only. Where the accounting step wrote nothing, the
    readings stand as they are.
    """
    count = chosen.devices.height
    if not count:
        return
    step = max(1, int(PER_PART[chosen.source] / max(1.0, chosen.rows_per_device)))
    part_parameters = [
        build_parameters(chosen, chosen.devices[begin : begin + step])
        for begin in range(0, count, step)
    ]
    bands = _read_bands(views, chosen)
    # The next part is read while this one is judged, on a second core.
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(_read, views, chosen, part_parameters[0])
        for following in [*part_parameters[1:], None]:
            table, states = ahead.result()
            if following is not None:
                ahead = reader.submit(_read, views, chosen, following)
            samples = _build_samples(table, settings, bucketed=chosen.source != "sample")
            samples = add_states(samples, states, chosen.accounted)
            yield drop_above_band(samples, bands, chosen.accounted, settings.power_margin_w)


def _read(
    views: Views, chosen: SampleQuery, parameters: Mapping[str, Any]
) -> tuple[pa.Table, pa.Table]:
    named = ("numbers", "clusters", "devices", "since", "until")
    states = views.query(load_sql("idle/states"), {name: parameters[name] for name in named})
    return views.query(load_statement(chosen), parameters), states


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
        still=frozen.extend_repeats(samples, repeats | stale),
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
