"""Find the pipe or the memory that a workload waits for, and the formats that relieve it."""

from typing import Literal

import msgspec

from analyzers.gpu_peaks import GpuPeaks, read_gpu_peaks
from analyzers.precision.gains import (
    FormatGain,
    compute_pipe_gain,
    compute_weight_gain,
    list_formats,
)
from analyzers.precision.rows import WorkloadPipes
from capacity.workload_kinds import is_gang, is_interactive
from fallow.gpu_models import read_gpu_models
from fallow.settings.workloads import PrecisionSettings

Kind = Literal["fp32_asleep", "low_bit_weights", "fp8"]


class Bottleneck(msgspec.Struct, frozen=True):
    """What a workload waits for, and the gains of formats, the most cautious format first."""

    pipes: WorkloadPipes
    kind: Kind
    peaks: GpuPeaks
    gains: list[FormatGain]


def find_bottleneck(row: WorkloadPipes, settings: PrecisionSettings) -> Bottleneck | None:
    """Return the bottleneck that a smaller format relieves; None = there is none, or unknown."""
    peaks, arch = read_gpu_peaks().get(row.model or ""), read_archs().get(row.model or "")
    if peaks is None or arch is None or row.tensor is None or row.sm is None:
        return None
    kind = _classify(row, row.tensor, row.sm, settings)
    if kind is None:
        return None
    gains = _compute_gains(row, kind, peaks, arch)
    real = [gain for gain in gains if gain is not None and gain.shares[0] > 0]
    return Bottleneck(row, kind, peaks, real) if real else None


def is_tensor_idle(tensor: float, sm: float, settings: PrecisionSettings) -> bool:
    """Return whether tensor cores are unused while the SMs work."""
    return tensor < settings.tensor_asleep and sm >= settings.sm


def read_archs() -> dict[str, str]:
    """Return the architecture of each NVIDIA model."""
    return {m.gpu_model: m.arch for m in read_gpu_models() if m.vendor == "nvidia"}


def _classify(
    row: WorkloadPipes, tensor: float, sm: float, settings: PrecisionSettings
) -> Kind | None:
    """Return which kind of finding the counters of a workload point to; None = no kind."""
    fp32 = row.fp32
    computes_fp32 = fp32 is not None and fp32 >= settings.fp32_active
    if computes_fp32 and is_tensor_idle(tensor, sm, settings):
        return "fp32_asleep"
    waits = (row.dram or 0) >= settings.memory_bound and tensor < settings.waiting_tensor
    if waits and _is_server(row.workload_kind):
        return "low_bit_weights"
    return "fp8" if tensor > settings.tensor_busy else None


def _compute_gains(
    row: WorkloadPipes, kind: Kind, peaks: GpuPeaks, arch: str
) -> list[FormatGain | None]:
    """Return the gain of each format of a kind on this architecture; None = no gain."""
    formats = list_formats(kind, arch)
    if kind == "low_bit_weights":
        return [compute_weight_gain(number_format) for number_format in formats]
    active, now = (
        (row.fp32, peaks.fp32_tflops)
        if kind == "fp32_asleep"
        else (row.tensor, peaks.tensor_tflops)
    )
    return [
        compute_pipe_gain(active or 0.0, row.sm or 0.0, row.dram, now, peaks, number_format)
        for number_format in formats
    ]


def _is_server(workload_kind: str) -> bool:
    return not is_gang(workload_kind) and not is_interactive(workload_kind)
