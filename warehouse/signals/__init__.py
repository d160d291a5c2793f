"""Classify each device's five minutes by its own signals: the table `signal`.

    rollup_5m, allocation ─► readings.py ─► states.py (stretches, frozen counters, spinning)
    rollup_1h ─► idle_watts.sql ─► power_band.py (the model's idle band)      ─► signal

The accounting step writes it before the ledger, and both the ledger and the idle verdicts read it:
whether an allocated device is idle, low or productive comes from its own utilisation, SM, tensor,
memory traffic, power and energy, never from its host or its owner.
"""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from fallow.gpu_models import read_gpu_models
from fallow.protocols import Views
from fallow.resources import read_table
from fallow.settings import Settings
from fallow.tables import get_schema
from fallow.window import Window
from warehouse.signals import power_band, states
from warehouse.signals.frozen import Flags, FrozenPower
from warehouse.signals.power_band import IdleBand
from warehouse.signals.readings import READ_TABLES, read_readings
from warehouse.snapshot_reader import SnapshotReader
from warehouse.steps import load_step

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

BUCKET_S = 300
DEVICE_BUCKETS = 1_200_000
"""Rows written in one pass, besides their context: about 1 GB of memory."""

LEAST_HOURS = 72
"""Hours written in one pass at least, for a part of the devices: six hours around them are read
too, a twelfth; around a day it would be a quarter."""

MOST_HOURS = 31 * 24
"""Hours written in one pass: each hour has its own idle band."""

CONTEXT = timedelta(hours=3)
"""Least time read before and after a window: zeros are low up to one hour from an active reading,
and an idle stretch needs another hour and a half."""

LONGEST_CONTEXT = timedelta(hours=24)
READINGS = 24
"""Context in intervals of the device with the longest scrape interval."""

HOUR = timedelta(hours=1)

LEARN_WINDOW = timedelta(days=7)
"""Idle power is learned from this much time; it ends with the hour that the band is for."""


def _read_spin() -> dict[str, float]:
    return {row["name"]: float(row["value"]) for row in read_table("warehouse.signals", "spin.csv")}


SPIN = _read_spin()
"""Limits of a spinning device: kernels run all the time, but nothing computes or moves data
(`spin.csv`)."""

PEAKS = {"peak_tensor": 0.93, "peak_fp32": 0.9, "peak_dram": 0.8}
"""The part of their peak that pipes and memory reach in practice. Effective utilisation is the use
of the limiting resource over this peak (telemetry-and-waste.md#signals); without tensor activity
it is the use of the SMs."""


class DeviceRange(msgspec.Struct, frozen=True):
    """Devices by name: from `first_device` to before `last_device`, in order of code points."""

    first_device: str
    last_device: str

    def bounds(self) -> dict[str, str]:
        """Return the parameters that queries name."""
        return msgspec.structs.asdict(self)


class FleetDevices(msgspec.Struct, frozen=True):
    """What decides how much of a fleet one statement reads."""

    devices: int
    longest_interval_s: float | None
    """The longest scrape interval of its devices, where some is known."""


ALL_DEVICES = DeviceRange("", "\U0010ffff")
WRITTEN = (
    "bucket >= $since AND bucket < $until AND device >= $first_device AND device < $last_device"
)


def read_fleet(views: Views) -> FleetDevices:
    """Return the size of the fleet, of all its devices so far."""
    sql = "SELECT count(*) AS devices, max(interval_s)::DOUBLE AS longest_interval_s FROM device"
    return msgspec.convert(views.query(sql).to_pylist()[0], FleetDevices)


