"""A day of a real Prometheus in which pods were made again under their old names.

    n1 GPU-0   jupyter-alice-0   busy for 6.1 h, ended; made again 12 min later, idle to the end
    n1 GPU-1   ranker-0          busy for 20 h; made again within 3 min, busy to the end
    n1 GPU-2   nobody            free

kube-state-metrics speaks in one of three dialects: version 2 (`uid` on every pod series), version
1 (`uid` on `kube_pod_info` only), and none at all.
"""

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
import numpy as np

from tests.servers.prometheus import History

END = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
START = END - timedelta(hours=24)
NODE = "n1"
Dialect = Literal["everywhere", "info", "nowhere"]


class Life(msgspec.Struct, frozen=True):
    """One pod: its name is used again, its uid never is."""

    pod: str
    uid: str
    device: int
    begin: datetime
    end: datetime
    busy: bool
    team: str
    ended: bool = False
    """kube-state-metrics saw its container end before the object was gone."""


def hour(hours: float) -> datetime:
    """Return a moment so many hours after the day began."""
    return START + timedelta(hours=hours)


def lives(first: str = "a", second: str = "b") -> tuple[Life, ...]:
    """Return the day's pods; uids begin with these letters, which decide the order of series."""
    return (
        Life("jupyter-alice-0", f"{first}-alice", 0, hour(0), hour(6.1), True, "risk", ended=True),
        Life("jupyter-alice-0", f"{second}-alice", 0, hour(6.3), END, False, "risk"),
        Life("ranker-0", f"{first}-ranker", 1, hour(0), hour(20), True, "search"),
        Life("ranker-0", f"{second}-ranker", 1, hour(20.05), END, True, "search"),
    )


def history(pods: tuple[Life, ...], dialect: Dialect) -> str:
    """Return the day as OpenMetrics text."""
    made = History()
    for device in range(3):
        _device(made, device, [p for p in pods if p.device == device])
    for pod in pods:
        _pod(made, pod, dialect)
    _node(made)
    return made.text()


def _every(seconds: int, begin: datetime, end: datetime) -> np.ndarray:
    """Return the moments of a scrape loop between two others."""
    whole = np.arange(START.timestamp() + 7, END.timestamp(), seconds)
    return whole[(whole >= begin.timestamp()) & (whole < end.timestamp())]


def _device(made: History, device: int, pods: list[Life]) -> None:
    scraped = {
        "gpu": str(device), "UUID": f"GPU-{device}", "device": f"nvidia{device}",
        "modelName": "NVIDIA H100 80GB HBM3", "Hostname": NODE, "job": "dcgm-exporter",
    }  # fmt: skip
    edges = [START, *(e for p in pods for e in (p.begin, p.end)), END]
    energy = 1e6
    for begin, end in itertools.pairwise(edges):
        ts = _every(60, begin, end)
        if not len(ts):
            continue
        pod = next((p for p in pods if p.begin <= begin < p.end), None)
        words = dict(scraped)
        if pod is not None:
            words |= {"namespace": "lab", "pod": pod.pod, "container": "main"}
        busy = pod is not None and pod.busy
        watts = made.rng.normal(500, 20, len(ts)) if busy else made.rng.normal(70, 0.3, len(ts))
        spent = energy + np.cumsum(watts * 60 * 1000)
        energy = float(spent[-1])
        used = made.rng.normal(0.8, 0.02, len(ts)) if busy else np.zeros(len(ts))
        made.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", words, ts, np.round(used, 4))
        made.add("DCGM_FI_DEV_GPU_UTIL", words, ts, np.rint(used * 100))
        made.add("DCGM_FI_DEV_POWER_USAGE", words, ts, np.round(watts, 2))
        made.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", words, ts, np.floor(spent))
        made.add("DCGM_FI_DEV_FB_USED", words, ts, 20_000.0 if pod else 0.0)
        made.add("DCGM_FI_DEV_FB_FREE", words, ts, 60_000.0 if pod else 80_000.0)


def _pod(made: History, pod: Life, dialect: Dialect) -> None:
    ts = _every(60, pod.begin, pod.end)
    here: dict[str, str] = {"job": "kube-state-metrics", "namespace": "lab", "pod": pod.pod}
    key = {**here, "uid": pod.uid} if dialect == "everywhere" else here
    by_name = {"created_by_kind": "StatefulSet", "created_by_name": pod.pod.removesuffix("-0")}
    # The address differs from life to life, as the network plug-in gives it.
    info = {**here, "node": NODE, "pod_ip": f"10.0.0.{ord(pod.uid[0])}", **by_name}
    made.add("kube_pod_info", info if dialect == "nowhere" else {**info, "uid": pod.uid}, ts, 1.0)
    owner = {"owner_kind": "StatefulSet", "owner_name": by_name["created_by_name"]}
    made.add("kube_pod_owner", {**key, **owner, "owner_is_controller": "true"}, ts, 1.0)
    made.add("kube_pod_labels", {**key, "label_team": pod.team}, ts, 1.0)
    born = pod.begin.timestamp()
    made.add("kube_pod_created", key, ts, born)
    made.add("kube_pod_start_time", key, ts, born + 2)
    made.add("kube_pod_status_scheduled_time", key, ts, born + 1)
    done = ts >= pod.end.timestamp() - 90 if pod.ended else np.zeros(len(ts), bool)
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        shows = done if phase == "Failed" else ~done if phase == "Running" else np.zeros(len(ts))
        made.add("kube_pod_status_phase", {**key, "phase": phase}, ts, shows.astype(float))
    if pod.ended:
        made.add("kube_pod_completion_time", key, ts[done], pod.end.timestamp() - 100)
    asks: Mapping[str, tuple[str, float]] = {
        "cpu": ("core", 4.0), "memory": ("byte", 2.0**34), "nvidia_com_gpu": ("integer", 1.0),
    }  # fmt: skip
    for name, (unit, amount) in asks.items():
        words = {**key, "container": "main", "node": NODE, "resource": name, "unit": unit}
        made.add("kube_pod_container_resource_requests", words, ts, amount)
    used = {"job": "kubelet", "namespace": "lab", "pod": pod.pod, "container": "main"}
    cores = 3.5 if pod.busy else 0.002
    seconds = np.round((ts - born) * cores, 3)
    made.add("container_cpu_usage_seconds_total", {**used, "image": "x"}, ts, seconds)
    made.add("container_memory_working_set_bytes", {**used, "image": "x"}, ts, 2.0**32)
    rate = 50_000.0 if pod.busy else 20.0
    wire = {"job": "kubelet", "namespace": "lab", "pod": pod.pod, "interface": "eth0"}
    made.add("container_network_receive_bytes_total", wire, ts, np.round((ts - born) * rate))
    made.add("container_network_transmit_bytes_total", wire, ts, np.round((ts - born) * rate))


def _node(made: History) -> None:
    ts = _every(60, START, END)
    key = {"job": "kube-state-metrics", "node": NODE}
    made.add("kube_node_info", {**key, "system_uuid": "u-1", "provider_id": "x"}, ts, 1.0)
    made.add("kube_node_status_condition", {**key, "condition": "Ready", "status": "true"}, ts, 1.0)
    made.add("kube_node_labels", {**key, "label_nvidia_com_gpu_count": "3"}, ts, 1.0)
    for side in ("allocatable", "capacity"):
        words = {**key, "resource": "nvidia_com_gpu", "unit": "integer"}
        made.add(f"kube_node_status_{side}", words, ts, 3.0)
