"""Settings of capacity: fragmentation, node pools, quota and demand."""

from datetime import date, timedelta

from pydantic import Field

from fallow.settings.groups import Duration, SettingsGroup
from fallow.settings.prices import Usd


class FragmentationSettings(SettingsGroup):
    """When free GPUs count as lost, and what a defragmentation plan frees.

    Source: telemetry-and-waste.md#fragmentation-and-mig.
    """

    cover: float = Field(
        0.95, gt=0, le=1, description="part of the observed pods that the expected mix is made of"
    )
    least_pods: int = Field(
        50, ge=1, description="from fewer pods a typical mix is assumed, and the finding names it"
    )
    min_gpus: float = Field(
        0.25, ge=0, description="pools that lose fewer GPUs on average are no finding"
    )
    slot_gpus: int = Field(8, ge=1, le=64, description="free GPUs of one node that make a slot")
    slots: int = Field(
        1, ge=1, le=1000, description="whole slots that the plan frees; more where more pods wait"
    )
    move_kinds: list[str] = Field(
        default_factory=list,
        description="kinds of owners whose pods may move too, such as Job where all checkpoint",
    )
    plan_seconds: float = Field(5.0, gt=0, le=600, description="longest search for a pool's plan")


class PoolsSettings(SettingsGroup):
    """When a node pool has the wrong size or shape (telemetry-and-waste.md#node-pools)."""

    quantile: float = Field(
        1.0, ge=0.5, le=1, description="part of the time that a pool must suffice; 1 = the peak"
    )
    headroom: float = Field(0.0, ge=0, le=1, description="spare share of pods above that")
    min_saving: float = Field(
        0.10, ge=0, le=1, description="least share of a pool's bill worth a change"
    )
    empty_after: Duration = Field(
        timedelta(minutes=30), description="shorter stretches without work are an autoscaler's own"
    )
    max_pods: int = Field(110, ge=1, le=1000, description="pods per node (kubelet's default)")
    daemon_cpu_milli: int = Field(
        1000, ge=0, description="DaemonSets per node, where the inventory shows none"
    )
    daemon_memory_mib: int = Field(2048, ge=0, description="likewise")
    daemon_pods: int = Field(8, ge=0, description="likewise")


class QuotaSettings(SettingsGroup):
    """When quota is wasted, and who may be asked to give some.

    Source: telemetry-and-waste.md#queues-and-quota.
    """

    history_days: int = Field(
        90, ge=7, le=400, description="how far back a donor of quota is judged"
    )
    least_history_days: int = Field(
        14, ge=7, le=200, description="days known before the first step of a back-test"
    )
    step_days: int = Field(1, ge=1, le=28, description="days between two steps of a back-test")
    max_missed_demand: float = Field(
        0.01, ge=0, le=0.5, description="most of a donor's demand that its history may have missed"
    )
    max_step: float = Field(
        0.25, gt=0, le=1, description="most of a guarantee that is given at once"
    )
    floor_gpus: float = Field(1.0, ge=0, description="GPUs that a donor keeps above its need")
    min_gpu_hours: float = Field(1.0, ge=0, description="less in the window is no finding")
    min_gpus: float = Field(
        0.25, ge=0, description="fewer GPUs promised or pooled in vain are no finding"
    )
    pool_quantile: float = Field(
        0.99, ge=0.5, le=1, description="part of the time that quotas, or a pool, must suffice"
    )


class DemandSettings(SettingsGroup):
    """What is kept ready, reserved and forecast (telemetry-and-waste.md#demand-and-head-room)."""

    history_days: int = Field(42, ge=7, le=400, description="how far back demand is read")
    least_days: int = Field(7, ge=1, le=100, description="days of demand before any advice")
    least_skill: float = Field(
        0.10, ge=0, lt=1, description="how much better than seasonal-naive a forecast must be"
    )
    most_queues: int = Field(40, ge=1, le=1000, description="queues forecast, the largest first")
    lead: Duration = Field(
        timedelta(minutes=10),
        ge=timedelta(minutes=1),
        le=timedelta(hours=6),
        description="from a request until a new node serves it",
    )
    cold_start_usd: Usd | None = Field(
        None, gt=0, description="what it costs that one GPU is not ready; unset = service_level"
    )
    hold: Duration = Field(
        timedelta(hours=1),
        ge=timedelta(minutes=1),
        le=timedelta(hours=24),
        description="how long a GPU is kept ready before it is judged again",
    )
    service_level: float = Field(
        0.90, gt=0, lt=1, description="part of the stretches to serve, where no cost is set"
    )
    quarter_quantile: float = Field(
        0.95, gt=0.5, lt=1, description="part of the next quarter's hours whose demand is to fit"
    )
    holidays: list[date] = Field(
        default_factory=list, description="days without usual work, past and coming, as 2026-12-25"
    )
    wait_targets: list[Duration] = Field(
        default_factory=lambda: [timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2)],
        description="most that 19 of 20 requests are to wait: what each takes is computed",
    )
    reserved_ratio: float | None = Field(
        None, gt=0, lt=1, description="reserved price over on-demand, where none is known"
    )
    min_gpu_hours: float = Field(1.0, ge=0, description="less in the window is no finding")