def write_signals(wh: "Warehouse", window: Window, fleet: FleetDevices | None = None) -> int:
    """Write the `signal` rows of a window of whole five minutes; return how many.

    Read: rollup_5m, rollup_1h, allocation, device. A repeated call gives the same rows. `fleet`:
    its size, where it is known.
    """
    count, fleet = 0, fleet or read_fleet(wh.whole)
    for chunk in window.chunks(compute_stride(fleet)):
        around = _widen(chunk, fleet, wh.settings)
        bands = learn_bands(wh, around)
        frozen = FrozenPower(wh, around)
        for devices in list_device_ranges(wh, count_parts(fleet, chunk)):
            rows = _derive_part(wh, chunk, devices, bands, frozen)
            span = {**chunk.bounds(), **devices.bounds()}
            count += wh.replace("signal", rows, WRITTEN, span, is_sorted=True)
    return count


def derive_signals(
    wh: "Warehouse",
    window: Window,
    devices: DeviceRange = ALL_DEVICES,
) -> pa.Table:
    """Return the `signal` rows of a window and of some devices, in the table's order."""
    around = _widen(window, read_fleet(wh), wh.settings)
    bands = learn_bands(wh, around)
    frozen = FrozenPower(wh, around)
    return _derive_part(wh, window, devices, bands, frozen)


def _derive_part(
    wh: "Warehouse", window: Window, devices: DeviceRange, bands: pl.DataFrame, frozen: FrozenPower
) -> pa.Table:
    """Return what `derive_signals` returns; `frozen` is of the window with its context."""
    settings = wh.settings
    parameters: dict[str, Any] = {
        **frozen.window.bounds(),
        **devices.bounds(),
        **SPIN,
        **PEAKS,
        "threshold": settings.ledger.idle_threshold,
        "exit_threshold": max(settings.idle.exit_threshold, settings.ledger.idle_threshold),
        "exit_samples": settings.idle.exit_samples,
    }
    tdps_w = {model.gpu_model: model.tdp_w for model in read_gpu_models()}

    def read(reader: SnapshotReader) -> tuple[pl.DataFrame, pl.DataFrame, Flags]:
        rows, owners = read_readings(reader, parameters, bands, tdps_w)
        return rows, owners, frozen.flag_rows(rows, owners)

    rows, owners, repeats = wh.read_at_once(read, READ_TABLES)
    if rows.is_empty():
        return get_schema("signal").empty_table()
    named = states.name_states(rows, settings, repeats)
    since, until = (m.replace(tzinfo=None) for m in (window.start, window.end))
    written = named.filter((pl.col("bucket") >= since) & (pl.col("bucket") < until))
    return _name_owners(_sort_by_device(written, owners), owners)


def _sort_by_device(rows: pl.DataFrame, owners: pl.DataFrame) -> pl.DataFrame:
    """Return rows in the table's order; streams are by cluster, and by pod on a shared device."""
    rank = owners["device"].rank("dense")
    rows = rows.with_columns(device=rank.gather(rows["owner"]))
    device, bucket = pl.col("device"), pl.col("bucket")
    before = device.shift()
    late = (device < before) | ((device == before) & (bucket < bucket.shift()))
    if not rows.select(late.any()).item():
        return rows
    return rows.sort("device", "bucket", maintain_order=True)


def _name_owners(rows: pl.DataFrame, owners: pl.DataFrame) -> pa.Table:
    """Return rows as `signal` has them; texts of owners as dictionaries."""
    place = rows["owner"].to_arrow()
    texts = {
        name: owners[name].to_arrow().cast("string").dictionary_encode().take(place)
        for name in ("cluster", "device", "namespace", "pod")
    }
    schema = get_schema("signal")
    others = [field for field in schema if field.name not in texts]
    columns = rows.select(field.name for field in others).to_arrow().cast(pa.schema(others))
    arrays = [texts[name] if name in texts else columns[name] for name in schema.names]
    return pa.table(arrays, names=schema.names)


