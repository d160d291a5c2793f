"""Fetch the looks an idle verdict rests on, a bounded part of the devices at a time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from analyzers.queries import sql
from analyzers.runs import BLIND, MICRO, Looks
from fallow.gpu_models import canonical
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window

MOST_LOOKS = 30_000_000
"""Windows with more raw looks are judged from 5-minute rollups."""

PER_PART = 5_000_000
"""Looks in memory at once, about 60 bytes each."""

BUCKET_S = 300
MEASURES = ("power_w", "energy_mj", "traffic_bps", "procs", "kernel_age_s", "idle_clock", "context")


class Plan(msgspec.Struct, frozen=True):
    """Which rows a window is judged from, and the parameters that all queries share."""

    source: str
    """`sample` or `rollup_5m`."""
    rows: int
    devices: pl.DataFrame
    """number, cluster, device, node, parent, model, weight, gpu_model, tdp_w, prior_w."""
    parameters: dict[str, Any]


def bounds(window: Window) -> dict[str, datetime]:
    """Return a window as the naive UTC `since` and `until` that queries take."""
    return {
        "since": window.start.astimezone(UTC).replace(tzinfo=None),
        "until": window.end.astimezone(UTC).replace(tzinfo=None),
    }


def plan(views: Views, window: Window, settings: IdleSettings) -> Plan:
    """Number the held devices and choose raw looks where they are whole and few enough."""
    rows = views.query(sql("idle_devices"), bounds(window)).to_pylist()
    models = [canonical(row["model"]) for row in rows]
    devices = pl.DataFrame(
        {
            "number": range(len(rows)),
            "cluster": [r["cluster"] for r in rows],
            "device": [r["device"] for r in rows],
            "node": [r["node"] for r in rows],
            "parent": [r["parent"] for r in rows],
            "model": [r["model"] for r in rows],
            "weight": [r["weight"] for r in rows],
            "interval_s": [r["interval_s"] for r in rows],
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
    sizes = views.query(sql("idle_sizes"), bounds(window)).to_pylist()[0]
    raw = sizes["looks"] >= sizes["rolled"] and sizes["looks"] <= MOST_LOOKS
    gap = settings.max_gap.total_seconds() if settings.max_gap else None
    parameters: dict[str, Any] = {
        **bounds(window),
        "threshold": settings.threshold,
        "exit_threshold": max(settings.exit_threshold, settings.threshold),
    }
    if not raw:
        parameters |= {
            "exit_samples": settings.exit_samples,
            "max_gap_s": gap,
            "barriers": gap is not None and gap > BUCKET_S,
        }
    return Plan(
        "sample" if raw else "rollup_5m",
        int(sizes["looks"] if raw else sizes["rolled"]),
        devices,
        parameters,
    )


def parts(views: Views, chosen: Plan, settings: IdleSettings) -> Iterator[Looks]:
    """Yield the looks of some devices after another; idle buckets only where rollups serve."""
    count = chosen.devices.height
    if not count:
        return
    rows = chosen.rows if chosen.source == "sample" else chosen.rows // 6
    step = max(1, int(count * PER_PART / max(rows, 1)))
    for begin in range(0, count, step):
        part = chosen.devices[begin : begin + step]
        found = views.query(sql(statement(chosen)), parameters_for(chosen, part))
        yield _looks(found, settings, bucketed=chosen.source != "sample")


def statement(chosen: Plan) -> str:
    """Return the name of the SQL that fetches looks for a plan."""
    return "idle_looks" if chosen.source == "sample" else "idle_buckets"


def parameters_for(chosen: Plan, part: pl.DataFrame) -> dict[str, Any]:
    """Return the parameters that fetch the looks of these devices."""
    made: dict[str, Any] = {
        **chosen.parameters,
        "numbers": part["number"].to_list(),
        "clusters": part["cluster"].to_list(),
        "devices": part["device"].to_list(),
        "boards": part["parent"].is_null().to_list(),
        "first": part["device"].min(),
        "last": part["device"].max(),
    }
    if chosen.source == "sample":
        made["half_tdp_w"] = (part["tdp_w"] / 2).to_list()
        made["context_w"] = part["prior_w"].to_list()
    return made


def _looks(found: pa.Table, settings: IdleSettings, *, bucketed: bool) -> Looks:
    kind = found["kind"].to_numpy().astype(np.int8)
    seen = np.flatnonzero(kind != BLIND)
    device = found["device"].to_numpy().astype(np.int64)[seen]
    at = found["at"].to_numpy().astype(np.int64)[seen]
    if not _sorted(device, at):
        order = np.lexsort((at, device))
        device, at, seen = device[order], at[order], seen[order]
    interval = found["interval_s"].to_numpy().astype(np.float64)[seen]
    length = np.full(len(seen), float(BUCKET_S)) if bucketed else interval
    gap = interval * 3 if settings.max_gap is None else settings.max_gap.total_seconds()
    gap = np.maximum(gap, BUCKET_S if bucketed else 0.0)
    return Looks(
        device=device,
        at=at,
        speaks=np.rint(length * MICRO).astype(np.int64),
        gap=np.rint(np.broadcast_to(gap, len(seen)) * MICRO).astype(np.int64),
        kind=kind[seen],
        looks=found["looks"].to_numpy().astype(np.int64)[seen],
        interval_s=interval,
        measures={name: found[name].to_numpy()[seen] for name in MEASURES},
        bucketed=bucketed,
    )


def _sorted(device: np.ndarray[Any, Any], at: np.ndarray[Any, Any]) -> bool:
    step = np.diff(device)
    return bool(np.all((step > 0) | ((step == 0) & (np.diff(at) >= 0))))
