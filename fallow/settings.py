"""Define the settings: defaults < `fallow.yaml` < `FALLOW_*` < flags. Unknown keys are errors.

Every field has its unit and the reason for its default. `load()` returns the settings in force
together with the source of each value (`fallow config show`).
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import msgspec
import yaml
from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from fallow.action_settings import ActionsSettings, NoticesSettings
from fallow.dashboard_settings import DashboardSettings, FinanceSettings
from fallow.errors import SettingsError
from fallow.renamed import read_renames
from fallow.report_settings import ReportsSettings
from fallow.service_levels import (
    METRIC_NAME,
    LatencyMetric,
    ScalingSettings,
    ServicesSettings,
    StepMetric,
)
from fallow.settings_groups import S3, Duration, SettingsGroup, TimeZone
from fallow.snapshot_settings import SnapshotSettings
from fallow.window import format_duration

RENAMED_SETTINGS = read_renames("setting")
"""Settings of before 0.1.0 by their old names, with their new names."""
ENV_PREFIX = "FALLOW_"
ENV_NESTING = "__"


class WarehouseSettings(SettingsGroup):
    """Where rows live and for how long."""

    catalog: str = Field(
        "", description="empty = SQLite under home; postgres:... = PostgreSQL, several writers"
    )
    data: str = Field("", description="Parquet folder or s3:// prefix; empty = under home")
    cold: str = Field("", description="cold tier: folder or s3:// prefix; empty = under home")
    s3: S3 = S3()
    raw_days: int = Field(7, ge=1, description="days of raw samples kept hot, then archived cold")
    warm_days: int = Field(60, ge=1, description="days of 5-minute rollups kept, then hourly cold")
    threads: int = Field(0, ge=0, description="engine threads; 0 = all cores")
    memory_limit: str = Field("", description="engine memory such as 2GB; empty = 80 % of RAM")
    future_tolerance: Duration = Field(
        timedelta(minutes=2), description="rows later than now plus this are refused"
    )


class PrometheusSettings(SettingsGroup):
    """A Prometheus, Thanos, Mimir, VictoriaMetrics or AMP endpoint."""

    url: str = Field("", description="base URL, without /api/v1")
    step: Duration = Field(timedelta(seconds=60), description="resolution of range queries")
    chunk: Duration = Field(timedelta(hours=6), description="longest range of one query")
    timeout: Duration = Field(timedelta(seconds=60), description="of one query")
    retries: int = Field(4, ge=0, description="of one query, with exponential back-off")
    query_budget: int = Field(20_000, ge=1, description="most queries in one run")
    headers: dict[str, str] = Field(default_factory=dict, description="such as X-Scope-OrgID")
    username: str = ""
    password: SecretStr = SecretStr("")
    bearer_token: SecretStr = SecretStr("")
    verify_tls: bool = True
    ca_file: str = ""
    selector: str = Field("", description='extra matchers for every query: cluster="a"')
    latency_metrics: list[LatencyMetric] = Field(
        default_factory=list, description="more than service_metrics.csv: name, measure, scale ..."
    )
    step_metrics: list[StepMetric] = Field(
        default_factory=list, description="more than step_metrics.csv: name, column, form, scale"
    )
    progress_metrics: list[Annotated[str, Field(pattern=METRIC_NAME)]] = Field(
        default_factory=list,
        description="metrics that say how far a job is, beside progress_metrics.csv",
    )


class ExporterSettings(SettingsGroup):
    """Exporters scraped directly, without a Prometheus."""

    targets: list[str] = Field(default_factory=list, description="http://host:9400/metrics")
    trainers: list[str] = Field(
        default_factory=list,
        description="jobs' own exporters, which say how far these are: "
        "namespace/pod=http://host:port/metrics; without namespace/pod= its series name the pod",
    )
    progress_metrics: list[Annotated[str, Field(pattern=METRIC_NAME)]] = Field(
        default_factory=list,
        description="what trainers say of their progress, beside progress_metrics.csv",
    )
    interval: Duration = Field(timedelta(seconds=30), description="time between two looks")
    timeout: Duration = Field(timedelta(seconds=10), description="of one target")
    concurrency: int = Field(64, ge=1, description="connections at once")
    bearer_token: SecretStr = SecretStr("")


class KubernetesSettings(SettingsGroup):
    """API access; with neither context nor in-cluster account, kube-state-metrics serves."""

    enabled: bool = False
    context: str = Field("", description="kubeconfig context; empty = current or in-cluster")
    team_labels: list[str] = Field(
        default_factory=lambda: ["team", "app.kubernetes.io/part-of", "owner"],
        description="first label present on pod, then namespace, names the team",
    )
    page_size: int = Field(500, ge=1)
    timeout: Duration = Field(timedelta(seconds=30))


class JupyterSettings(SettingsGroup):
    """Notebook servers asked for kernels and terminals."""

    servers: list[str] = Field(default_factory=list, description="namespace/pod=http://host:8888/")
    token: SecretStr = SecretStr("")
    timeout: Duration = Field(timedelta(seconds=10))


class NvmlSettings(SettingsGroup):
    """The GPUs of the machine that Fallow itself runs on, without an exporter."""

    enabled: bool = False
    node: str = Field("", description="name of its node; empty = $NODE_NAME, else the host's name")
    interval: Duration = Field(timedelta(seconds=30), description="time between two samples")
    proc_root: Path = Field(Path("/proc"), description="the host's /proc, wherever it is mounted")
    pod_logs: Path = Field(
        Path("/var/log/pods"), description="the host's /var/log/pods: names of pods by uid"
    )


class OwnedServer(SettingsGroup):
    """A kind of server that the site owns: what its GPU-hour costs, amortised."""

    capex_usd: Decimal = Field(gt=0, description="price of one server")
    gpus: int = Field(gt=0, description="GPUs of one server")
    years: Decimal = Field(Decimal(4), gt=0, description="life")
    residual_usd: Decimal = Field(Decimal(0), ge=0, description="worth at the end of its life")
    availability: Decimal = Field(Decimal("0.97"), gt=0, le=1)
    kw: Decimal = Field(Decimal(0), ge=0, description="what one server draws")
    pue: Decimal = Field(Decimal("1.3"), ge=1, description="power usage effectiveness of the site")
    usd_per_kwh: Decimal = Field(Decimal("0.10"), ge=0)
    running_pct_per_year: Decimal = Field(
        Decimal(0), ge=0, description="support, space and staff in percent of capex"
    )
    gpu_model: str = Field("", description="empty = any")
    instance_type: str = Field("", description="empty = any")
    cluster: str = Field("", description="empty = any")


class ReservedCapacity(SettingsGroup):
    """A commitment: so many nodes at an effective price for a term."""

    name: str
    provider: str
    instance_type: str
    nodes: int = Field(gt=0)
    gpus_per_node: int = Field(gt=0)
    usd_per_node_hour: Decimal = Field(gt=0)
    start: AwareDatetime
    end: AwareDatetime
    region: str = ""
    gpu_model: str = ""


class PriceSettings(SettingsGroup):
    """Where prices come from; the first source that knows a node prices it."""

    usd_per_gpu_hour: Decimal | None = Field(
        None, gt=0, description="one price for every GPU, before any rate card"
    )
    by_model: dict[str, Decimal] = Field(
        default_factory=dict, description="USD per GPU-hour by model of gpu_models.csv"
    )
    rate_card: str = Field("", description="CSV that overrides the built-in rate card")
    region: str = Field("", description="region for nodes that name none")
    discount_pct: float = Field(0.0, ge=0, lt=100, description="negotiated discount on list")
    on_prem: list[OwnedServer] = Field(
        default_factory=list, description="servers the site owns: capex_usd, gpus, years, kw ..."
    )
    commitments: list[ReservedCapacity] = Field(
        default_factory=list, description="reserved capacity: name, nodes, usd_per_node_hour ..."
    )
    aws_regions: list[str] = Field(
        default_factory=list, description="regions whose list and spot prices AWS is asked for"
    )


class IdleSettings(SettingsGroup):
    """When a workload is idle (telemetry-and-waste.md#idle)."""

    threshold: float = Field(0.05, ge=0, le=1, description="activity at or below this is idle")
    exit_threshold: float = Field(0.10, ge=0, le=1, description="activity from here on ends a run")
    exit_samples: int = Field(2, ge=1, description="so many busy looks in a row end a run")
    min_duration: Duration = Field(timedelta(minutes=60), description="shorter runs are no finding")
    service_duration: Duration = Field(
        timedelta(hours=24),
        description="services are acted upon only after so long: they follow the day",
    )
    max_gap: Duration | None = Field(
        None, description="longest silence inside a run; unset = 3 intervals of the device"
    )
    coverage: float = Field(0.90, ge=0, le=1, description="least share of expected looks")
    startup_grace: Duration = Field(
        timedelta(minutes=15), description="younger pods are starting, not idle"
    )
    power_margin_w: float = Field(10.0, ge=0, description="above the learned idle power")
    host_cpu_cores: float = Field(
        0.3, ge=0, description="most cores that a pod at rest uses, without sidecars"
    )
    min_expected_rest: Duration | None = Field(
        timedelta(hours=4),
        description="no stop of what is probably wanted within so long; null = not asked",
    )
    history: Duration = Field(
        timedelta(days=30), description="how far back a workload's own rests count"
    )
    working_hours: tuple[int, int] = Field(
        (7, 19),
        description="first hour and the hour after the last, Monday to Friday, in which people "
        "come back to what they left: rests at other hours tell nothing of these",
    )
    time_zone: TimeZone = Field("UTC", description="whose clock tells working hours")

    @field_validator("working_hours")
    @classmethod
    def _in_order(cls, hours: tuple[int, int]) -> tuple[int, int]:
        first, last = hours
        if not 0 <= first < last <= 24:  # noqa: PLR2004  (a day's)
            raise ValueError("write two hours of a day in order, such as [7, 19]")
        return hours


class LedgerSettings(SettingsGroup):
    """How a second is named."""

    idle_threshold: float = Field(0.05, ge=0, le=1, description="activity at or below: idle")
    low_threshold: float = Field(0.30, ge=0, le=1, description="activity below: low")
    idle_stretch: Duration = Field(
        timedelta(minutes=30),
        description="shorter rests between active readings of a pod are low use, not idle",
    )
    startup: Duration = Field(
        timedelta(minutes=15), description="longest stretch before first work called startup"
    )
    max_lag: Duration = Field(
        timedelta(hours=6),
        description="a cluster further behind the newest one does not hold figures back",
    )


class FragmentationSettings(SettingsGroup):
    """When free GPUs count as lost, and what a defragmentation plan frees.

    Source: telemetry-and-waste.md#fragmentation-and-mig.
    """

    cover: float = Field(
        0.95, gt=0, le=1, description="part of the pods seen whose requests make the expected mix"
    )
    least_pods: int = Field(
        50, ge=1, description="from fewer pods a typical mix is assumed, and said so"
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
        0.02, ge=0, le=1, description="tensor activity below which the tensor cores sleep"
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
    cold_start_usd: Decimal | None = Field(
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
    reserved_ratio: float | None = Field(
        None, gt=0, lt=1, description="reserved price over on-demand, where none is known"
    )
    min_gpu_hours: float = Field(1.0, ge=0, description="less in the window is no finding")


class KnownChange(SettingsGroup):
    """A change that was planned: what it costs is no anomaly."""

    name: str = Field(min_length=1, description="team or namespace")
    start: AwareDatetime
    end: AwareDatetime


class AnomaliesSettings(SettingsGroup):
    """When spend or waste is out of the usual (telemetry-and-waste.md#anomalies)."""

    weeks: int = Field(
        8, ge=3, le=26, description="weeks before an hour that tell what is usual in it"
    )
    least_weeks: int = Field(
        3, ge=3, le=26, description="fewer of them seen: the hour is not judged"
    )
    spike: float = Field(
        3.5, ge=2, le=10, description="sigma from the median that make an hour stand out alone"
    )
    slack: float = Field(
        0.5, gt=0, le=5, description="of the CUSUM, in sigma: half the shift it is made for"
    )
    limit: float = Field(
        5.0, gt=0, le=50, description="of the CUSUM: at slack 0.5 one false alarm in 465 hours"
    )
    coverage: float = Field(
        0.9, gt=0, le=1, description="least share of the usual GPU-hours known; else not judged"
    )
    min_usd: Decimal = Field(
        Decimal(100), ge=0, description="a change of fewer dollars is no finding"
    )
    min_gpu_hours: float = Field(24.0, ge=0, description="likewise where not all of it has a price")
    min_share: float = Field(
        0.10, ge=0, le=10, description="least part of what was usual in the same hours"
    )
    known_changes: list[KnownChange] = Field(
        default_factory=list, description="planned changes, kept quiet: name, start, end"
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
        0.1, ge=0, description="GB/s per pod (or over PCIe per GPU) from which its ranks talk"
    )


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
        description="how far back it looks: a job's working level of power is of these hours",
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
        description="writing a checkpoint, where nobody saw how long it takes",
    )
    burst_bps: float = Field(
        20e6, gt=0, description="bytes per second from which writing may be a checkpoint"
    )
    repeats: int = Field(
        3, ge=2, description="pods whose application errors on one GPU within a day make it suspect"
    )
    min_gpu_hours: float = Field(1.0, ge=0, description="less lost work is no finding")


class StorageClass(SettingsGroup):
    """A class of storage with the site's own prices."""

    name: str = Field(min_length=1)
    usd_per_gib_month: Decimal = Field(ge=0)
    retrieval_usd_per_gib: Decimal = Field(Decimal(0), ge=0, description="of every read")
    write_usd_per_gib: Decimal = Field(Decimal(0), ge=0, description="requests and transfer, once")
    minimum_days: int = Field(0, ge=0, le=3650, description="paid also when it leaves sooner")
    instant: bool = Field(True, description="false = has to be restored before it is read")


class Dataset(SettingsGroup):
    """Data on a claim: its size and class, which no metric collected here tells."""

    name: str = Field(min_length=1)
    namespace: str = Field(min_length=1)
    claim: str = Field(min_length=1, description="PersistentVolumeClaim that pods mount")
    gib: Decimal = Field(gt=0)
    storage_class: str = Field(min_length=1, description="one of datapath.classes")
    stored_since: AwareDatetime | None = Field(
        None, description="unset = its minimum stay is taken to begin now"
    )


class DatapathSettings(SettingsGroup):
    """When work waits for data, and where data is kept too dear."""

    activity: float = Field(
        0.50, gt=0, le=1, description="GPU activity of an hour below which it may wait for data"
    )
    input_bps: float = Field(
        50e6, gt=0, description="bytes per second and GPU that come in while it waits"
    )
    least_hours: int = Field(4, ge=1, le=48, description="such hours before a workload is named")
    classes: list[StorageClass] = Field(
        default_factory=list, description="storage with prices: name, usd_per_gib_month ..."
    )
    datasets: list[Dataset] = Field(
        default_factory=list, description="name, namespace, claim, gib, storage_class"
    )
    horizon_days: int = Field(
        90, ge=7, le=3650, description="how long data stays; a move has to pay within it"
    )
    read_margin: float = Field(
        2.0, ge=1, le=100, description="reads may become so many times those seen"
    )
    least_days: int = Field(
        14, ge=1, le=400, description="days of window that tell how data is read"
    )
    coverage: float = Field(
        0.9, gt=0, le=1, description="least share of the readers' life that was watched"
    )
    min_saving_usd: Decimal = Field(Decimal(10), ge=0, description="per month; less is no finding")
    cache_usd_per_gib_month: Decimal | None = Field(
        None, ge=0, description="of local disk; unset = no cache is weighed"
    )


class ServiceSettings(SettingsGroup):
    """The schedules of `fallow up`, and where it answers."""

    collect_every: Duration = timedelta(seconds=60)
    inventory_every: Duration = timedelta(minutes=2)
    rollup_every: Duration = timedelta(minutes=5)
    analyze_every: Duration = timedelta(minutes=15)
    maintain_every: Duration = timedelta(hours=1)
    listen: str = Field(
        "127.0.0.1:9410", description="host:port of /metrics, /healthz, /readyz and /v1"
    )
    token: SecretStr = Field(
        SecretStr(""), description="what /v1 asks for; empty = /v1 answers on loopback only"
    )
    url: str = Field("", description="where pages find /v1; empty = http:// and service.listen")
    grace: Duration = Field(
        timedelta(minutes=10),
        ge=timedelta(0),
        description="a job that is later than three of its periods and this is not ready",
    )


class Settings(SettingsGroup):
    """Everything that may stand in `fallow.yaml`."""

    cluster: str = Field("default", min_length=1, description="name of the cluster")
    home: Path = Field(
        default_factory=lambda: (
            Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "fallow"
        ),
        description="folder of the embedded warehouse",
    )
    warehouse: WarehouseSettings = WarehouseSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    exporters: ExporterSettings = ExporterSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    jupyter: JupyterSettings = JupyterSettings()
    nvml: NvmlSettings = NvmlSettings()
    prices: PriceSettings = PriceSettings()
    idle: IdleSettings = IdleSettings()
    ledger: LedgerSettings = LedgerSettings()
    fragmentation: FragmentationSettings = FragmentationSettings()
    pools: PoolsSettings = PoolsSettings()
    quota: QuotaSettings = QuotaSettings()
    sizing: SizingSettings = SizingSettings()
    spot: SpotSettings = SpotSettings()
    precision: PrecisionSettings = PrecisionSettings()
    demand: DemandSettings = DemandSettings()
    anomalies: AnomaliesSettings = AnomaliesSettings()
    topology: TopologySettings = TopologySettings()
    stalled: StalledSettings = StalledSettings()
    reliability: ReliabilitySettings = ReliabilitySettings()
    datapath: DatapathSettings = DatapathSettings()
    services: ServicesSettings = ServicesSettings()
    scaling: ScalingSettings = ScalingSettings()
    service: ServiceSettings = ServiceSettings()
    actions: ActionsSettings = ActionsSettings()
    notices: NoticesSettings = NoticesSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    dashboard: DashboardSettings = DashboardSettings()
    finance: FinanceSettings = FinanceSettings()
    reports: ReportsSettings = ReportsSettings()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """Refuse idle settings that call idle what the ledger calls low or startup."""
        if self.idle.threshold > self.ledger.idle_threshold:
            raise ValueError(
                f"idle.threshold {self.idle.threshold:g} is above ledger.idle_threshold "
                f"{self.ledger.idle_threshold:g}: raise both, the ledger would call it low"
            )
        if self.idle.startup_grace < self.ledger.startup:
            raise ValueError(
                f"idle.startup_grace {format_duration(self.idle.startup_grace.total_seconds())} is "
                f"shorter than ledger.startup "
                f"{format_duration(self.ledger.startup.total_seconds())}: raise it, a pod that "
                "starts is not idle"
            )
        return self

    @model_validator(mode="after")
    def _check_destinations(self) -> Self:
        """Refuse reports to destinations that do not exist."""
        channels, stores = set(self.notices.channels), set(self.reports.stores)
        if both := sorted(channels & stores):
            raise ValueError(f"reports.stores and notices.channels both have {', '.join(both)}")
        for schedule in self.reports.schedules:
            if unknown := sorted(set(schedule.to) - channels - stores):
                legal = ", ".join(sorted(channels | stores)) or "none is defined"
                raise ValueError(
                    f"reports.schedules: {schedule.name} goes to {', '.join(unknown)}; "
                    f"notices.channels and reports.stores have: {legal}"
                )
        return self


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force and, by dotted key, the source of each value."""

    settings: Settings
    origin: dict[str, str]


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Merge defaults, file, environment and flags (dotted keys), and validate.

    `file` defaults to `FALLOW_CONFIG`, else `./fallow.yaml` where it exists.

    Raises:
        SettingsError: an unknown key (the legal ones are named), or a value that is not legal.
    """
    environ = os.environ if environ is None else environ
    layers: list[tuple[str, dict[str, Any]]] = []
    path = file or (Path(environ["FALLOW_CONFIG"]) if environ.get("FALLOW_CONFIG") else None)
    if path is None and Path("fallow.yaml").is_file():
        path = Path("fallow.yaml")
    if path is not None:
        layers.append((str(path), _read_file(path)))
    for key, value in sorted(environ.items()):
        if key.startswith(ENV_PREFIX) and key not in _RESERVED:
            dotted = key.removeprefix(ENV_PREFIX).lower().replace(ENV_NESTING, ".")
            layers.append((key, _nest(dotted, _scalar(value))))
    for dotted, value in (flags or {}).items():
        if value is not None:
            flag = "--" + dotted.rpartition(".")[2].replace("_", "-")
            layers.append((flag, _nest(dotted, value)))
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for where, layer in layers:
        _merge(merged, layer)
        origin.update(dict.fromkeys(_leaves(layer), where))
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise _explain(error, origin) from error
    everything = dict.fromkeys(_leaves(settings.model_dump()), "default")
    return Loaded(settings, {**everything, **origin})


_RESERVED = {"FALLOW_CONFIG", "FALLOW_DEBUG"}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the settings file {path}: {error}") from error
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise SettingsError(f"{path} is not YAML: {line}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(f"{path} holds a {type(data).__name__}, not a mapping of settings")
    return data


def _scalar(text: str) -> object:
    if text[:1] in "[{":
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return text


def _nest(dotted: str, value: object) -> dict[str, Any]:
    head, _, rest = dotted.partition(".")
    return {head: _nest(rest, value) if rest else value}


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _leaves(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    out: list[str] = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            out += _leaves(value, f"{prefix}{key}.")
        else:
            out.append(f"{prefix}{key}")
    return out


def _explain(error: ValidationError, origin: Mapping[str, str]) -> SettingsError:
    first = error.errors()[0]
    path = [str(p) for p in first["loc"]]
    dotted = ".".join(path)
    near = (
        w
        for k, w in origin.items()
        if f"{k}.".startswith(f"{dotted}.") or dotted.startswith(f"{k}.")
    )
    where = next(near, None)
    stands = f" (from {where})" if where else ""
    if first["type"] == "extra_forbidden" and dotted in RENAMED_SETTINGS:
        return SettingsError(
            f"setting {dotted!r}{stands} is called {RENAMED_SETTINGS[dotted]} since 0.1.0"
        )
    if first["type"] == "extra_forbidden":
        legal = sorted(_section(path[:-1]).model_fields)
        return SettingsError(
            f"unknown setting {dotted!r}{stands}", hint=f"legal here: {', '.join(legal)}"
        )
    message = first["msg"].removeprefix("Value error, ")
    if not path:  # it is about a combination of groups, and names them
        return SettingsError(message)
    return SettingsError(f"setting {dotted!r}{stands}: {message}", hint=_legal_range(path))


_BOUNDS = (("ge", "from"), ("gt", "above"), ("le", "up to"), ("lt", "below"))


def _legal_range(path: list[str]) -> str | None:
    """Return both ends of the legal range of a setting, where it has any."""
    field = _section(path[:-1]).model_fields.get(path[-1]) if path else None
    ends = []
    for name, word in _BOUNDS:
        for bound in field.metadata if field else ():
            end = getattr(bound, name, None)
            if end is not None:
                length = isinstance(end, timedelta)
                ends.append(f"{word} {format_duration(end.total_seconds()) if length else end}")
    return f"legal: {' '.join(ends)}" if ends else None


def _section(path: list[str]) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for name in path:
        if name not in model.model_fields:  # an index of a list
            continue
        annotation = model.model_fields[name].annotation
        for kind in (annotation, *get_args(annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return model
