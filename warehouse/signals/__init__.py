"""What each device's own signals say, five minutes by five minutes: the table `signal`.

    rollup_5m, allocation ─► readings.sql ─► states.py (stretches, frozen counters, spinning)
    rollup_1h ─► idle_watts.sql ─► power_band.py (the model's idle band)      ─► signal

The accounting step writes it before the ledger, and both the ledger and the idle verdicts read it:
whether an allocated device is idle, low or productive comes from its own utilisation, SM, tensor,
memory traffic, power and energy, never from its host or its owner.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fallow.gpu_models import gpu_models
from fallow.seams import Views
from fallow.tables import schema
from fallow.window import Window
from warehouse.signals import power_band, states
from warehouse.signals.power_band import Band
from warehouse.steps import step

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.lake import Warehouse

BUCKET_S = 300
AT_ONCE = 2_000_000
"""Rows classified at once: about 500 MB."""

CONTEXT = timedelta(hours=2)
"""Least time read around a window: a stretch takes an hour, a frozen power 20 readings."""

LONGEST_CONTEXT = timedelta(hours=24)
READINGS = 24
"""So many intervals of the device scraped least often are read as context."""

TAUGHT = timedelta(days=7)
"""Idle power is learned from so much time before the window's end."""

SPIN = {
    "spin_engine": 0.95,
    "spin_tensor": 0.01,
    "spin_dram": 0.02,
    "spin_sm": 0.30,
    "spin_power": 0.35,
    "spin_bps": 1e6,
}
"""A spinning device: kernels all the time; no tensor work, memory traffic or bytes over the links,
few SMs, and less than so much of its design power (telemetry-and-waste.md#signals, busy-hang)."""


def write(wh: "Warehouse", window: Window) -> int:
    """Write the `signal` rows of a window of whole five minutes; return how many.

    Read: rollup_5m, rollup_1h, allocation, device. Writing again gives the same rows.
    """
    count = 0
    for chunk in window.chunks(_stride(wh)):
        rows = signals(wh, chunk)
        count += wh.replace("signal", rows, "bucket >= $since AND bucket < $until", chunk.bounds())
    return count


def signals(wh: "Warehouse", window: Window) -> "pa.Table":
    """Return the `signal` rows of a window as `write` would write them."""
    settings = wh.settings
    back = _context(wh)
    around = Window(window.start - back, window.end + back)
    bands = idle_bands(wh, window, settings.ledger.idle_threshold)
    facts = {m.gpu_model: m for m in gpu_models()}
    parameters: dict[str, Any] = {
        **around.bounds(),
        **SPIN,
        "threshold": settings.ledger.idle_threshold,
        "exit_threshold": max(settings.idle.exit_threshold, settings.ledger.idle_threshold),
        "exit_samples": settings.idle.exit_samples,
        "models": list(bands),
        "tdps_w": [facts[m].tdp_w for m in bands],
        "bands_w": [b.watts for b in bands.values()],
        "bands": [b.source for b in bands.values()],
    }
    rows = pl.DataFrame(wh.query(step("signals/readings"), parameters))
    named = states.name(rows, settings)
    since, until = (m.replace(tzinfo=None) for m in (window.start, window.end))
    written = named.filter((pl.col("bucket") >= since) & (pl.col("bucket") < until))
    columns = schema("signal").names
    return written.select(columns).to_arrow().cast(schema("signal"))


def idle_bands(views: Views, window: Window, threshold: float) -> dict[str, Band]:
    """Return each model's idle power: learned from the week before the window's end, or a prior."""
    span = Window(window.end - TAUGHT, window.end).bounds()
    taught = views.query(step("signals/idle_watts"), {**span, "threshold": threshold})
    models = [m.gpu_model for m in gpu_models()]
    number = {m: n for n, m in enumerate(models)}
    histogram = np.zeros((len(models), power_band.BINS), dtype=np.int64)
    for row in taught.to_pylist():
        if row["gpu_model"] in number and row["watts"] >= 0:
            histogram[number[row["gpu_model"]], row["watts"]] += row["looks"]
    return dict(power_band.learn(models, histogram))


def _stride(views: Views) -> timedelta:
    devices = views.query("SELECT count(*) AS n FROM device")["n"][0].as_py()
    hours = AT_ONCE * BUCKET_S // 3600 // max(1, devices)
    return timedelta(hours=max(1, hours))


def _context(views: Views) -> timedelta:
    found = views.query("SELECT max(interval_s) AS i FROM device")["i"][0].as_py()
    wanted = timedelta(seconds=READINGS * (found or 60.0))
    context = min(max(CONTEXT, wanted), LONGEST_CONTEXT)
    # Whole buckets, so that the rows of a window do not depend on where another one began.
    return timedelta(seconds=-(-context.total_seconds() // BUCKET_S) * BUCKET_S)
