"""Fill a real Prometheus with what the exporters of a simulated fleet show, at 60 s."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import polars as pl

from benchmarks.remote_write import write
from runtime.experiments.simulation.options import read
from simulator.blocks import thin_block
from simulator.exporters.device_rows import build_rows
from simulator.world import World

STEP_S = 60.0
PART_S = 6 * 3600.0
METRICS = {
    "gpu_util_pct": ("DCGM_FI_DEV_GPU_UTIL", 1),
    "gr_engine_active": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1),
    "sm_active": ("DCGM_FI_PROF_SM_ACTIVE", 1),
    "tensor_active": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1),
    "dram_active": ("DCGM_FI_PROF_DRAM_ACTIVE", 1),
    "mem_used_bytes": ("DCGM_FI_DEV_FB_USED", 1 / 1048576),
    "power_w": ("DCGM_FI_DEV_POWER_USAGE", 1),
    "energy_mj": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1),
    "temp_c": ("DCGM_FI_DEV_GPU_TEMP", 1),
    "sm_clock_mhz": ("DCGM_FI_DEV_SM_CLOCK", 1),
}
OWNER = ("namespace", "pod", "container")
STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)
"""The value with which Prometheus marks that a target no longer shows a series."""
Labels = dict[str, str]


def fill_simulated(url: str, gpus: int, start: datetime, days: int, seed: int) -> None:
    """Write days of a simulated fleet of whole GPUs; `start` is a whole minute.

    Bursts, notebooks, startups and failures are those of `fallow simulate`.
    """
    last_labels: dict[object, Labels] = {}
    for samples in _list_samples(gpus, start, days, seed):
        for (device,), rows in samples.group_by("device", maintain_order=True):
            last_labels[device] = _write_device(url, rows, last_labels.get(device))


def _write_device(url: str, rows: pl.DataFrame, before: Labels | None) -> Labels:
    """Write one device's rows; return the labels that it shows at the end.

    `before`: the labels that it showed until then.
    """
    ts = rows["ts"].dt.epoch("ms").to_numpy()
    owners = rows.select(pl.struct(OWNER).rle_id()).to_series().to_numpy()
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    label_sets = [_build_labels(rows.row(int(at), named=True)) for at in starts]
    stretches = list(zip(starts, [*starts[1:], len(ts)], label_sets, strict=True))
    if before is not None and before != label_sets[0]:
        _write_stale(url, before, ts[:1])
    for begin, end, labels in stretches:
        for column, (name, scale) in METRICS.items():
            values = rows[column][begin:end].cast(pl.Float64).to_numpy() * scale
            there = ~np.isnan(values)
            if there.any():
                named = {"__name__": name, **labels}
                write(url, [named], ts[begin:end][there], values[np.newaxis, there])
        if end < len(ts):
            _write_stale(url, labels, ts[end : end + 1])
    return label_sets[-1]


def _write_stale(url: str, labels: Labels, ts: np.ndarray) -> None:
    for name, _ in METRICS.values():
        write(url, [{"__name__": name, **labels}], ts, STALE[np.newaxis])


def _list_samples(gpus: int, start: datetime, days: int, seed: int) -> Iterator[pl.DataFrame]:
    options = read(days=days, gpus=gpus, seed=seed, pool=[f"h100={gpus // 8}"])
    world = World(msgspec.structs.replace(options.spec, start_s=start.timestamp()), seed)
    end_s = (start + timedelta(days=days)).timestamp()
    while world.now_s < end_s:
        block = thin_block(world.advance(min(world.now_s + PART_S, end_s)), STEP_S)
        frames = [
            pl.from_arrow(batch.rows)
            for batch in build_rows(block, options.quirks, cluster="scanned")
            if batch.table == "sample"
        ]
        yield pl.concat([frame for frame in frames if isinstance(frame, pl.DataFrame)])


def _build_labels(row: Mapping[str, Any]) -> Labels:
    named = {
        "UUID": row["device"],
        "Hostname": row["node"],
        "modelName": row["model"],
        "gpu": row["gpu_index"],
        "device": f"nvidia{row['gpu_index']}",
        **{name: row[name] for name in OWNER},
        "instance": f"{row['node']}:9400",
        "job": "dcgm-exporter",
    }
    return {label: str(value) for label, value in named.items() if value is not None}
