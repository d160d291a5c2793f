"""Series for a real Prometheus: dcgm-exporter's, and kube-state-metrics' of nodes and pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.field.site import HOURS, POWER, ago

DCGM = {"job": "dcgm-exporter", "instance": "10.0.0.1:9400"}
KSM = {"job": "kube-state-metrics", "instance": "10.244.0.9:8080"}


@dataclass(frozen=True)
class Scrape:
    """One series between two times, given in hours before the present one."""

    name: str
    labels: Mapping[str, str]
    value: float
    since: float = HOURS
    until: float = 0
    every_s: int = 60
    offset_s: float = 3
    slope: float = 0
    """What a counter grows by from scrape to scrape."""
    peak: float = 0
    """The value of a gauge at every `peak_every_s`; a counter grows by so much more there."""
    peak_every_s: int = 0
    noise: bool = True
    """Whether a power never reads the same twice in a row."""

    def write(self, name: str) -> str:
        """Return its lines in OpenMetrics, with the label by which they are selected.

        A uid is one of all clusters.
        """
        labels = {**self.labels, "situation": name}
        if labels.get("uid"):
            labels["uid"] = f"{labels['uid']}-{name}"
        head = ",".join(f'{key}="{value}"' for key, value in labels.items() if value)
        start, end = ago(self.since).timestamp() + self.offset_s, ago(self.until).timestamp()
        return "".join(
            f"{self.name}{{{head}}} {self._value(k)} {at:.3f}\n"
            for k, at in enumerate(_count(start, end, self.every_s))
        )

    def _value(self, k: int) -> float:
        step = max(1, self.peak_every_s // self.every_s)
        noise = k % 3 if self.noise and self.name in POWER else 0
        if self.slope:
            return self.value + k * self.slope + k // step * self.peak
        return (self.peak if self.peak_every_s and k % step == step - 1 else self.value) + noise


def _count(start: float, end: float, step: float) -> Iterable[float]:
    while start < end:
        yield start
        start += step


def scrape_gpu(
    labels: Mapping[str, str],
    values: Mapping[str, float],
    *,
    since: float = HOURS,
    until: float = 0,
    every_s: int = 60,
    offset_s: float = 3,
) -> list[Scrape]:
    """Return one device's series."""
    return [
        Scrape(name, {**DCGM, **labels}, value, since, until, every_s, offset_s)
        for name, value in values.items()
    ]


def scrape_peaks(
    scrapes: Iterable[Scrape], peaks: Mapping[str, float], every_s: int
) -> list[Scrape]:
    """Return series of which those that are named reach another value at every so many seconds."""
    return [
        replace(one, peak=peaks[one.name], peak_every_s=every_s) if one.name in peaks else one
        for one in scrapes
    ]


def scrape_host(
    pod: str,
    cores: Mapping[str, float],
    *,
    namespace: str = "ml",
    node: str = "a",
    since: float = HOURS,
    until: float = 0,
    every_s: int = 60,
) -> list[Scrape]:
    """Return cAdvisor's series of a pod whose containers use so many cores, and no network."""
    place = {"job": "kubelet", "node": node, "instance": "10.0.0.1:10250", "namespace": namespace}
    counters: list[tuple[str, Mapping[str, str], float]] = [
        (f"container_network_{side}_bytes_total", {"interface": "eth0"}, 60.0)
        for side in ("receive", "transmit")
    ]
    for container, used in cores.items():
        where = {"container": container, "id": f"/{pod}/{container}"}
        counters.append(
            ("container_cpu_usage_seconds_total", {**where, "cpu": "total"}, used * every_s)
        )
        counters += [
            (f"container_fs_{side}_bytes_total", {**where, "device": "/dev/sda"}, 1.0)
            for side in ("reads", "writes")
        ]
    return [
        Scrape(name, {**place, "pod": pod, **labels}, 100.0, since, until, every_s, 5, slope)
        for name, labels, slope in counters
    ]


def scrape_job(
    node: str,
    values: Mapping[str, float],
    *,
    model: str,
    pod: str = "train-0",
    namespace: str = "ml",
    owner: tuple[str, str] = ("Job", "train"),
    cores: Mapping[str, float] | None = None,
    container: str = "c",
    since: float = HOURS,
    until: float = 0,
    every_s: int = 60,
    gpus: int = 1,
    first: int = 0,
    **more: Any,
) -> list[Scrape]:
    """Return a running pod with GPUs that all read the same, and its host: quiet by default."""
    place = {"pod": pod, "namespace": namespace, "container": container}
    none = {f"owner_{key}": "<none>" for key in ("kind", "name", "is_controller")}
    job = {"namespace": namespace, "job_name": owner[1], **none, **KSM}
    names = {"Hostname": node, "modelName": model, **place}
    times: dict[str, Any] = {"since": since, "until": until}
    return [
        *scrape_pod(
            pod, node, gpus=gpus, namespace=namespace, owner=owner, container=container,
            **times, **{"born": since + 2, **more},
        ),
        *([Scrape("kube_job_owner", job, 1, since, until, 300, 11)] if owner[0] == "Job" else []),
        *(
            one
            for k in range(first, first + gpus)
            for one in scrape_gpu(
                {**names, "gpu": str(k), "UUID": f"GPU-{node}-{k}"},
                values,
                every_s=every_s,
                **times,
            )
        ),
        *scrape_host(
            pod, {container: 0.01} if cores is None else cores, namespace=namespace, node=node,
            every_s=every_s, **times,
        ),
    ]  # fmt: skip


