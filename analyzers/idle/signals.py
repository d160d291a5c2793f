"""The thresholds of signals, and the sums over the devices of a stretch."""

import polars as pl

from fallow.quiescence import BYTES_S, CPU_SHARE, IO_PRESSURE
from fallow.settings.idle import IdleSettings
from warehouse.signals.frozen import is_still
from warehouse.signals.runs import MICRO
from warehouse.signals.states import BAND_STEP_W, LOW_SHARE
from warehouse.steps import SERVING_LOAD

ACTIVITY_STEPS = (
    SERVING_LOAD,
    *(
        f"idle/host_activity/{name}"
        for name in ("stretch_pods", "held_pods", "host_samples", "steady", "servers", "intervals")
    ),
)
"""Steps of SQL that return when the pods of stretches were active on their hosts."""

HOST_US = 86_400 * MICRO
"""A host is judged by its means over this time: an earlier download is no evidence of activity."""

AFTER_US = 1200 * MICRO
"""Two host samples after a stretch cover its last minutes; they are at most ten minutes apart."""

SKEW_US = 30 * MICRO
MOVING = 0.10
"""Share of samples with traffic above which the device counts as moving data."""

HOST_ACTIVITY = 0.05
"""Share of samples with a busy kernel or a served request above which the workload is in use."""

SERVICES = frozenset({"idle_inference", "idle_workload"})
"""Kinds of findings about workloads that serve, or may serve for all that is known.

Source: telemetry-and-waste.md#idle, K1."""

RECURRENCE = 1.5
"""Factor on the longest rest that ended by itself: a shorter one may end by itself too."""

IDLE_CLOCK = 0.95
"""Share of samples in which the driver must report that clocks are low because the GPU is idle."""


def get_host_bounds(settings: IdleSettings) -> dict[str, float]:
    """Return the parameters of SQL that reads whether the hosts of pods were quiescent."""
    return {
        "cpu_share": CPU_SHARE,
        "cpu_cores": settings.host_cpu_cores,
        "bytes_s": BYTES_S,
        "io_pressure": IO_PRESSURE,
    }


def compute_most_cores(cpu_request_milli: int | None, settings: IdleSettings) -> float:
    """Return the cores up to which a pod's host is quiescent.

    A share of its request, with a maximum.

    It must equal `host_activity/held_pods.sql`. One busy core of 32 requested is work.
    """
    requested = max(1.0, (cpu_request_milli or 1000) / 1000)
    return min(CPU_SHARE * requested, settings.host_cpu_cores)


def add_bands(
    members: pl.DataFrame, bands: pl.DataFrame, margin_w: float, *, on: list[str]
) -> pl.DataFrame:
    """Add `band_w`, `band` (its source), `power_still`, `physics` per device, by the `bands`.

    Power above the band is a signal against idle; power within it, or another signal, is for it,
    unless nothing changes that tells whether they are of now.
    """
    long_ago = pl.col("kernel_age_s") >= (pl.col("end") - pl.col("start")) / MICRO
    quiet = pl.any_horizontal(
        (pl.col("idle_clock") >= IDLE_CLOCK).fill_null(False),
        (pl.col("procs") == 0).fill_null(False),
        long_ago.fill_null(False),
    )
    within = pl.col("power_w") <= pl.col("band_w") + margin_w
    joined = members.with_columns(
        pl.col("power_w", "idle_clock", "procs", "kernel_age_s", "traffic", "low").fill_nan(None)
    ).join(bands, on=on, how="left")
    above = (pl.col("power_w") > pl.col("band_w") + BAND_STEP_W).fill_null(True)
    return joined.with_columns(
        power_still=is_still(pl.col("changes"), pl.col("readings")),
        works=(pl.col("low") >= LOW_SHARE).fill_null(False) & above,
        physics=pl.when(within.not_().fill_null(False))
        .then(pl.lit(False))
        .when((within.fill_null(False) | quiet) & (pl.col("changes") > 0))
        .then(pl.lit(True))
        .otherwise(pl.lit(None, dtype=pl.Boolean)),
    )


def sum_by_device(members: pl.DataFrame) -> pl.DataFrame:
    """Sum the pieces of each device per stretch (`span`), with means weighted by samples."""

    def mean(name: str) -> pl.Expr:
        values = pl.col(name).fill_nan(None)
        return (values * pl.col("samples")).sum() / pl.col("samples").filter(
            values.is_not_null()
        ).sum()

    length = pl.col("piece_end") - pl.col("piece_start")
    return members.group_by("span", "number", maintain_order=True).agg(
        pl.col("gpu_model", "interval_s", "instance").first(),
        pl.col("samples", "idle_samples", "changes", "readings").sum(),
        *(mean(name).alias(name) for name in ("power_w", "traffic", "idle_clock", "low")),
        pl.col("procs").max(),
        pl.col("kernel_age_s").last(),
        pl.col("still", "contrary").any(),
        pl.col("start").min(),
        pl.col("end").max(),
        length_us=length.sum(),
        gpu_us=(pl.col("overlap") * pl.col("gpus")).sum(),
    )


def sum_by_stretch(devices: pl.DataFrame) -> pl.DataFrame:
    """Sum devices per stretch (`span`): all must be for idle; one against it is enough."""
    return devices.group_by("span", maintain_order=True).agg(
        against=(pl.col("physics") == False).any(),  # noqa: E712  (an expression)
        agreed=pl.col("physics").fill_null(False).all(),
        coverage=(
            (pl.col("samples") * pl.col("interval_s") * MICRO).sum() / pl.col("length_us").sum()
        ).clip(0, 1),
        steady=pl.col("idle_samples").sum() / pl.col("samples").sum(),
        samples=pl.col("samples").sum(),
        stale=pl.col("still").any(),
        conflict=pl.col("contrary").any(),
        low=pl.col("works").any(),
        traffic=pl.col("traffic").max(),
        power_w=pl.col("power_w").mean(),
        processes=pl.col("procs").max(),
        kernel_age_s=pl.col("kernel_age_s").min(),
        idle_clock=pl.col("idle_clock").min(),
        power_still=pl.col("power_still").any(),
        no_power_sensor=pl.col("instance").all(),
        band_w=pl.col("band_w").max(),
        band=pl.col("band").first(),
        gpu_us=pl.col("gpu_us").sum(),
        numbers=pl.col("number").unique(maintain_order=True),
    )
