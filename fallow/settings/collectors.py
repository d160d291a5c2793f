"""Settings of collectors: where samples and the inventory come from."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import ByteSize, Field, SecretStr

from fallow.settings.groups import Duration, SettingsGroup
from fallow.settings.service_levels import METRIC_NAME, LatencyMetric, StepMetric


class PrometheusSettings(SettingsGroup):
    """A Prometheus, Thanos, Mimir, VictoriaMetrics or AMP endpoint."""

    url: str = Field("", description="base URL, without /api/v1")
    step: Duration = Field(timedelta(seconds=60), description="resolution of range queries")
    chunk: Duration = Field(timedelta(hours=6), description="longest range of one query")
    backfill: bool = Field(True, description="fallow up reads history by itself, newest first")
    history: Duration = Field(
        timedelta(days=30), le=timedelta(days=400), description="how much of it"
    )
    timeout: Duration = Field(timedelta(seconds=60), description="of one query")
    retries: int = Field(4, ge=0, description="of one query, with exponential back-off")
    query_budget: int = Field(20_000, ge=1, description="most queries in one run")
    body_size_limit: ByteSize = Field(
        ByteSize(256 * 1024**2),
        description="most bytes of one answer after decompression; a larger one is asked in parts",
    )
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="such as X-Scope-OrgID")
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
        "namespace/pod=http://host:port/metrics; with namespace/*= its series name the pods",
    )
    progress_metrics: list[Annotated[str, Field(pattern=METRIC_NAME)]] = Field(
        default_factory=list,
        description="what trainers say of their progress, beside progress_metrics.csv",
    )
    interval: Duration = Field(timedelta(seconds=30), description="scrape interval")
    timeout: Duration = Field(timedelta(seconds=10), description="of one target")
    concurrency: int = Field(64, ge=1, description="connections at once")
    body_size_limit: ByteSize = Field(
        ByteSize(64 * 1024**2),
        description="most bytes of one answer after decompression; a node of 16 GPUs has 0.2 MB",
    )
    sample_limit: int = Field(
        50_000, ge=0, description="most samples of one scrape, else it is refused whole; 0 = any"
    )
    label_limit: int = Field(
        64, ge=0, description="most labels of one sample, else the scrape is refused; 0 = any"
    )
    label_value_length_limit: int = Field(
        4096, ge=0, description="most bytes of a label's value, else it is refused; 0 = any"
    )
    bearer_token: SecretStr = Field(SecretStr(""), description="sent to exporters.targets alone")
    trainer_token: SecretStr = Field(
        SecretStr(""), description="sent to exporters.trainers: their jobs' users can read it"
    )


class KubernetesSettings(SettingsGroup):
    """API access; with neither context nor in-cluster account, kube-state-metrics serves."""

    enabled: bool = False
    transport: str = Field("kubeconfig", description="what opens it for commands that act")
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
