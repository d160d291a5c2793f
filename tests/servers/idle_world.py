"""A world for a real Prometheus: workloads that seem idle, each with what it shows beside that.

Every series has the name and the labels that its exporter gives it: dcgm-exporter, cAdvisor,
kube-state-metrics version 2, vLLM. Every workload has a namespace and nodes of its own.
"""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np

from tests.servers.prometheus import History

END = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
"""A Friday."""
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
IDLE_W = 110.0
KSM_EVERY = 300
"""Seconds between the scrapes of kube-state-metrics."""
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class Host(msgspec.Struct, frozen=True):
    """What cAdvisor sees of a pod: cores by container, bytes a second."""

    cores: Mapping[str, float] = msgspec.field(default_factory=lambda: {"main": 0.02})
    received: float = 60.0
    sent: float = 40.0
    written: float = 0.0
    last: timedelta | None = None
    """So long before the end it begins; before that, the pod is at rest. None = always."""
    silent: timedelta = timedelta()
    """So long before the end the kubelet falls silent."""


class Peer(msgspec.Struct, frozen=True):
    """A pod without devices in evidence, beside those that have some."""

    phase: str
    created: timedelta
    """So long before the end."""
    started: timedelta | None = None
    """When the kubelet took it, before it pulls images: `status.startTime`."""
    gpus: int = 1


class Shown(msgspec.Struct, frozen=True):
    """What each device of a workload shows, sample by sample; an array ends with the world."""

    activity: Floats | float = 0.0
    watts: Floats | float = IDLE_W
    counted: Floats | None = None
    """Watts by the energy counter; None = as the gauge reads."""
    util: Floats | float | None = None
    profiled: bool = True
    """The exporter has the PROF metrics."""
    more: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What other metrics of the exporter show, by their names."""


class Workload(msgspec.Struct, frozen=True):
    """A workload of a namespace of its own, whose pods hold one device each."""

    name: str
    shown: Shown = msgspec.field(default_factory=Shown)
    hosts: Sequence[Host | None] = msgspec.field(default_factory=lambda: (Host(),))
    """One per pod; None = the kubelet of this pod's node is not scraped."""
    kind: str = "PyTorchJob"
    lasts: timedelta = 4 * HOUR
    every: int = 60
    """Seconds between the scrapes of its devices."""
    hosts_every: int = 120
    cpu: float = 32.0
    requests: Floats | float | None = None
    """Requests a second of each pod, as vLLM counts them; None = no such metric. From the first one
    on that is not a number, the server is not scraped any more."""
    peers: Sequence[Peer] = ()
    free: bool = False
    """Nobody holds the devices: the exporter names no pod, and there is none."""

    @property
    def namespace(self) -> str:
        """The namespace of this workload alone."""
        return f"team-{self.name}"

    def moments(self, every: int) -> Floats:
        """Return when a target that is scraped so often is scraped, in seconds."""
        count = round(self.lasts.total_seconds() / every)
        made: Floats = END.timestamp() - every * np.arange(count, 0, -1, dtype=float) + 7
        return made


