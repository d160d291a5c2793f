"""Detect under-use: few SMs at work, seldom at work, a smaller device that suffices."""

from typing import Any

from analyzers.sizing.limits import get_limit
from analyzers.sizing.rows import WorkloadUse
from analyzers.sizing.symptoms import Symptom, describe_power
from analyzers.work import ALLOCATED
from fallow.settings.workloads import SizingSettings


def detect_shallow(row: WorkloadUse) -> Symptom | None:
    """Detect shallow use: a kernel always runs, on few of the SMs."""
    sm, engine = row.sm, row.engine
    if sm is None or engine is None or engine < get_limit("deep_engine"):
        return None
    share = 1 - sm / get_limit("useful_sm")
    return Symptom(
        "low_depth",
        share,
        "suspected",
        {
            "compute": f"engines {engine:.2f}, SM activity {sm:.2f}",
            "physics": describe_power(row),
        },
        advice=(("low_depth", share, {"engine": engine, "sm": sm}),),
        ceiling=True,
    )


def detect_seldom(row: WorkloadUse, settings: SizingSettings) -> Symptom | None:
    """Detect rare use: hours at work in which kernels run little of the time."""
    act, peak, gpus = row.act, row.act_peak, row.gpus
    if act is None or peak is None:
        return None
    agrees = row.power_share is not None and row.power_share <= get_limit("low_power")
    fewer = max(1, int(-(-gpus * peak // settings.target)))
    share, kind = 1 - fewer / gpus, "low_duty"
    words: dict[str, Any] = {
        "fewer": fewer,
        "gpus": gpus,
        "target": settings.target,
        "parameters": {"fewer_gpus": fewer},
    }
    if fewer >= gpus:
        share, kind = 1 - peak / settings.target, "low_duty_single"
        words = {"act": act}
    if share <= 0 or (row.instance and kind == "low_duty_single"):
        return None
    return Symptom(
        "low_duty",
        share,
        "confirmed" if agrees else "suspected",
        {
            "compute": f"active {act:.0%} of the hours it worked, {peak:.0%} in the busiest",
            "physics": describe_power(row),
        },
        advice=((kind, share, words),),
    )


def build_smaller(row: WorkloadUse, options: list[tuple[str, float, dict[str, Any]]]) -> Symptom:
    """Return the symptom of a workload that fits on a smaller device; the best option first."""
    agrees = row.power_share is not None and row.power_share <= get_limit("low_power")
    shared_only = options[0][0] == "share_gpu"
    used, memory = (row.mem_most or 0) / 2**30, (row.memory_bytes or 0) / 2**30
    return Symptom(
        "oversized",
        options[0][1],
        "confirmed" if agrees and not shared_only else "suspected",
        {
            "compute": f"busiest hour: SM {row.sm_peak:.2f}, DRAM {row.dram_peak or 0:.2f}",
            "memory": f"{used:.1f} of {memory:.0f} GiB at most, which bounds the need from above",
            "physics": describe_power(row),
        },
        states=ALLOCATED,
        advice=tuple(options),
        ceiling=shared_only,
    )
