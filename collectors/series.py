"""Resolve a metric and its labels: names of every vendor and generation to one vocabulary.

    resolve(metric, labels) -> Series    which column of which table, which device, which pod

The names are data: `metrics.csv` (metric to column, scale and legal range) and `labels.csv`
(label to meaning). Sources: reference domain dossier 1.1-1.8; NVML header for clock events.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache

import msgspec

from fallow.addresses import LOOPBACK_HOSTS
from fallow.gpu_models import get_least_power_w
from fallow.resources import read_table

EXPORTER_CONTAINERS = frozenset(
    {
        "exporter",
        "dcgm-exporter",
        "nvidia-dcgm-exporter",
        "npu-exporter",
        "vgpu-monitor",
        "metrics-exporter-container",
        "device-metrics-exporter",
    }
)
_EXPORTER_POD = re.compile(
    r"(^|-)(dcgm|npu|gpu|metrics|nvml)-exporter(-|$)|^hami-(device-plugin|scheduler|ascend)"
)
_REPLICA = re.compile(r"::\d+$")  # GPU-<uuid>::3, a time-slicing replica of a device plugin
_VENDORS = (("nvidia", "nvidia"), ("ascend", "ascend"), ("amd", "amd"))
# Values that dcgm-exporter prints per pod (sums over its processes) once pods share a device;
# every other field of such a series is a copy of the device's value (domain dossier 1.1).
_PER_POD = frozenset({"gpu_util_pct", "mem_used_bytes"})


class MetricMapping(msgspec.Struct, frozen=True):
    """The column of a metric's values. `low` and `high` bound the value after scaling."""

    table: str
    column: str
    scale: float
    low: float
    high: float
    integer: bool
    vendor: str
    combine: str
    spill: bool = False
    """A per-pod value that is used for the device where no device-level series exists."""


class Identity(msgspec.Struct, frozen=True):
    """The device and its pod: None means that the labels do not name it."""

    device: str
    node: str | None = None
    parent: str | None = None
    vendor: str | None = None
    model: str | None = None
    profile: str | None = None
    gpu_index: int | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    shared: bool = False
    """The series is one of several per-pod copies."""
    target: str | None = None
    """The address at which its exporter was scraped."""


class Series(msgspec.Struct, frozen=True):
    """One metric of one device (and one pod, where the labels name one)."""

    measure: MetricMapping
    identity: Identity
    bits: int = 0
    """For event counts: the bits that any count sets (0 = the value is the value)."""

    @property
    def table(self) -> str:
        """`sample` or `holding`."""
        return self.measure.table

    @property
    def column(self) -> str:
        """Column of that table."""
        return self.measure.column

    @property
    def scale(self) -> float:
        """Factor to the canonical unit."""
        return self.measure.scale

    @property
    def low(self) -> float:
        """Least legal value, scaled."""
        return self.measure.low

    @property
    def high(self) -> float:
        """Greatest legal value, scaled; every blank sentinel lies above."""
        return self.measure.high

    @property
    def integer(self) -> bool:
        """Whether the source prints whole numbers."""
        return self.measure.integer

    @property
    def device(self) -> str:
        """Identity of the device: UUID, `<UUID>/gi<N>`, or `<node>/gpu<index>`."""
        return self.identity.device

    @property
    def node(self) -> str | None:
        """Node name."""
        return self.identity.node

    @property
    def parent(self) -> str | None:
        """UUID of the physical GPU of an instance."""
        return self.identity.parent

    @property
    def vendor(self) -> str:
        """Vendor of the device where known, else of the metric."""
        return self.identity.vendor or self.measure.vendor

    @property
    def model(self) -> str | None:
        """Model as the driver prints it."""
        return self.identity.model

    @property
    def profile(self) -> str | None:
        """MIG profile."""
        return self.identity.profile

    @property
    def gpu_index(self) -> int | None:
        """Index on the node."""
        return self.identity.gpu_index

    @property
    def namespace(self) -> str | None:
        """Namespace of the pod that holds the device."""
        return self.identity.namespace

    @property
    def pod(self) -> str | None:
        """Pod that holds the device; None = unattributed."""
        return self.identity.pod

    @property
    def container(self) -> str | None:
        """Container that holds the device."""
        return self.identity.container


