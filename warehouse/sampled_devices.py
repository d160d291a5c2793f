"""Describe the devices of samples: their newest labels, and from when until when they were seen."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from fallow import tables
from warehouse.sample_validity import UNKNOWN_INTERVAL_S
from warehouse.sorted_samples import Flags, Ints, SampleColumn, take_texts

NEWEST = ("parent", "node", "vendor", "model", "profile", "reported_interval_s")
"""Columns of which a device has its newest value."""
OWN_COLUMNS = (*NEWEST, "memory_bytes")
"""Columns in the order of time that only devices need."""


def build_schema() -> pa.Schema:
    """Return the columns of `list_devices`: those of `device` that follow from samples alone."""
    whole = tables.get_schema("device")
    return pa.schema([f for f in whole if f.name not in {"gpu_model", "weight"}])


def list_devices(
    columns: Mapping[str, SampleColumn], cluster: str, first_us: int, last_us: int
) -> pa.Table:
    """Return a cluster's devices with samples in [first, last), microseconds since 1970.

    `columns` are those of `rollup/classified.sql`, sorted by device and time. `last_seen` is the
    end of the last sample's interval.
    """
    at, device = columns["at_us"].values, columns["device"].values
    inside = (at >= first_us) & (at < last_us)
    starts = np.flatnonzero(np.diff(device, prepend=-1))
    index = np.arange(len(at))
    present = np.logical_or.reduceat(inside, starts)
    first = np.minimum.reduceat(np.where(inside, index, len(at) - 1), starts)[present]
    plain = np.maximum.reduceat(np.where(inside, index, -1), starts)
    arrays = {
        "cluster": pa.repeat(pa.scalar(cluster), int(present.sum())),
        "device": take_texts(columns["device"].texts, device[starts][present]),
        "first_seen": pa.array(at[first], pa.timestamp("us")),
        "last_seen": pa.array(_find_ends(columns, inside, starts)[present], pa.timestamp("us")),
        "memory_bytes": _find_greatest(columns["memory_bytes"], inside, starts, present),
    }
    for name in NEWEST:
        column, places = columns[name], plain
        if column.valid is not None:
            places = np.maximum.reduceat(np.where(inside & column.valid, index, -1), starts)
        arrays[name] = _take_newest(column, places[present])
    arrays["interval_s"] = arrays.pop("reported_interval_s")
    schema = build_schema()
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _find_ends(columns: Mapping[str, SampleColumn], inside: Flags, starts: Ints) -> Ints:
    interval = columns["reported_interval_s"]
    seconds = interval.values.astype(np.float64)
    if interval.valid is not None:
        seconds = np.where(interval.valid, seconds, UNKNOWN_INTERVAL_S)
    ends = columns["at_us"].values + np.rint(seconds * 1e6).astype(np.int64)
    last: Ints = np.maximum.reduceat(np.where(inside, ends, np.iinfo(np.int64).min), starts)
    return last


def _find_greatest(column: SampleColumn, inside: Flags, starts: Ints, present: Flags) -> pa.Array:
    flags = inside if column.valid is None else inside & column.valid
    least = np.iinfo(np.int64).min
    values = np.maximum.reduceat(np.where(flags, column.values, least), starts)[present]
    return pa.array(values, mask=~np.logical_or.reduceat(flags, starts)[present])


def _take_newest(column: SampleColumn, places: Ints) -> pa.Array:
    values = column.values[np.maximum(places, 0)]
    if column.texts is not None:
        return take_texts(column.texts, np.where(places < 0, -1, values))
    return pa.array(values, mask=places < 0)
