"""Settings of service levels and of scaling: which metrics measure them, and their targets."""

from datetime import timedelta
from typing import Literal

from pydantic import Field

from fallow.settings.groups import Duration, SettingsGroup

METRIC_NAME = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"


class LatencyMetric(SettingsGroup):
    """A latency of the site's own servers, as its Prometheus knows it."""

    name: str = Field(pattern=METRIC_NAME, description="without _bucket, _sum or _count")
    measure: str = Field(min_length=1, description="e2e, ttft, itl, or a name of the site's own")
    form: Literal["histogram", "mean"] = Field("histogram", description="histogram | mean")
    scale: float = Field(1.0, gt=0, le=1, description="seconds per unit: 0.001 = milliseconds")
    count: str = Field("", description="of a mean: the counter of requests; empty = <name>_count")
    namespace_label: str = "namespace"
    pod_label: str = "pod"
    matchers: str = Field("", description='more matchers: reporter="destination"')


class StepMetric(SettingsGroup):
    """A metric of the site's own training loops, as its Prometheus knows it."""

    name: str = Field(pattern=METRIC_NAME)
    column: Literal[
        "steps_per_s",
        "work_per_s",
        "job_work_per_s",
        "world_size",
        "allocated_bytes",
        "reserved_bytes",
    ] = Field(description="what it tells (step_sample of fallow/tables.csv)")
    form: Literal["gauge", "counter", "seconds", "histogram"] = Field(
        "gauge", description="seconds: a gauge of the time that one step takes"
    )
    scale: float = Field(1.0, gt=0, description="its unit over the column's")
    namespace_label: str = "namespace"
    pod_label: str = "pod"


class Objective(SettingsGroup):
    """A service level: a share of the requests is answered within some time."""

    metric: str = Field("e2e", min_length=1, description="e2e | ttft | itl | the site's own")
    within: Duration = Field(gt=timedelta(0), description="such as 2s or 300ms")
    target: float = Field(0.95, ge=0.5, lt=1, description="least share of the requests")
    namespace: str = Field("", description="empty = any")
    workload: str = Field("", description="empty = any")


class ServicesSettings(SettingsGroup):
    """Service levels of inference, and what they let go (docs/analyzers/services.md)."""

    objectives: list[Objective] = Field(
        default_factory=list, description="metric, within, target, namespace, workload"
    )
    least_requests: int = Field(
        100, ge=1, le=10_000_000, description="observations before a level is judged"
    )
    burn: float = Field(
        0.5, gt=0, lt=1, description="most of the error budget that a service with room has burned"
    )
    busiest: float = Field(
        0.7, gt=0, le=1, description="activity that the replicas left may reach in the busiest hour"
    )
    spare: int = Field(1, ge=0, le=100, description="replicas kept above that")


class ScalingSettings(SettingsGroup):
    """How much a distributed job loses by its size (docs/analyzers/scaling.md)."""

    least_hours: int = Field(
        4, ge=1, le=168, description="whole hours of a size before it is enough"
    )
    efficiency: float = Field(
        0.8, gt=0, le=1, description="throughput per GPU over that of the smallest size: below is"
    )
