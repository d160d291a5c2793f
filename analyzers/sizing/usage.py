"""Build one row per workload: how busy, how deep, how much memory, and its ranks compared."""

import polars as pl

from analyzers.sizing.limits import get_limit
from analyzers.workload_rows import OWNER
from fallow.gpu_models import read_gpu_models

MEANS = ("act", "engine", "sm", "tensor", "fp32", "dram", "power_w", "pcie_bps", "nvlink_bps")
PEAKS = ("act_peak", "sm_peak", "dram_peak", "mem_most")
COMPARABLE = 0.5
"""A rank that worked less than this share of the longest one's time is not compared."""


def sum_workloads(work: pl.DataFrame) -> pl.DataFrame:
    """Sum pods and devices (columns of `device_work.sql`) up to workloads that share nothing.

    Means are weighted by the time at work. `power_share` is the part of the power between idle and
    design, null for MIG instances, which have no power sensor; `eff` is the use of the
    busiest part (telemetry-and-waste.md#signals), null without profiling counters.
    """
    facts = pl.DataFrame(
        [(m.gpu_model, m.tdp_w, m.idle_context_w) for m in read_gpu_models()],
        schema={"gpu_model": pl.String, "tdp_w": pl.Float64, "rest_w": pl.Float64},
        orient="row",
    )
    rows = work.filter(pl.col("sharers").fill_null(1) <= 1).join(facts, on="gpu_model", how="left")
    whole = pl.col("parent").is_null()
    rows = rows.with_columns(
        power_w=pl.when(whole).then("power_w"),
        spin_w=pl.when(whole).then("spin_w"),
        above=pl.when(whole).then(
            (pl.col("power_w") - pl.col("rest_w")) / (pl.col("tdp_w") - pl.col("rest_w"))
        ),
        flat=pl.col("mem_least") / pl.col("mem_most"),
        pod_gpus=pl.col("device").filter(pl.col("work_s") > 0).n_unique().over(*OWNER, "pod"),
    )
    worked = pl.col("work_s") > 0
    workloads = rows.group_by(*OWNER, maintain_order=True).agg(
        pl.col("team").drop_nulls().first(),
        pl.col("node").unique().alias("nodes"),
        pl.col("gpu_model").unique().alias("models"),
        pl.col("gpu_model").filter(worked).first().alias("model"),
        pl.col("gpu_model").filter(worked).n_unique().alias("kinds"),
        pl.col("profile").filter(worked).first(),
        (~whole).any().alias("instance"),
        pl.col("first_hour").min(),
        pl.col("last_hour").max(),
        gpus=pl.col("device").filter(worked).n_unique(),
        pod_gpus=pl.col("pod_gpus").max(),
        weight=pl.col("weight").filter(worked).max(),
        work_h=(pl.col("work_s") * pl.col("weight")).sum() / 3600,
        longest_s=pl.col("work_s").max(),
        device_s=pl.col("work_s").sum(),
        conflict_s=pl.col("conflict_s").sum(),
        spin_s=pl.col("spin_s").sum(),
        spinning=pl.col("device").filter(pl.col("spin_s") > 0).n_unique(),
        spin_w=_compute_mean("spin_w", "spin_s"),
        tdp_w=pl.col("tdp_w").max(),
        memory_bytes=pl.col("memory_bytes").min(),
        flat=pl.col("flat").median(),
        power_share=_compute_mean("above"),
        **{name: _compute_mean(name) for name in MEANS},
        **{name: pl.col(name).max() for name in PEAKS},
    )
    eff = pl.max_horizontal(
        pl.col("tensor") / 0.93, pl.col("fp32") / 0.9, pl.col("dram") / get_limit("dram_ceiling")
    )
    return workloads.with_columns(eff=eff.clip(0, 1), reserved=_flag_reserved()).join(
        _compare_ranks(rows), on=OWNER, how="left", maintain_order="left"
    )


def sum_shared(work: pl.DataFrame) -> pl.DataFrame:
    """Sum the devices that several pods share up to workloads: each pod has an equal part."""
    shared = work.filter(pl.col("sharers") > 1).group_by(*OWNER, maintain_order=True)
    return shared.agg(
        pl.col("team").first(),
        pl.col("node").unique().alias("nodes"),
        pl.col("gpu_model").unique().alias("models"),
        hours=(pl.col("work_s") * pl.col("weight") / pl.col("sharers")).sum() / 3600,
    )


def _compute_mean(name: str, by: str = "work_s") -> pl.Expr:
    weight = pl.col(by).filter(pl.col(name).is_not_null())
    return (pl.col(name) * pl.col(by)).sum() / pl.when(weight.sum() > 0).then(weight.sum())


def _flag_reserved() -> pl.Expr:
    """Flag workloads whose memory in use is a reservation of the framework, and no demand."""
    most = pl.col("mem_most") / pl.col("memory_bytes")
    held_flat = pl.col("flat") >= get_limit("flat_memory")
    return (most >= get_limit("reserved_memory")) & held_flat


def _compare_ranks(rows: pl.DataFrame) -> pl.DataFrame:
    """Compare the ranks of each workload: SM activity, power above idle, clock."""
    ranks = rows.filter(pl.col("parent").is_null(), pl.col("sm").is_not_null())
    ranks = ranks.group_by(*OWNER, "device", maintain_order=True).agg(
        pl.col("node").first(),
        pl.col("work_s").sum(),
        *(_compute_mean(name) for name in ("sm", "above", "clock_mhz")),
    )
    ranks = ranks.filter(pl.col("work_s") >= COMPARABLE * pl.col("work_s").max().over(OWNER))
    busiest = pl.col("sm").arg_max()
    return ranks.group_by(*OWNER, maintain_order=True).agg(
        ranks=pl.len(),
        rank_most=pl.col("sm").max(),
        rank_median=pl.col("sm").median(),
        rank_mean=pl.col("sm").mean(),
        rank_busy=(pl.col("sm") >= 0.9 * pl.col("sm").max()).sum(),
        slow_device=pl.col("device").get(busiest),
        slow_node=pl.col("node").get(busiest),
        slow_power=pl.col("above").median() / pl.col("above").get(busiest),
        slow_clock=pl.col("clock_mhz").get(busiest) / pl.col("clock_mhz").median(),
    )
