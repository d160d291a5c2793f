"""Combine idle runs of devices into idle stretches of workloads: all devices, all replicas.

Every frame here has times in microseconds. A workload is idle while every device it holds is in an
idle run, and partly idle while some are (telemetry-and-waste.md#idle, multi-GPU).
"""

from typing import Any

import numpy as np
import polars as pl

from warehouse.sample_validity import VALIDITY
from warehouse.signals.frozen import count_changes
from warehouse.signals.runs import BUCKET_US, IDLE, MICRO, DeviceSamples
from warehouse.signals.states import LOW_ACTIVITY

CONTRARY_W, CONTRARY_SHARE = 20.0, 0.25
"""If the gauge's mean is above the energy counter's by more than both limits (watts, and a share of
the gauge), the two contradict each other: both read one sensor."""

TRAFFIC_BPS = 1e6
"""Bytes per second above the device's own floor that monitoring alone does not cause.

Source: telemetry-and-waste.md#idle."""

FLOOR_BPS = 1e7
"""The most that monitoring moves: a steady stream of more is no floor, whatever its minimum is."""

MEASURES = (
    "activity", "power_w", "still_w", "energy_mj", "traffic_bps", "procs", "kernel_age_s",
    "idle_clock", "context",
)  # fmt: skip
"""What is read of each sample; see `samples.sql`."""

WORKLOAD = ("cluster", "namespace", "workload_kind", "workload")


def merge_holds(holds: pl.DataFrame) -> pl.DataFrame:
    """Merge the pods of a workload on one device: `owner`, `number`, `start`, `end`, `share`.

    `owner` numbers the workload. Shares of pods that hold the device at the same time are added, up
    to 1.
    """
    edges = pl.concat(
        [
            holds.select("owner", "number", at="start", step=1, share="share"),
            holds.select("owner", "number", at="end", step=-1, share=-pl.col("share")),
        ]
    )
    edges = edges.group_by("owner", "number", "at").agg(pl.col("step", "share").sum())
    edges = edges.sort("owner", "number", "at").with_columns(
        pl.col("step", "share").cum_sum().over("owner", "number"),
        end=pl.col("at").shift(-1).over("owner", "number"),
    )
    merged = edges.filter(pl.col("step") > 0).with_columns(
        share=pl.col("share").clip(0, 1).round(9)
    )
    return merged.select("owner", "number", start="at", end="end", share="share")


def find_rows(samples: DeviceSamples, cut: pl.DataFrame) -> tuple[Any, Any]:
    """Return the first row of each piece and the row after its last."""
    origin = int(samples.at.min())
    wide = int(samples.at.max()) - origin + 2
    key = samples.device * wide + (samples.at - origin)
    device = cut["number"].to_numpy()
    start = np.clip(cut["start"].to_numpy() - origin, 0, wide - 1)
    end = np.clip(cut["end"].to_numpy() - origin, 0, wide - 1)
    low = np.maximum(np.searchsorted(key, device * wide + start), cut["first"].to_numpy())
    high = np.minimum(np.searchsorted(key, device * wide + end), cut["last"].to_numpy() + 1)
    return low, np.maximum(high, low)


