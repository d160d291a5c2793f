"""Read the five-minute rows that the state rules read, sorted, with who holds the device."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from warehouse.signals.runs import MICRO, Ints
from warehouse.snapshot_reader import SnapshotReader
from warehouse.steps import load_step

HOUR_US = 3600 * MICRO
BUCKET_US = 300 * MICRO
SPAN_PARAMETERS = ("since", "until", "first_device", "last_device")
READ_TABLES = frozenset({"rollup_5m", "device", "allocation"})
"""The tables that `read_readings` reads."""


def read_readings(
    reader: SnapshotReader,
    parameters: Mapping[str, Any],
    bands: pl.DataFrame,
    tdps_w: Mapping[str, float],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of `readings.sql` by stream, time and owner, and the rows of `owners.sql`.

    Added: `stream` and `model` of the owner; `allocated`; `hold`, which changes when another pod
    holds the device (odd: it changes within these five minutes); `band_w` and `band` of the
    device's model in that hour. All are of the reader's snapshot: a roll up that another process
    commits meanwhile may name other owners.
    """
    models = bands["gpu_model"].unique(maintain_order=True).to_list()
    span = {name: parameters[name] for name in SPAN_PARAMETERS}
    listed = {"models": models, "tdps_w": [tdps_w[model] for model in models]}
    owners = pl.DataFrame(reader.query(load_step("signals/owners"), {**span, **listed}))
    if owners.is_empty():
        return owners, owners
    numbered = owners.with_row_index("owner").with_columns(pl.col("owner").cast(pl.Int32))
    rows = pl.DataFrame(
        reader.query_many_rows(
            load_step("signals/readings"), parameters, {"owner_row": numbered.to_arrow()}
        )
    )
    edges = pl.DataFrame(reader.query(load_step("signals/allocation_edges"), span))
    if rows.is_empty():
        return rows, owners
    rows = rows.with_columns(owners[name].gather(rows["owner"]) for name in ("stream", "model"))
    rows = _add_allocations(sort_rows(rows), owners, edges)
    return _add_bands(rows, bands, len(models)), owners


def sort_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort by stream, time and owner.

    Files have days in this order: a stable sort by one number only merges them.
    """
    at = rows["at_us"].to_numpy()
    key = rows["stream"].to_numpy() * (at.max() - at.min() + 1) + (at - at.min())
    if np.all(key[1:] > key[:-1]):
        return rows
    order = np.argsort(key, kind="stable")
    key = key[order]
    same = key[1:] == key[:-1]
    if same.any():
        # Several pods in five minutes of a device.
        place = np.flatnonzero(np.append(same, False) | np.append(False, same))
        tied = order[place]
        order[place] = tied[np.lexsort((rows["owner"].to_numpy()[tied], key[place]))]
    return rows[order]


def _add_allocations(rows: pl.DataFrame, owners: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Add `allocated` and `hold` to sorted rows."""
    stream, at = rows["stream"].to_numpy(), rows["at_us"].to_numpy()
    devices = owners.select("stream", "cluster", "device").unique("stream")
    edges = devices.join(edges, on=["cluster", "device"]).sort("stream", "edge_us")
    edge_stream, edge_us = edges["stream"].to_numpy(), edges["edge_us"].to_numpy()
    first, last = int(at.min()), int(at.max())

    def number_times(streams: Ints, times: Ints) -> Ints:
        return streams * (last - first + 2) + np.clip(times - first, 0, last - first + 1)

    key = number_times(stream, at)
    # The latest edge up to each row; it counts where it is one of the row's stream.
    place = np.searchsorted(key, number_times(edge_stream, edge_us))
    latest = np.cumsum(np.bincount(place, minlength=len(key) + 1)[: len(key)]) - 1
    inside = latest >= 0
    inside[inside] = edge_stream[latest[inside]] == stream[inside]
    allocated, hold = np.zeros(len(key), dtype=bool), np.zeros(len(key), dtype=np.int64)
    allocated[inside] = edges["allocated"].to_numpy()[latest[inside]]
    hold[inside] = 2 * edges["number"].to_numpy()[latest[inside]]
    # Rows within whose five minutes an edge is.
    bucket = edge_us // BUCKET_US * BUCKET_US
    within = (edge_us > bucket) & (bucket >= first) & (bucket <= last)
    changed = number_times(edge_stream[within], bucket[within])
    steps = np.zeros(len(key) + 1, dtype=np.int64)
    np.add.at(steps, np.searchsorted(key, changed), 1)
    np.add.at(steps, np.searchsorted(key, changed, side="right"), -1)
    changes = np.cumsum(steps[:-1]) > 0
    return rows.with_columns(
        allocated=pl.Series(allocated | changes), hold=pl.Series(hold + changes)
    )


def _add_bands(rows: pl.DataFrame, bands: pl.DataFrame, models: int) -> pl.DataFrame:
    """Add the band of each row's model and hour; `bands` has all hours of each model in turn."""
    hours = bands.height // models
    first = bands["hour"].dt.epoch("us")[0]
    place = rows.select(pl.col("model") * hours + (pl.col("at_us") - first) // HOUR_US)
    return rows.with_columns(
        bands["band_w"].gather(place.to_series()), bands["band"].gather(place.to_series())
    )
