"""Smaller things that would hold a workload's memory and its busiest hour.

Memory in use bounds the need from above, unless the framework took it all at once: then it says
nothing. SM and DRAM activity of the busiest hour scale with what a smaller device has of each
(telemetry-and-waste.md#use-below-the-allocation and #node-pools):
a slice of c of 7 SM groups runs at activity x 7/c.
"""

from collections.abc import Mapping
from typing import Any

from analyzers.gpu_peaks import GpuPeaks, read_gpu_peaks
from analyzers.sizing.limits import get_limit
from fallow import mig
from fallow.gpu_models import gpu_models
from fallow.settings import SizingSettings

Row = Mapping[str, Any]
Option = tuple[str, float, dict[str, Any]]
GIB = 2**30
MOST_SHARERS = 8


def compute_need(row: Row, settings: SizingSettings) -> float | None:
    """Return the memory a workload needs at most, with head-room; None = unknown."""
    if row["mem_most"] is None or row["memory_bytes"] is None or row["reserved"]:
        return None
    used: float = row["mem_most"] * (1 + settings.memory_headroom)
    return used + get_limit("context_gib") * GIB


def list_options(
    row: Row, need: float, prices: Mapping[str, float], settings: SizingSettings
) -> list[Option]:
    """Return kinds of advice, the share each saves and its words, the largest saving first."""
    options = [
        *_find_instance(row, need, settings),
        *_find_model(row, need, prices, settings),
    ]
    options = options or _count_sharers(row, need, settings)
    return sorted(options, key=lambda option: (-option[1], option[0]))


def _find_instance(row: Row, need: float, settings: SizingSettings) -> list[Option]:
    """Return the smallest MIG profile that holds it, for pods of one device."""
    profiles = mig.models().get(row["model"] or "", {})
    if not profiles or row["pod_gpus"] != 1 or row["kinds"] != 1 or row["sm_peak"] is None:
        return []
    most = max(kind.compute for kind in profiles.values())
    slices = max(kind.size for kind in profiles.values())
    now = profiles.get(row["profile"] or "")
    if row["instance"] and now is None:
        return []
    compute, size = (now.compute, now.size) if now else (most, slices)
    for kind in sorted(profiles.values(), key=lambda k: (k.compute, k.size)):
        memory = (
            row["memory_bytes"] * kind.size / size * (get_limit("slice_memory") if not now else 1)
        )
        fits = (
            kind.compute < compute
            and not kind.name.endswith("+me")
            and memory >= need
            and row["sm_peak"] * compute / kind.compute <= settings.target
            and (row["dram_peak"] or 0) * size / kind.size <= get_limit("dram_ceiling")
        )
        if fits:
            words = {"profile": kind.name, "sm_peak": row["sm_peak"] * compute / kind.compute,
                     "dram_peak": (row["dram_peak"] or 0) * size / kind.size}  # fmt: skip
            return [("mig_profile", 1 - kind.compute / compute, words)]
    return []


def _find_model(
    row: Row, need: float, prices: Mapping[str, float], settings: SizingSettings
) -> list[Option]:
    """Return the cheapest model of this site that would do the same work at the same pace."""
    here, paid = read_gpu_peaks().get(row["model"] or ""), prices.get(row["model"] or "")
    if here is None or not paid or row["instance"] or row["kinds"] != 1:
        return []
    linked = row["pod_gpus"] > 1
    gib = {m.gpu_model: m.memory_gib for m in gpu_models()}
    for model, price in sorted(prices.items(), key=lambda pair: (pair[1], pair[0])):
        there = read_gpu_peaks().get(model)
        ratio = price / paid
        if there is None or ratio > settings.cheaper_ratio:
            continue
        holds = gib[model] * GIB * get_limit("slice_memory") >= need
        if (
            holds
            and (there.nvlink_gbs or not linked)
            and _can_keep_pace(row, here, there, settings)
        ):
            return [("smaller_class", 1 - ratio, {"model": model, "ratio": ratio})]
    return []


def _can_keep_pace(row: Row, here: GpuPeaks, there: GpuPeaks, settings: SizingSettings) -> bool:
    """Say whether the busiest hour fits under what another model can do."""
    if row["sm_peak"] is None or row["dram_peak"] is None:
        return False
    tensor = here.tensor_tflops / there.tensor_tflops
    plain = here.fp32_tflops / there.fp32_tflops
    return bool(
        row["sm_peak"] * max(tensor, plain) <= settings.target
        and row["dram_peak"] * here.memory_gbs / there.memory_gbs <= get_limit("dram_ceiling")
    )


def _count_sharers(row: Row, need: float, settings: SizingSettings) -> list[Option]:
    """Return how many such pods one device would hold, where it has no instances to give."""
    if row["pod_gpus"] != 1 or row["instance"] or row["act_peak"] is None:
        return []
    by_time = settings.target / max(row["act_peak"], 1 / MOST_SHARERS)
    sharers = int(min(by_time, row["memory_bytes"] / need, MOST_SHARERS))
    if sharers < 2:  # noqa: PLR2004
        return []
    return [("share_gpu", 1 - 1 / sharers, {"sharers": sharers})]