def sum_samples(samples: DeviceSamples, low: Any, high: Any) -> dict[str, Any]:
    """Sum up the samples from each row `low` to the one before `high`: see `pieces`."""
    weight = None if samples.wide is None else samples.wide.buckets

    def over(values: Any) -> Any:
        if len(values) and values.strides == (0,):
            return (
                values[0] * (high - low).astype(np.float64) if len(values) else np.zeros(len(low))
            )
        total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        return total[high] - total[low]

    def weigh(values: Any) -> Any:
        return values if weight is None else values * weight

    def mean(values: Any) -> Any:
        if is_absent(values):
            return _make_missing(low)
        present = ~np.isnan(values)
        if weight is None and present.all():
            n = (high - low).astype(np.float64)
            return np.divide(over(values), n, out=_make_missing(n), where=n > 0)
        n = over(weigh(present))
        summed = over(weigh(np.where(present, values, 0.0)))
        return np.divide(summed, n, out=_make_missing(n), where=n > 0)

    m = {name: samples.measures[name] for name in MEASURES}
    power = mean(m["power_w"])
    energy_w, during = _sum_energy(samples, low, high)
    still = np.zeros(len(low), dtype=bool)
    if samples.still is not None:
        still = samples.still[np.minimum(low, len(samples) - 1)]
    # A gauge misses bursts between its readings, a counter misses nothing: a counter below the
    # gauge is a fault of the telemetry.
    contrary = (during >= STILL_S) & (
        power - energy_w > np.maximum(CONTRARY_W, CONTRARY_SHARE * power)
    )
    traffic = m["traffic_bps"]
    if not is_absent(traffic):
        traffic = traffic - np.minimum(_find_floor(samples, traffic), FLOOR_BPS)
    final = np.maximum(high - 1, 0)
    return {
        "samples": over(samples.sample_count),
        "idle_samples": over(np.where(samples.kind == IDLE, samples.sample_count, 0)),
        "interval_s": samples.interval_s[np.minimum(low, len(samples) - 1)],
        "power_w": np.where(np.isnan(energy_w), power, energy_w),
        "traffic": mean(_flag(traffic, traffic > TRAFFIC_BPS)),
        "procs": mean(_flag(m["procs"], m["procs"] > 0)),
        "kernel_age_s": m["kernel_age_s"][final].astype(np.float64),
        "idle_clock": mean(m["idle_clock"]),
        "still": still,
        "contrary": contrary,
        "low": mean(_flag(m["activity"], m["activity"] >= LOW_ACTIVITY)),
        "silent_us": _is_silent(samples, low, high),
        "changes": count_changes(samples, low, high),
        "readings": over(weigh(~np.isnan(m["power_w"]))),
    }


def _flag(values: Any, flags: Any) -> Any:
    """Return flags as numbers, NaN where a value is missing."""
    return values if is_absent(values) else np.where(np.isnan(values), np.nan, flags)


def _is_silent(samples: DeviceSamples, low: Any, high: Any) -> Any:
    """Return the microseconds without a valid sample: the ledger counts them as unknown."""
    gap = np.append(samples.at[1:] - samples.last_at[:-1], 0)
    gap = np.maximum(gap - compute_spoken(samples), 0.0)
    total = np.concatenate([[0.0], np.cumsum(gap)])
    between = total[np.maximum(high - 1, low)] - total[low]
    if samples.wide is None:
        return between
    inside = np.concatenate([[0.0], np.cumsum(samples.wide.silent_us)])
    return between + inside[high] - inside[low]


def compute_spoken(samples: DeviceSamples) -> Any:
    """Return for how many microseconds each row's last samples are valid."""
    if samples.wide is not None:
        return samples.wide.spoken_us
    if samples.bucketed:
        spoken = samples.sample_count * samples.interval_s * MICRO * VALIDITY
        return np.minimum(BUCKET_US, spoken)
    return samples.validity * VALIDITY


def is_absent(values: Any) -> bool:
    """Return whether every value is missing."""
    return len(values) == 0 or bool(np.isnan(values[0]) and np.isnan(values).all())


def _make_missing(like: Any) -> Any:
    return np.full(len(like), np.nan)


def _find_floor(samples: DeviceSamples, values: Any) -> Any:
    """Return, per sample, the minimum of its device so far: monitoring itself moves bytes."""
    begins = np.flatnonzero(np.diff(samples.device, prepend=-1))
    return np.concatenate([np.fmin.accumulate(v) for v in np.split(values, begins[1:])])