def scrape_node(
    name: str,
    gpus: int,
    *,
    labels: Mapping[str, str] | None = None,
    address: str = "10.0.0.1",
    born: float = 720,
    since: float = HOURS,
    until: float = 0,
    every_s: int = 300,
    target: Mapping[str, str] = KSM,
    ready: str = "true",
    uuid: str = "",
    provider: str = "aws:///us-east-1a/i-",
) -> list[Scrape]:
    """Return what kube-state-metrics says of a ready node."""
    node = {"node": name, **target}
    info = {
        "internal_ip": address,
        "provider_id": f"{provider}{name}",
        "system_uuid": uuid or f"system-{name}",
        "kubelet_version": "v1.31.4",
    }
    named = {
        f"label_{''.join(c if c.isalnum() else '_' for c in k)}": v
        for k, v in (labels or {}).items()
    }
    series: list[tuple[str, Mapping[str, str], float]] = [
        ("kube_node_info", info, 1),
        ("kube_node_created", {}, ago(born).timestamp()),
        ("kube_node_labels", named, 1),
        ("kube_node_spec_unschedulable", {}, 0),
    ]
    for side in ("capacity", "allocatable"):
        metric = f"kube_node_status_{side}"
        series.append((metric, {"resource": "nvidia_com_gpu", "unit": "integer"}, gpus))
        series.append((metric, {"resource": "cpu", "unit": "core"}, 96))
    for status in ("true", "false", "unknown"):
        condition = {"condition": "Ready", "status": status}
        series.append(("kube_node_status_condition", condition, float(status == ready)))
    return [
        Scrape(metric, {**node, **extra}, value, since, until, every_s, 11)
        for metric, extra, value in series
    ]


def scrape_pod(
    name: str,
    node: str,
    *,
    gpus: float = 1,
    namespace: str = "ml",
    team: str = "",
    owner: tuple[str, str] = ("Job", "train"),
    phase: str = "Running",
    born: float = HOURS + 2,
    since: float = HOURS,
    until: float = 0,
    completed: float | None = None,
    every_s: int = 300,
    target: Mapping[str, str] = KSM,
    resource: str = "nvidia_com_gpu",
    init: bool = False,
    container: str = "c",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    uid: str = "",
    address: str = "",
) -> list[Scrape]:
    """Return what kube-state-metrics says of a pod; `init`: a native sidecar requests the GPUs."""
    pod = {"namespace": namespace, "pod": name, "uid": uid or f"uid-{namespace}-{name}", **target}
    kind, who = owner
    series: list[tuple[str, Mapping[str, str], float]] = [
        (
            "kube_pod_info",
            {"node": node, "created_by_kind": kind, "created_by_name": who, "pod_ip": address},
            1,
        ),
        (
            "kube_pod_owner",
            {"owner_kind": kind, "owner_name": who, "owner_is_controller": "true"},
            1,
        ),
        ("kube_pod_created", {}, ago(born).timestamp()),
    ]
    if team or labels:
        named = {f"label_{key}": value for key, value in (labels or {}).items()}
        series.append(("kube_pod_labels", {"label_team": team, **named}, 1))
    if annotations:
        noted = {f"annotation_{key}": value for key, value in annotations.items()}
        series.append(("kube_pod_annotations", noted, 1))
    series += [
        ("kube_pod_status_phase", {"phase": one}, float(one == phase))
        for one in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    ]
    if node:
        series.append(("kube_pod_start_time", {}, ago(born).timestamp() + 1))
        series.append(("kube_pod_status_scheduled_time", {}, ago(born).timestamp() + 1))
    if completed is not None:
        series.append(("kube_pod_completion_time", {}, ago(completed).timestamp()))
    kind = "init_container" if init else "container"
    where = {"container": "agent" if init else container, "node": node}
    for side in ("requests", "limits"):
        metric = f"kube_pod_{kind}_resource_{side}"
        series += [(metric, {**where, "resource": resource, "unit": "integer"}, gpus)] * (gpus > 0)
    if init:
        series.append(
            ("kube_pod_init_container_info", {"container": "agent", "restart_policy": "Always"}, 1)
        )
        main = {"container": "c", "node": node, "resource": "cpu", "unit": "core"}
        series.append(("kube_pod_container_resource_requests", main, 4))
    return [
        Scrape(metric, {**pod, **extra}, value, since, until, every_s, 11)
        for metric, extra, value in series
    ]