def resolve(metric: str, labels: Mapping[str, str]) -> Series | None:
    """Return what one series means, or None where the metric or its device is unknown.

    Callers cache the result by the series' label text.
    """
    measure = measure_of(metric)
    if measure is None:
        return None
    identity = identify(labels)
    if identity is None:
        return None
    return combine(measure, identity, labels)


def combine(measure: MetricMapping, identity: Identity, labels: Mapping[str, str]) -> Series | None:
    """Join a metric's meaning with a label set's; None where the value must not be used."""
    bits = 0
    if measure.column == "power_w":
        measure = _bound_power(measure, identity.model)
    if measure.vendor == "nvidia":
        if measure.combine == "or" and "clock_event" in labels:
            bits = read_clock_events().get(labels["clock_event"], 0)
            if not bits:
                return None
        if identity.shared and measure.column in _PER_POD and identity.pod is not None:
            measure = _read_per_pod(measure)
    elif measure.vendor == "hami" and measure.table == "sample" and identity.pod is not None:
        identity = msgspec.structs.replace(identity, shared=True)
    elif measure.vendor == "amd" and labels.get("gpu_partition_id", "0") not in {"", "0"}:
        # Only partition 0 reports activity; the others report 0 or nothing (domain dossier 1.8).
        return None
    return Series(measure, identity, bits)


@lru_cache(maxsize=256)
def _bound_power(measure: MetricMapping, model: str | None) -> MetricMapping:
    return msgspec.structs.replace(measure, low=max(measure.low, get_least_power_w(model)))


@cache
def _read_per_pod(measure: MetricMapping) -> MetricMapping:
    return msgspec.structs.replace(measure, table="holding", spill=True)


@lru_cache(maxsize=8192)
def measure_of(metric: str) -> MetricMapping | None:
    """Return where a metric's values go; AMD names may carry a prefix or be upper case."""
    by_name = read_metrics()
    # OpenMetrics appends _total to counters.
    for name in (metric, metric.removesuffix("_total")):
        if name in by_name:
            return by_name[name]
    lower = metric.lower().removeprefix("amd_")
    mapping = by_name.get(lower)
    return mapping if mapping is not None and mapping.vendor == "amd" else None


@cache
def read_metrics() -> dict[str, MetricMapping]:
    """Return every known metric name and its meaning."""
    return {
        row["metric"]: MetricMapping(
            row["table"],
            row["column"],
            float(row["scale"]),
            float(row["low"]),
            float(row["high"]),
            row["integer"] == "1",
            row["vendor"],
            row["combine"],
        )
        for row in _read_rows("metrics.csv")
    }


@cache
def list_labels_of(meaning: str) -> tuple[str, ...]:
    """Return the labels that have a meaning, best first."""
    return tuple(r["label"] for r in _read_rows("labels.csv") if r["meaning"] == meaning)


@cache
def read_clock_events() -> dict[str, int]:
    """Return the bit of each `clock_event` (NVML clocks event reasons)."""
    return {
        r["label"]: int(r["note"])
        for r in _read_rows("labels.csv")
        if r["meaning"] == "clock_event"
    }


@cache
def _read_rows(name: str) -> list[dict[str, str]]:
    return read_table("collectors", name)


def identify(labels: Mapping[str, str]) -> Identity | None:
    """Return the device and owner that a label set names; None without any device."""
    node = find_node(labels)
    index = _parse_integer(_find_first(labels, "index"))
    uuid = _find_uuid(labels)
    if uuid is not None:
        uuid = _REPLICA.sub("", uuid)
    elif index is not None and node is not None:
        uuid = f"{node}/gpu{index}"
    else:
        return None
    instance = _find_first(labels, "instance")
    namespace, pod, container = find_owner(labels)
    model, vendor = _find_model(labels)
    return Identity(
        device=uuid if instance is None else f"{uuid}/gi{instance}",
        node=node,
        parent=None if instance is None else uuid,
        vendor=vendor,
        model=model,
        profile=_find_first(labels, "profile"),
        gpu_index=index if index is not None and index < 32768 else None,  # noqa: PLR2004 (int16)
        namespace=namespace,
        pod=pod,
        container=container,
        shared=_find_first(labels, "share") is not None,
        target=labels.get("instance"),
    )


