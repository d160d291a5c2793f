"""Find smaller devices that fit a workload's memory and its busiest hour.

Memory in use is an upper limit of the need, unless the framework reserved all memory at start: then
it shows nothing. SM and DRAM activity of the busiest hour scale with what a smaller device has of
each (telemetry-and-waste.md#use-below-the-allocation and #node-pools): a slice of c of 7 SM groups
runs at activity x 7/c.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from analyzers.gpu_peaks import GpuPeaks, read_gpu_peaks
from analyzers.sizing.limits import get_limit
from analyzers.sizing.rows import WorkloadUse
from fallow import mig
from fallow.gpu_models import read_gpu_models
from fallow.settings.workloads import SizingSettings

Option = tuple[str, float, dict[str, Any]]
GIB = 2**30
MOST_SHARERS = 8


class DeviceSlices(msgspec.Struct, frozen=True):
    """The present device of a pod, in slices of its GPU."""

    compute: int
    memory: int
    usable_memory: float
    """Usable part of a slice; 1 for an instance, of which the usable memory is known."""


def compute_need(row: WorkloadUse, settings: SizingSettings) -> float | None:
    """Return the maximum memory that a workload needs, with head-room; None = unknown."""
    if row.mem_most is None or row.memory_bytes is None or row.reserved:
        return None
    used: float = row.mem_most * (1 + settings.memory_headroom)
    return used + get_limit("context_gib") * GIB


def list_options(
    row: WorkloadUse, need: float, prices: Mapping[str, float], settings: SizingSettings
) -> list[Option]:
    """Return kinds of advice, the share each saves and its words, the largest saving first."""
    options = [
        *_find_instance(row, need, settings),
        *_find_model(row, need, prices, settings),
    ]
    options = options or _count_sharers(row, need, settings)
    return sorted(options, key=lambda option: (-option[1], option[0]))


def _find_instance(row: WorkloadUse, need: float, settings: SizingSettings) -> list[Option]:
    """Return the smallest MIG profile that fits it, for pods of one device."""
    profiles = mig.read_models().get(row.model or "", {})
    now = profiles.get(row.profile or "")
    if not profiles or not _is_of_one_device(row) or (row.instance and now is None):
        return []
    device = _measure_device(profiles, now)
    for profile in sorted(profiles.values(), key=lambda p: (p.compute, p.size)):
        if profile.compute >= device.compute or profile.name.endswith("+me"):
            continue
        words = _fit_profile(row, need, profile, device, settings)
        if words is not None:
            return [("mig_profile", 1 - profile.compute / device.compute, words)]
    return []


def _is_of_one_device(row: WorkloadUse) -> bool:
    """Return whether the pods have one device each, of one kind, and its SM activity is known."""
    return bool(row.pod_gpus == 1 and row.kinds == 1 and row.sm_peak is not None)


def _measure_device(profiles: Mapping[str, mig.Profile], now: mig.Profile | None) -> DeviceSlices:
    """Return the slices of the instance `now`; None = those of a whole GPU."""
    if now is not None:
        return DeviceSlices(now.compute, now.size, 1.0)
    compute = max(profile.compute for profile in profiles.values())
    memory = max(profile.size for profile in profiles.values())
    return DeviceSlices(compute, memory, get_limit("slice_memory"))


def _fit_profile(
    row: WorkloadUse,
    need: float,
    profile: mig.Profile,
    device: DeviceSlices,
    settings: SizingSettings,
) -> dict[str, Any] | None:
    """Return the activity of the busiest hour on an instance; None = it would not hold it."""
    if row.memory_bytes is None or row.sm_peak is None:
        return None
    memory = row.memory_bytes * profile.size / device.memory * device.usable_memory
    sm_peak = row.sm_peak * device.compute / profile.compute
    dram_peak = (row.dram_peak or 0) * device.memory / profile.size
    if memory >= need and sm_peak <= settings.target and dram_peak <= get_limit("dram_ceiling"):
        return {"profile": profile.name, "sm_peak": sm_peak, "dram_peak": dram_peak}
    return None


def _find_model(
    row: WorkloadUse, need: float, prices: Mapping[str, float], settings: SizingSettings
) -> list[Option]:
    """Return the cheapest model of this site that would do the same work at the same speed."""
    here, paid = read_gpu_peaks().get(row.model or ""), prices.get(row.model or "")
    if here is None or not paid or row.instance or row.kinds != 1:
        return []
    linked = row.pod_gpus > 1
    gib = {m.gpu_model: m.memory_gib for m in read_gpu_models()}
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


def _can_keep_pace(
    row: WorkloadUse, here: GpuPeaks, there: GpuPeaks, settings: SizingSettings
) -> bool:
    """Return whether the busiest hour is within the rates of another model."""
    if row.sm_peak is None or row.dram_peak is None:
        return False
    tensor = here.tensor_tflops / there.tensor_tflops
    plain = here.fp32_tflops / there.fp32_tflops
    return bool(
        row.sm_peak * max(tensor, plain) <= settings.target
        and row.dram_peak * here.memory_gbs / there.memory_gbs <= get_limit("dram_ceiling")
    )


def _count_sharers(row: WorkloadUse, need: float, settings: SizingSettings) -> list[Option]:
    """Return how many such pods one device can hold, where it has no MIG instances."""
    if row.pod_gpus != 1 or row.instance or row.act_peak is None or row.memory_bytes is None:
        return []
    by_time = settings.target / max(row.act_peak, 1 / MOST_SHARERS)
    sharers = int(min(by_time, row.memory_bytes / need, MOST_SHARERS))
    if sharers < 2:  # noqa: PLR2004
        return []
    return [("share_gpu", 1 - 1 / sharers, {"sharers": sharers})]