class World:
    """The series of some workloads."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self.history = History()
        self._gpus = itertools.count()
        for workload in workloads:
            self._add(workload)

    def _add(self, of: Workload) -> None:
        devices, hosts = of.moments(of.every), of.moments(of.hosts_every)
        ts = of.moments(KSM_EVERY)
        for n, host in enumerate(of.hosts):
            pod, node = _pod_name(of, n), f"{of.name}-n{n}"
            self._device(of, pod, node, devices)
            if of.free:
                self._node(node, ts)
                continue
            created = min(ts[0], END.timestamp() - 86_400) - 3600
            self._pod(of, pod, node, ts, created=created, started=created + 40)
            self._node(node, ts)
            if host is not None:
                heard = hosts < END.timestamp() - host.silent.total_seconds()
                self._host(of, pod, hosts[heard], host)
            if of.requests is not None:
                self._requests(of, pod, hosts, _line(of.requests, len(hosts)))
        for n, peer in enumerate(of.peers):
            created = END.timestamp() - peer.created.total_seconds()
            started = None
            if peer.started is not None:
                started = END.timestamp() - peer.started.total_seconds()
            self._pod(
                of, _pod_name(of, len(of.hosts) + n), f"{of.name}-n0" if started else "",
                ts[ts >= created], created=created, started=started, phase=peer.phase,
                gpus=peer.gpus,
            )  # fmt: skip
        if not of.free:
            self._owner(of, ts)

    def _device(self, of: Workload, pod: str, node: str, ts: Floats) -> None:
        shown, number = of.shown, next(self._gpus)
        words = {
            "gpu": "0", "UUID": f"GPU-{number:08d}", "pci_bus_id": "00000000:1B:00.0",
            "device": "nvidia0", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": node,
            "DCGM_FI_DRIVER_VERSION": "570.86.15", "container": "main", "namespace": of.namespace,
            "pod": pod, "job": "dcgm-exporter", "instance": f"10.2.{number}.1:9400",
        }  # fmt: skip
        if of.free:
            words |= dict.fromkeys(("container", "namespace", "pod"), "")
        activity, watts = _line(shown.activity, len(ts)), _line(shown.watts, len(ts))
        if isinstance(shown.watts, float):
            watts = watts + self.history.rng.normal(0, 0.12, len(ts))
        counted = watts if shown.counted is None else shown.counted
        util = np.rint(activity * 100) if shown.util is None else _line(shown.util, len(ts))
        add = self.history.add
        if shown.profiled:
            add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", words, ts, np.round(activity, 6))
        add("DCGM_FI_DEV_GPU_UTIL", words, ts, util)
        add("DCGM_FI_DEV_POWER_USAGE", words, ts, np.round(watts, 3))
        spent = 4e9 + np.floor(np.cumsum(counted) * of.every * 1000)
        add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", words, ts, spent)
        for name, value in shown.more.items():
            add(name, words, ts, value)
        add("DCGM_FI_DEV_FB_USED", words, ts, 20_000.0)
        add("DCGM_FI_DEV_FB_FREE", words, ts, 61_000.0)

    def _pod(
        self, of: Workload, pod: str, node: str, ts: Floats, *, created: float,
        started: float | None, phase: str = "Running", gpus: int = 1,
    ) -> None:  # fmt: skip
        add = self.history.add
        key = {
            "job": "kube-state-metrics", "instance": "10.0.0.3:8080", "namespace": of.namespace,
            "pod": pod, "uid": f"uid-{of.namespace}-{pod}",
        }  # fmt: skip
        kind, name = _direct(of)
        info = {"created_by_kind": kind, "created_by_name": name, "node": node, "host_network": "f"}
        add("kube_pod_info", {**key, **info}, ts, 1.0)
        owner = {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true"}
        add("kube_pod_owner", {**key, **owner}, ts, 1.0)
        words = {"label_team": of.name}
        if of.kind == "Notebook":
            words["label_notebook_name"] = of.name
        add("kube_pod_labels", {**key, **words}, ts, 1.0)
        for each in ("Pending", "Running", "Succeeded"):
            add("kube_pod_status_phase", {**key, "phase": each}, ts, float(each == phase))
        add("kube_pod_created", key, ts, created)
        if started is not None:
            bound = ts[ts >= started]
            add("kube_pod_start_time", key, bound, started)
            add("kube_pod_status_scheduled_time", key, bound, started - 1)
        requests = {"cpu": ("core", of.cpu)}
        if gpus:
            requests["nvidia_com_gpu"] = ("integer", float(gpus))
        for name, (unit, amount) in requests.items():
            answer = {**key, "container": "main", "node": node, "resource": name, "unit": unit}
            add("kube_pod_container_resource_requests", answer, ts, amount)

    def _owner(self, of: Workload, ts: Floats) -> None:
        if of.kind == "Deployment":
            words = {
                "job": "kube-state-metrics", "namespace": of.namespace,
                "replicaset": _direct(of)[1], "owner_kind": "Deployment", "owner_name": of.name,
                "owner_is_controller": "true",
            }  # fmt: skip
            self.history.add("kube_replicaset_owner", words, ts, 1.0)

    def _node(self, node: str, ts: Floats) -> None:
        add, key = self.history.add, {"job": "kube-state-metrics", "node": node}
        add("kube_node_info", {**key, "system_uuid": f"u-{node}", "provider_id": node}, ts, 1.0)
        for status in ("true", "false"):
            answer = {**key, "condition": "Ready", "status": status}
            add("kube_node_status_condition", answer, ts, float(status == "true"))
        add("kube_node_labels", {**key, "label_nvidia_com_gpu_count": "1"}, ts, 1.0)
        answer = {**key, "resource": "nvidia_com_gpu", "unit": "integer"}
        add("kube_node_status_allocatable", answer, ts, 1.0)

    def _host(self, of: Workload, pod: str, ts: Floats, host: Host) -> None:
        add, every = self.history.add, of.hosts_every
        key = {"job": "kubelet", "namespace": of.namespace}
        begun = -np.inf if host.last is None else END.timestamp() - host.last.total_seconds()

        def sums(rate: float, rest: float) -> Floats:
            counted: Floats = np.cumsum(np.where(ts > begun, rate, rest)) * every
            return counted

        for container, cores in host.cores.items():
            inside = {**key, "pod": pod, "container": container}
            used = np.round(sums(cores, 0.01), 6)
            add("container_cpu_usage_seconds_total", {**inside, "cpu": "total"}, ts, used)
            disk = {**inside, "device": "/dev/nvme0n1"}
            written = sums(host.written if container == "main" else 0.0, 0.0)
            add("container_fs_writes_bytes_total", disk, ts, np.floor(written))
        # The pod's own group counts its containers again, and the pause container is there too.
        whole = np.round(sums(sum(host.cores.values()), 0.01), 6)
        total = {**key, "pod": pod, "container": "", "cpu": "total"}
        add("container_cpu_usage_seconds_total", total, ts, whole)
        pause = {**key, "pod": pod, "container": "POD", "cpu": "total"}
        add("container_cpu_usage_seconds_total", pause, ts, 0.03)
        wire = {**key, "pod": pod, "interface": "eth0"}
        received, sent = sums(host.received, 60.0), sums(host.sent, 40.0)
        add("container_network_receive_bytes_total", wire, ts, np.floor(received))
        add("container_network_transmit_bytes_total", wire, ts, np.floor(sent))

    def _requests(self, of: Workload, pod: str, ts: Floats, rate: Floats) -> None:
        heard = np.isfinite(rate)
        ts, served = ts[heard], np.floor(np.cumsum(rate[heard]) * of.hosts_every)
        for reason, values in (("stop", served), ("length", np.zeros(len(ts)))):
            words = {
                "job": "vllm", "namespace": of.namespace, "pod": pod, "model_name": "m",
                "engine": "0", "finished_reason": reason,
            }  # fmt: skip
            self.history.add("vllm:request_success_total", words, ts, values)


def _line(value: Floats | float, count: int) -> Floats:
    made: Floats = np.full(count, float(value)) if isinstance(value, float) else value[-count:]
    return made


def _direct(of: Workload) -> tuple[str, str]:
    """Return kind and name of the pods' direct owner."""
    if of.kind == "Deployment":
        return "ReplicaSet", f"{of.name}-6d8f7c9b5"
    return ("StatefulSet" if of.kind == "Notebook" else of.kind), of.name


def _pod_name(of: Workload, n: int) -> str:
    if of.kind == "Deployment":
        return f"{_direct(of)[1]}-x2k4{'qrstvw'[n]}"
    return f"{of.name}-worker-{n}" if of.kind == "PyTorchJob" else f"{of.name}-{n}"