def _find_uuid(labels: Mapping[str, str]) -> str | None:
    """Return the first identity; zeros alone, as of AMD's virtual functions, are those of many."""
    values = (labels.get(label) for label in list_labels_of("device"))
    return next((uuid for uuid in values if uuid and uuid.strip("0-")), None)


def find_node(labels: Mapping[str, str]) -> str | None:
    """Return the node: a relabelled name, the exporter's host name, else the target's host.

    dcgm-exporter uses its own pod's name as host name unless it gets the node's, and `localhost`
    where it asks an engine there: those are no nodes. The inventory knows the node of such a pod.
    """
    values = (labels.get(label) for label in list_labels_of("node"))
    names = [value for value in values if value and value not in LOOPBACK_HOSTS]
    nodes = (name for name in names if name != labels.get("pod") and not is_exporter(name))
    return next(nodes, None) or parse_host(labels.get("instance") or "") or next(iter(names), None)


def is_exporter(pod: str) -> bool:
    """Return whether a pod's name is that of a device exporter: a hint where no owner is known."""
    return _EXPORTER_POD.search(pod) is not None


def parse_host(address: str) -> str | None:
    """Return the host of `host:port`, `[v6]:port` or a URL."""
    bare = address.rpartition("//")[2].partition("/")[0]
    if bare.startswith("["):
        return bare[1:].partition("]")[0] or None
    return (bare.rpartition(":")[0] if bare.count(":") == 1 else bare) or None


BATCH_JOBS = "hpc-jobs"
"""Stands for a namespace where a batch scheduler names no pod."""


def find_owner(labels: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Return namespace, pod and container of the workload; three None = unattributed.

    With `honorLabels: false` the scraper's own labels win and the exporter's are renamed
    `exported_*`; then `pod` is the exporter's, as it is where it is the exporter's host name. Empty
    strings mean unattributed. Where no pod is named, the job of a batch scheduler is the workload.
    """
    renamed = any(name in labels for name in ("exported_pod", "exported_namespace"))
    renamed = renamed or "exported_container" in labels
    own = labels.get("pod")
    if own and (is_exporter(own) or own in {labels.get("Hostname"), labels.get("hostname")}):
        own = None
    pod = _find_first(labels, "pod") or (None if renamed else own or None)
    container = _find_first(labels, "container") or (
        None if renamed else labels.get("container") or None
    )
    namespace = _find_first(labels, "namespace") or (
        None if renamed else labels.get("namespace") or None
    )
    if pod is None or container in EXPORTER_CONTAINERS:
        job = _find_first(labels, "job")
        return (BATCH_JOBS, job, None) if job else (None, None, None)
    return namespace, pod, container


def _find_model(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    text = _find_first(labels, "model")
    if text is None or not ("device_type" in labels or "devicetype" in labels):
        return text, None
    lower = text.lower()
    vendor = next((vendor for word, vendor in _VENDORS if lower.startswith(word)), None)
    # HAMi writes NVIDIA-NVIDIA A100..., its own prefix before the driver's name.
    return re.sub(r"^NVIDIA-(?=NVIDIA)", "", text), vendor


def _find_first(labels: Mapping[str, str], meaning: str) -> str | None:
    for label in list_labels_of(meaning):
        value = labels.get(label)
        if value:
            return value
    return None


_DIGITS = 4
"""Digits of a device's index on its node, whose column has 16 bits."""


def _parse_integer(text: str | None) -> int | None:
    is_integer = text is not None and len(text) <= _DIGITS and text.isascii() and text.isdigit()
    return int(text) if text is not None and is_integer else None


@cache
def list_metrics_of(column: str) -> tuple[str, ...]:
    """Return the names of all metrics of a `sample` column."""
    metrics = read_metrics().items()
    return tuple(name for name, m in metrics if m.table == "sample" and m.column == column)


@cache
def get_legal_range(column: str) -> tuple[float, float]:
    """Return the widest range that any metric of a `sample` column may have, scaled."""
    mappings = [m for m in read_metrics().values() if m.table == "sample" and m.column == column]
    return (
        min((m.low for m in mappings), default=0.0),
        max((m.high for m in mappings), default=float("inf")),
    )
