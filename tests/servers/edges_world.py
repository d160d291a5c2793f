"""Eight hours of a real Prometheus at the edges of identity, and the truth of every GPU-hour.

    h100-a   GPU-a0 jupyter-alice-0: busy for 2 h, made anew after 12 min under its name, then idle
             GPU-a1 free throughout; its exporter is silent from the 4th to the 5th hour
    npu-a    8 Ascend boards, free; no series names the node, only the exporter's address
    lost-a   labelled 8, the kubelet allocates 7 and the exporter shows 7
    lost-b   labelled 8, the kubelet allocates 8 and the exporter shows 7
    mute-a   labelled 8, the kubelet allocates 8; after 4 h its exporter fails
    shared-a labelled 2, each time-sliced by 4: 8 replicas of 2 boards
    mig-a    labelled 1, in MIG mode: 7 instances of one board

`resolvable` false leaves out the addresses that kube-state-metrics shows.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from tests.servers.prometheus import History

END = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOURS = 8
START = END - timedelta(hours=HOURS)
EXPORTER_ADDRESS = "10.0.3.7"
"""Of the pod of Ascend's exporter on npu-a."""
MUTE_AFTER_H = 4
OUTAGE_H = (4.0, 5.0)
BOARDS = {"h100-a": 2, "npu-a": 8, "lost-a": 8, "lost-b": 8, "mute-a": 8, "shared-a": 2, "mig-a": 1}
TRUTH: Mapping[tuple[str, str], float] = {
    ("h100-a", "productive"): 2.0,
    ("h100-a", "idle"): 4.8,
    ("h100-a", "free"): 7.2,
    ("h100-a", "unknown"): 2.0,
    ("npu-a", "free"): 64.0,
    ("lost-a", "free"): 56.0,
    ("lost-a", "unavailable"): 8.0,
    ("lost-b", "free"): 56.0,
    ("lost-b", "unknown"): 8.0,
    ("mute-a", "free"): 32.0,
    ("mute-a", "unknown"): 32.0,
    ("shared-a", "free"): 16.0,
    ("mig-a", "free"): 8.0,
}
"""GPU-hours by node and state, by hand; edges of scrapes move each by some minutes."""


def hour(hours: float) -> datetime:
    """Return a time so many hours after the start."""
    return START + timedelta(hours=hours)


def history(*, resolvable: bool = True) -> str:
    """Return the world as OpenMetrics text."""
    made = History()
    _h100(made)
    for gpu in range(8):
        _ascend(made, gpu)
    for node, shown, until in (
        ("lost-a", 7, HOURS), ("lost-b", 7, HOURS), ("mute-a", 8, MUTE_AFTER_H),
        ("shared-a", 2, HOURS),
    ):  # fmt: skip
        for gpu in range(shown):
            _dcgm(made, node, gpu, _every(0, until), {})
    for instance in range(7):
        _dcgm(made, "mig-a", 0, _every(0, HOURS), {
            "GPU_I_ID": str(7 + instance), "GPU_I_PROFILE": "1g.10gb",
        })  # fmt: skip
    _nodes(made, resolvable=resolvable)
    if resolvable:
        _exporter_pod(made)
    return made.text()


def _every(begin: float, end: float, seconds: int = 60) -> np.ndarray:
    """Return the times of a scrape loop between two hours."""
    whole = np.arange(START.timestamp() + 7, END.timestamp(), seconds)
    return whole[(whole >= hour(begin).timestamp()) & (whole < hour(end).timestamp())]


def _h100(made: History) -> None:
    """One notebook made anew, one free device; the exporter is silent for an hour."""
    silent_from, silent_to = OUTAGE_H
    busy = {"namespace": "lab", "pod": "jupyter-alice-0", "container": "main"}
    for begin, end, words in (
        (0.0, 2.0, busy), (2.0, 2.2, {}), (2.2, silent_from, busy), (silent_to, HOURS, busy),
    ):  # fmt: skip
        _dcgm(made, "h100-a", 0, _every(begin, end), words, busy=begin == 0 and end == 2)
    for begin, end in ((0.0, silent_from), (silent_to, HOURS)):
        _dcgm(made, "h100-a", 1, _every(begin, end), {})
    for uid, begin, end in (("u-1", 0.0, 2.0), ("u-2", 2.2, HOURS)):
        _notebook(made, uid, begin, end)


