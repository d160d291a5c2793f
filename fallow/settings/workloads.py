"""Settings of workloads: size, spot, precision and topology."""

from datetime import timedelta

from pydantic import Field

from fallow.settings.groups import Duration, SettingsGroup


class SizingSettings(SettingsGroup):
    """When a workload uses too little of what it holds.

    Source: telemetry-and-waste.md#signals and #use-below-the-allocation.
    """

    least_gpu_hours: float = Field(
        24.0, ge=0, description="GPU-hours at work before a workload is judged"
    )
    low_duty: float = Field(
        0.30, ge=0, le=1, description="activity in its working hours below which it is seldom busy"
    )
    low_depth: float = Field(
        0.25, ge=0, le=1, description="SM activity of a busy engine below which kernels are small"
    )
    target: float = Field(
        0.80, gt=0, le=1, description="use of the busiest hour that a smaller device may reach"
    )
    memory_headroom: float = Field(
        0.15, ge=0, le=4, description="spare share above the most memory seen"
    )
    cheaper_ratio: float = Field(
        0.75, gt=0, le=1, description="price of another model over this one's, worth the change"
    )
    throttled: float = Field(
        0.20, ge=0, le=1, description="share of CFS periods throttled that starves a GPU"
    )


class SpotSettings(SettingsGroup):
    """When work is advised to run on spot capacity (telemetry-and-waste.md#spot)."""

    min_discount: float = Field(
        0.20, ge=0, lt=1, description="a spot price less than this below list is no real discount"
    )
    min_saving: float = Field(
        0.10, ge=0, lt=1, description="least share of a workload's cost, after interruptions"
    )
    min_gpu_hours: float = Field(8.0, ge=0, description="workloads that used less are left alone")
    restart: Duration = Field(
        timedelta(minutes=15),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="from an interruption until work goes on",
    )
    assumed_mtbf: Duration = Field(
        timedelta(hours=24),
        gt=timedelta(0),
        description="life of a spot node where only published bands tell: GPUs go sooner",
    )
    survivors: float = Field(
        0.5, ge=0, le=1, description="part of a service's replicas that outlives the worst zone"
    )
    burst_bps: float = Field(
        20e6, gt=0, description="bytes per second from which writing may be a checkpoint"
    )
    wait: Duration = Field(
        timedelta(hours=1),
        gt=timedelta(0),
        description="until spot is there again, for work with a deadline",
    )


class PrecisionSettings(SettingsGroup):
    """When fewer bits would do (telemetry-and-waste.md#signals and #precision)."""

    least_gpu_hours: float = Field(
        24.0, ge=0, description="GPU-hours at work before a workload is judged"
    )
    sm: float = Field(0.50, ge=0, le=1, description="SM activity from which it computes")
    fp32_active: float = Field(
        0.20, ge=0, le=1, description="FP32 pipe activity from which it computes in FP32"
    )
    tensor_asleep: float = Field(
        0.02, ge=0, le=1, description="tensor activity below which the tensor cores are idle"
    )
    tensor_busy: float = Field(
        0.30, ge=0, le=1, description="tensor activity above which FP8 is worth a try"
    )
    memory_bound: float = Field(
        0.50, ge=0, le=1, description="DRAM activity from which a server waits for memory"
    )
    waiting_tensor: float = Field(
        0.15, ge=0, le=1, description="tensor activity below which it waits, and does not compute"
    )
    fragmented: float = Field(
        0.30, gt=0, lt=1, description="share of reserved memory not in tensors, worth a setting"
    )


class TopologySettings(SettingsGroup):
    """When a job lies too wide (telemetry-and-waste.md#topology)."""

    least_gpu_hours: float = Field(
        24.0, ge=0, description="GPU-hours of one placement before it is judged"
    )
    score: float = Field(
        0.5, gt=0, le=1, description="bandwidth now over that of the nearest place: below is wide"
    )
    talk_gbs: float = Field(
        0.1,
        ge=0,
        description="GB/s per pod (or over PCIe per GPU) from which its ranks communicate",
    )