def _sum_energy(samples: DeviceSamples, low: Any, high: Any) -> tuple[Any, Any]:
    """Return mean watts from the energy counter, and over how many seconds.

    Raw samples have the counter, buckets the energy used in them. A counter that drops restarted
    from zero; one that stood still measures nothing.
    """
    energy = samples.measures["energy_mj"].astype(np.float64, copy=False)
    if is_absent(energy):
        return _make_missing(low), np.zeros(len(low))
    if samples.bucketed:
        used, seconds = energy, samples.validity / MICRO
        begin = low
    else:
        step = np.diff(energy, prepend=np.nan)
        used = np.where(step >= 0, step, np.where(np.isnan(step), np.nan, energy))
        seconds = np.diff(samples.at, prepend=0) / MICRO
        begin = np.minimum(low + 1, high)
    present = ~np.isnan(used)
    total = np.concatenate([[0.0], np.cumsum(np.where(present, used, 0.0))])
    elapsed = np.concatenate([[0.0], np.cumsum(np.where(present, seconds, 0.0))])
    millijoules, during = total[high] - total[begin], elapsed[high] - elapsed[begin]
    flat = (during >= STILL_S) & (millijoules <= 0)
    watts = np.divide(
        millijoules / 1000, during, out=_make_missing(low), where=(during > 0) & ~flat
    )
    return watts, during


STILL_S = 600
"""A powered GPU uses energy; a counter without a change for 10 minutes repeats an old value."""


def find_stretches(cut: pl.DataFrame, holds: pl.DataFrame) -> pl.DataFrame:
    """Return when each workload was idle or partly idle: owner, start, end, state, devices, idle.

    state is `idle` (every device allocated to it) or `partly idle`; `gpu_us` is GPU-microseconds of
    idle devices, by the workload's share of them.
    """
    edges = pl.concat(
        [
            _count_edges(holds, allocated=1, idle=0),
            _count_edges(cut, allocated=0, idle=1),
        ]
    )
    touched = edges.join(cut.select("owner").unique(), on="owner", how="semi")
    sums = ["allocated", "idle", "gpus"]
    sweep = touched.group_by("owner", "at").agg(pl.col(sums).sum()).sort("owner", "at")
    sweep = sweep.with_columns(
        pl.col(sums).cum_sum().over("owner"), until=pl.col("at").shift(-1).over("owner")
    ).drop_nulls("until")
    sweep = sweep.with_columns(
        state=pl.when(pl.col("idle") == 0)
        .then(pl.lit("other"))
        .when(pl.col("idle") >= pl.col("allocated"))
        .then(pl.lit("idle"))
        .otherwise(pl.lit("partly idle"))
    )
    sweep = sweep.with_columns(run=pl.struct("owner", "state").rle_id())
    out = sweep.group_by("run", maintain_order=True).agg(
        pl.col("owner", "state").first(),
        start=pl.col("at").min(),
        end=pl.col("until").max(),
        devices=pl.col("allocated").max(),
        idle=pl.col("idle").max(),
        gpu_us=((pl.col("until") - pl.col("at")) * pl.col("gpus")).sum(),
    )
    return out.filter(pl.col("state") != "other").drop("run")


def _count_edges(frame: pl.DataFrame, *, allocated: int, idle: int) -> pl.DataFrame:
    gpus = pl.col("gpus") if idle else pl.lit(0.0)
    return pl.concat(
        [
            frame.select("owner", at="start", allocated=allocated, idle=idle, gpus=gpus),
            frame.select("owner", at="end", allocated=-allocated, idle=-idle, gpus=-gpus),
        ]
    )


def split_stretches(stretches: pl.DataFrame, works: pl.DataFrame) -> pl.DataFrame:
    """Split stretches where work begins and ends: span, start, end, in order of time.

    `works` are intervals without overlap within the stretches: span, from_us, to_us.
    """
    inside = works.join(stretches, on="span").select(
        "span",
        pl.concat_list(
            pl.col("from_us").clip(pl.col("start"), pl.col("end")),
            pl.col("to_us").clip(pl.col("start"), pl.col("end")),
        ).alias("at"),
    )
    edges = pl.concat(
        [
            stretches.select("span", at="start"),
            stretches.select("span", at="end"),
            inside.explode("at"),
        ]
    )
    edges = edges.unique().sort("span", "at")
    both = edges.with_columns(end=pl.col("at").shift(-1).over("span")).drop_nulls("end")
    return both.select("span", start="at", end="end")