def learn_bands(wh: "Warehouse", window: Window) -> pl.DataFrame:
    """Return each model's idle power per hour, learned from the week that ends with the hour.

    Columns: gpu_model, hour, band_w, band (`learned` or `prior`). A band depends on its own hour
    only, so that a repeated accounting of an hour, alone or in a longer window, gives the same
    rows.
    """
    hours = list_hours(window)
    first = hours[0] - LEARN_WINDOW + HOUR
    span = Window(first, hours[-1] + HOUR).bounds()
    rows = pl.DataFrame(
        wh.query_whole(load_step("signals/idle_watts"), {**span, "least_work": states.LOW_ACTIVITY})
    ).filter(pl.col("watts") >= 0)
    models = [m.gpu_model for m in read_gpu_models()]
    begin = first.replace(tzinfo=None)
    places = rows.select(
        hour=(pl.col("bucket") - begin).dt.total_seconds() // int(HOUR.total_seconds()),
        watts="watts",
    ).to_numpy()
    week = LEARN_WINDOW // HOUR
    bands: list[tuple[str, datetime, IdleBand]] = []
    for model in models:
        mine = (rows["gpu_model"] == model).to_numpy()
        if not mine.any():
            prior = power_band.learn_band([model], np.zeros((1, power_band.BINS), dtype=np.int64))
            bands += [(model, hour, prior[model]) for hour in hours]
            continue
        counts = np.zeros((week - 1 + len(hours), power_band.BINS), dtype=np.int64)
        np.add.at(counts, (places[mine, 0], places[mine, 1]), rows["readings"].to_numpy()[mine])
        total = np.cumsum(counts, axis=0)
        for n, hour in enumerate(hours):
            before = total[n - 1] if n else 0
            taught = (total[week - 1 + n] - before)[np.newaxis]
            bands.append((model, hour, power_band.learn_band([model], taught)[model]))
    return pl.DataFrame(
        [
            (model, hour.replace(tzinfo=None), band.watts, band.source)
            for model, hour, band in bands
        ],
        schema={
            "gpu_model": pl.String, "hour": pl.Datetime("us"), "band_w": pl.Float64,
            "band": pl.String,
        },
        orient="row",
    )  # fmt: skip


def list_hours(window: Window) -> list[datetime]:
    """Return the starts of the hours that a window touches."""
    first = window.start.replace(minute=0, second=0, microsecond=0)
    count = -((first - window.end) // HOUR)
    return [first + n * HOUR for n in range(count)]


def compute_stride(fleet: FleetDevices) -> timedelta:
    """Return the time that one pass classifies, in whole hours."""
    hours = DEVICE_BUCKETS * BUCKET_S // 3600 // max(1, fleet.devices)
    return timedelta(hours=min(max(LEAST_HOURS, hours), MOST_HOURS))


def count_parts(fleet: FleetDevices, window: Window) -> int:
    """Return in how many parts of the devices a window is classified: each is one pass."""
    rows = fleet.devices * round(window.seconds / BUCKET_S)
    return max(1, -(-rows // DEVICE_BUCKETS))


def list_device_ranges(views: Views, parts: int) -> list[DeviceRange]:
    """Return ranges of about as many devices each; together they have all names.

    Files are sorted by device, so that a range reads its part of them.
    """
    if parts <= 1:
        return [ALL_DEVICES]
    names = views.query("SELECT DISTINCT device FROM device ORDER BY device")["device"].to_pylist()
    cuts = sorted({names[len(names) * n // parts] for n in range(1, parts)}) if names else []
    ends = [ALL_DEVICES.first_device, *cuts, ALL_DEVICES.last_device]
    return [DeviceRange(first, last) for first, last in pairwise(ends)]


def _widen(window: Window, fleet: FleetDevices, settings: Settings) -> Window:
    """Return a window with the context that its states need."""
    wanted = timedelta(seconds=READINGS * (fleet.longest_interval_s or 60.0))
    # The longest idle time that a state requires, and the time searched before and after it.
    longest = max(settings.idle.min_duration, settings.ledger.idle_stretch) + 2 * HOUR
    context = min(max(CONTEXT, wanted, longest), LONGEST_CONTEXT)
    # Whole buckets, so that the rows of a window do not depend on where another window began.
    context = timedelta(seconds=-(-context.total_seconds() // BUCKET_S) * BUCKET_S)
    return Window(window.start - context, window.end + context)
