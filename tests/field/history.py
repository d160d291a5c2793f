"""Series for a real Prometheus: dcgm-exporter's, and kube-state-metrics' of nodes and pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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

    def write(self, name: str) -> str:
        """Return its lines in OpenMetrics, with the label by which they are selected."""
        labels = {**self.labels, "situation": name}
        head = ",".join(f'{key}="{value}"' for key, value in labels.items() if value)
        start, end = ago(self.since).timestamp() + self.offset_s, ago(self.until).timestamp()
        return "".join(
            f"{self.name}{{{head}}} {self.value + k * self.slope + self._noise(k)} {at:.3f}\n"
            for k, at in enumerate(_count(start, end, self.every_s))
        )

    def _noise(self, k: int) -> int:
        return k % 3 if self.name in POWER else 0


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
    for status, value in (("true", 1), ("false", 0), ("unknown", 0)):
        condition = {"condition": "Ready", "status": status}
        series.append(("kube_node_status_condition", condition, value))
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
) -> list[Scrape]:
    """Return what kube-state-metrics says of a pod; `init`: a native sidecar requests the GPUs."""
    pod = {"namespace": namespace, "pod": name, "uid": f"uid-{namespace}-{name}", **target}
    kind, who = owner
    series: list[tuple[str, Mapping[str, str], float]] = [
        ("kube_pod_info", {"node": node, "created_by_kind": kind, "created_by_name": who}, 1),
        (
            "kube_pod_owner",
            {"owner_kind": kind, "owner_name": who, "owner_is_controller": "true"},
            1,
        ),
        ("kube_pod_created", {}, ago(born).timestamp()),
    ]
    if team:
        series.append(("kube_pod_labels", {"label_team": team}, 1))
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
    where = {"container": "agent" if init else "c", "node": node}
    for side in ("requests", "limits"):
        metric = f"kube_pod_{kind}_resource_{side}"
        series.append((metric, {**where, "resource": resource, "unit": "integer"}, gpus))
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
