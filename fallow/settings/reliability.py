"""Settings of reliability: stalled jobs, and sick devices and nodes."""

from datetime import timedelta

from pydantic import Field

from fallow.settings.groups import Duration, SettingsGroup


class StalledSettings(SettingsGroup):
    """When a job hangs (telemetry-and-waste.md#signals)."""

    min_duration: Duration = Field(
        timedelta(minutes=10),
        ge=timedelta(minutes=2),
        description="so long its ranks spin, or its progress stands still, before a job is stalled",
    )
    lookback: Duration = Field(
        timedelta(hours=6),
        ge=timedelta(minutes=30),
        description="lookback: a job's working level of power is of these hours",
    )


class ReliabilitySettings(SettingsGroup):
    """When devices and nodes are sick, and what recovery should take.

    Source: telemetry-and-waste.md#health.
    """

    slow_ratio: float = Field(
        0.90, gt=0, lt=1, description="a GPU whose clock is below this of its peers' is slow"
    )
    slow_hours: float = Field(4.0, ge=1, description="busy hours from which a clock is judged")
    recover: Duration = Field(
        timedelta(minutes=30), gt=timedelta(0), description="an outage that ends sooner is no waste"
    )
    write: Duration = Field(
        timedelta(minutes=2),
        gt=timedelta(0),
        description="writing a checkpoint, where its duration was not observed",
    )
    burst_bps: float = Field(
        20e6, gt=0, description="bytes per second from which writing may be a checkpoint"
    )
    repeats: int = Field(
        3, ge=2, description="pods whose application errors on one GPU within a day make it suspect"
    )
    min_gpu_hours: float = Field(1.0, ge=0, description="less lost work is no finding")