def _dcgm(
    made: History,
    node: str,
    gpu: int,
    ts: np.ndarray,
    owner: Mapping[str, str],
    *,
    busy: bool = False,
) -> None:
    if not len(ts):
        return
    words = {
        "gpu": str(gpu), "UUID": f"GPU-{node}-{gpu}", "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3", "Hostname": node, "job": "dcgm-exporter",
        "instance": f"{node}:9400", **owner,
    }  # fmt: skip
    watts = made.rng.normal(500, 20, len(ts)) if busy else made.rng.normal(70, 0.3, len(ts))
    # The counter goes on over an owner's change, as the board's does.
    spent = 1e9 + (ts - START.timestamp()) * (500_000 if busy else 70_000)
    if not busy:
        spent = spent + 5e9
    used = made.rng.normal(0.8, 0.02, len(ts)) if busy else np.zeros(len(ts))
    made.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", words, ts, np.round(used, 4))
    made.add("DCGM_FI_DEV_POWER_USAGE", words, ts, np.round(watts, 2))
    if "GPU_I_ID" not in words:
        made.add("DCGM_FI_DEV_GPU_UTIL", words, ts, np.rint(used * 100))
        made.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", words, ts, np.floor(spent))
    made.add("DCGM_FI_DEV_FB_USED", words, ts, 20_000.0 if owner else 0.0)


def _ascend(made: History, gpu: int) -> None:
    """One board; neither the exporter nor the scraper names its node."""
    ts = _every(0, HOURS)
    words = {
        "id": str(gpu), "vdie_id": f"D-{gpu}", "model_name": "910B3", "job": "npu-exporter",
        "instance": f"{EXPORTER_ADDRESS}:8082",
    }  # fmt: skip
    made.add("npu_chip_info_utilization", words, ts, 0.0)
    made.add("npu_chip_info_power", words, ts, np.round(made.rng.normal(90, 0.3, len(ts)), 2))
    made.add("npu_chip_info_hbm_used_memory", words, ts, 0.0)


def _nodes(made: History, *, resolvable: bool) -> None:
    ts = _every(0, HOURS)
    for n, (node, gpus) in enumerate(BOARDS.items()):
        key = {"job": "kube-state-metrics", "node": node}
        address = {"internal_ip": f"10.0.1.{n}"} if resolvable else {}
        made.add("kube_node_info", {**key, "system_uuid": f"u-{node}", **address}, ts, 1.0)
        ready = {**key, "condition": "Ready", "status": "true"}
        made.add("kube_node_status_condition", ready, ts, 1.0)
        labels = {"label_nvidia_com_gpu_count": str(gpus)}
        if node == "shared-a":
            labels["label_nvidia_com_gpu_replicas"] = "4"
        if node == "npu-a":
            labels = {}
        made.add("kube_node_labels", {**key, **labels}, ts, 1.0)
        resource, capacity = "nvidia_com_gpu", gpus
        if node == "npu-a":
            resource = "huawei_com_Ascend910"
        if node == "shared-a":
            capacity = 8
        if node == "mig-a":
            resource, capacity = "nvidia_com_mig_1g_10gb", 7
        for side in ("allocatable", "capacity"):
            amount = 7 if (node, side) == ("lost-a", "allocatable") else capacity
            words = {**key, "resource": resource, "unit": "integer"}
            made.add(f"kube_node_status_{side}", words, ts, float(amount))


def _exporter_pod(made: History) -> None:
    words = {
        "job": "kube-state-metrics", "namespace": "npu-exporter", "pod": "npu-exporter-x7k2p",
        "uid": "u-exporter", "node": "npu-a", "pod_ip": EXPORTER_ADDRESS, "host_ip": "10.0.1.1",
        "created_by_kind": "DaemonSet", "created_by_name": "npu-exporter",
    }  # fmt: skip
    made.add("kube_pod_info", words, _every(0, HOURS), 1.0)


def _notebook(made: History, uid: str, begin: float, end: float) -> None:
    ts = _every(begin, end)
    key = {
        "job": "kube-state-metrics", "namespace": "lab", "pod": "jupyter-alice-0", "uid": uid,
    }  # fmt: skip
    by = {"created_by_kind": "StatefulSet", "created_by_name": "jupyter-alice"}
    made.add(
        "kube_pod_info", {**key, "node": "h100-a", "pod_ip": f"10.0.9.{uid[-1]}", **by}, ts, 1.0
    )
    owner = {"owner_kind": "StatefulSet", "owner_name": "jupyter-alice"}
    made.add("kube_pod_owner", {**key, **owner, "owner_is_controller": "true"}, ts, 1.0)
    made.add("kube_pod_labels", {**key, "label_team": "risk"}, ts, 1.0)
    born = hour(begin).timestamp()
    made.add("kube_pod_created", key, ts, born)
    made.add("kube_pod_start_time", key, ts, born + 2)
    made.add("kube_pod_status_scheduled_time", key, ts, born + 1)
    made.add("kube_pod_status_phase", {**key, "phase": "Running"}, ts, 1.0)
    words = {
        **key,
        "container": "main",
        "node": "h100-a",
        "resource": "nvidia_com_gpu",
        "unit": "integer",
    }
    made.add("kube_pod_container_resource_requests", words, ts, 1.0)
