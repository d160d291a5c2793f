"""Compute which pods each node had over time, and for how long which part of it was unused."""

import polars as pl

_HOUR_US = 3_600_000_000
_SUMS = ("gpus", "cpu", "memory", "workers", "others")


def find_stretches(pods: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Return a row per node and stretch in which nothing changed on it.

    Columns: cluster, node, pool, start, hours, gpus (requested), workers (pods with GPUs), others
    (pods without, DaemonSets aside), gpu_count, free_gpus (whole), free_cpu (millicores),
    free_memory (bytes).
    """
    requested = pl.col("gpu_request").fill_null(1.0)
    work = (requested > 0) & ~pl.col("daemon")
    amounts = {
        "gpus": pl.when(pl.col("daemon")).then(0.0).otherwise(requested),
        "cpu": pl.col("cpu_request_milli").fill_null(0),
        "memory": pl.col("memory_request_bytes").fill_null(0),
        "workers": work.cast(pl.Int64),
        "others": (~work & ~pl.col("daemon")).cast(pl.Int64),
    }
    key = ["cluster", "node"]
    begins = pods.select(*key, at="start", **amounts)
    ends = pods.select(*key, at="end", **{name: -amount for name, amount in amounts.items()})
    edges = [
        nodes.select(*key, at=edge, **{n: pl.lit(0) for n in _SUMS}) for edge in ("start", "end")
    ]
    steps = (
        pl.concat([begins, ends, *edges], how="vertical_relaxed")
        .group_by(*key, "at")
        .agg(pl.col(_SUMS).sum())
        .sort(*key, "at")
        .with_columns(
            pl.col(_SUMS).cum_sum().over(key),
            hours=(pl.col("at").shift(-1).over(key) - pl.col("at")).dt.total_microseconds()
            / _HOUR_US,
        )
        .filter(pl.col("hours") > 0)
    )
    lives = nodes.select(
        *key, "pool", "gpu_count", "cpu_milli", "memory_bytes", born="start", removed="end"
    )
    return (
        steps.join(lives, on=key)
        .filter((pl.col("at") >= pl.col("born")) & (pl.col("at") < pl.col("removed")))
        .select(
            *key,
            "pool",
            "hours",
            "workers",
            "others",
            "gpu_count",
            pl.col("gpus").round(6),
            start="at",
            free_gpus=(pl.col("gpu_count") - pl.col("gpus").round(6)).clip(0).floor(),
            free_cpu=pl.col("cpu_milli") - pl.col("cpu"),
            free_memory=pl.col("memory_bytes") - pl.col("memory"),
        )
        .sort(*key, "start")
    )


def sum_empty_hours(steps: pl.DataFrame, least_hours: float) -> pl.DataFrame:
    """Return hours per node in which it held no pod at all, and only pods without GPUs.

    Columns: cluster, node, pool, gpu_count, empty_hours, squatted_hours. Only stretches of at
    least so many hours without any pod that holds a GPU count.
    """
    key = ["cluster", "node"]
    busy = pl.col("workers") > 0
    runs = steps.with_columns(
        run=(busy != busy.shift(1).over(key)).fill_null(True).cum_sum().over(key)
    )
    idle = (
        runs.filter(~busy)
        .group_by(*key, "run", "pool", "gpu_count", maintain_order=True)
        .agg(
            empty_hours=pl.col("hours").filter(pl.col("others") == 0).sum(),
            squatted_hours=pl.col("hours").filter(pl.col("others") > 0).sum(),
        )
        .filter(pl.col("empty_hours") + pl.col("squatted_hours") >= least_hours)
    )
    return (
        idle.group_by(*key, "pool", "gpu_count")
        .agg(pl.col("empty_hours", "squatted_hours").sum())
        .sort(key)
    )


def sum_stranded(steps: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Return free GPU-hours per node that cannot be used for lack of host CPU or memory.

    A free GPU is stranded while its node is in use and has less free CPU (or memory) than half of
    the pool's pods request per GPU (telemetry-and-waste.md#fragmentation-and-mig). Columns:
    cluster, node, pool, by_cpu, by_memory, by_both (GPU-hours), cpu_per_gpu, memory_per_gpu,
    core_hours (free CPU while no GPU was free).
    """
    requested = pl.col("gpu_request")
    typical = (
        pods.filter((requested > 0) & ~pl.col("daemon"))
        .group_by("cluster", "pool")
        .agg(
            cpu_per_gpu=(pl.col("cpu_request_milli") / requested).median(),
            memory_per_gpu=(pl.col("memory_request_bytes") / requested).median(),
        )
    )
    lost = pl.when(pl.col("workers") > 0).then(pl.col("free_gpus") * pl.col("hours")).otherwise(0.0)
    short_cpu = (pl.col("free_cpu") < pl.col("cpu_per_gpu")).fill_null(False)
    short_memory = (pl.col("free_memory") < pl.col("memory_per_gpu")).fill_null(False)
    none_free = pl.col("free_gpus") < 1
    return (
        steps.join(typical, on=["cluster", "pool"], how="inner", nulls_equal=True)
        .group_by("cluster", "node", "pool", "cpu_per_gpu", "memory_per_gpu")
        .agg(
            by_cpu=lost.filter(short_cpu & ~short_memory).sum(),
            by_memory=lost.filter(short_memory & ~short_cpu).sum(),
            by_both=lost.filter(short_memory & short_cpu).sum(),
            core_hours=(pl.col("free_cpu").clip(0) / 1000 * pl.col("hours"))
            .filter(none_free)
            .sum(),
        )
        .sort("cluster", "node")
    )
