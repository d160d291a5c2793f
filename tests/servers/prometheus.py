"""A real Prometheus with days of history, and the history itself.

The series replay the reference expositions (an H100 node, a MIG A100 node) with behaviours, and
kube-state-metrics, cAdvisor and `up` beside them:

    GPU 0-3  training, busy                    llm-pretrain-worker-0   PyTorchJob
    GPU 4    notebook with a context, idle     jupyter-alice           Notebook
    GPU 5    inference, day and night          fraud-scorer-...        Deployment
    GPU 6    PROF 0, GPU_UTIL 100, 589 W       sweep-17-9hf2c          CronJob
    GPU 7    free
    MIG      judged by instance; gi14 of the first board is freed when eval-9qk2 ends

The H100 node is silent in SILENCE. It is scraped with `honorLabels: true`; the MIG node without,
so that its workloads are `exported_*`.
"""

import csv
import io
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

END = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOURS = 26
START = END - timedelta(hours=HOURS)
EVERY = 120
KSM_EVERY = 300
CADVISOR_EVERY = 60
SILENCE = (END - timedelta(hours=20), END - timedelta(hours=19, minutes=14))
EVAL_ENDS = END - timedelta(hours=10)
H100, MIG = "gpu-node-a01", "mig-node-b07"
SENTINELS = {
    "DCGM_FI_DEV_MEMORY_TEMP": 9223372036854775794.0,
    "DCGM_FI_DEV_GPU_TEMP": 2147483632.0,
    "DCGM_FI_PROF_SM_ACTIVE": 140737488355330.0,
}
"""What old exporters print for "blank" and "not supported"; the MIG node is such a one."""

# namespace, pod, node, requested resource, count, direct owner, team, CPU cores in use
LATENCIES = {"0.3": 0.2, "0.5": 0.5, "1.0": 0.9, "5.0": 0.99, "+Inf": 1.0}
_PODS = """\
namespace,pod,node,resource,count,kind,owner,team,cores
team-genai,llm-pretrain-worker-0,gpu-node-a01,nvidia_com_gpu,4,PyTorchJob,llm-pretrain,genai,14.5
team-risk,jupyter-alice,gpu-node-a01,nvidia_com_gpu,1,StatefulSet,jupyter-alice,risk,0.004
prod-fraud,fraud-scorer-6d8f7c9b5-x2k4q,gpu-node-a01,nvidia_com_gpu,1,ReplicaSet,fraud-scorer-6d8f7c9b5,fraud,2.5
team-vision,sweep-17-9hf2c,gpu-node-a01,nvidia_com_gpu,1,Job,sweep-17,vision,3.1
serving,bert-embed-5f7,mig-node-b07,nvidia_com_mig_3g_20gb,1,ReplicaSet,bert-embed,serving,1.2
team-risk,jupyter-bob,mig-node-b07,nvidia_com_mig_2g_10gb,1,,,risk,0.002
team-nlp,eval-9qk2,mig-node-b07,nvidia_com_mig_1g_5gb,1,Job,eval,nlp,0.9
team-nlp,infer-0,mig-node-b07,nvidia_com_mig_1g_5gb,1,StatefulSet,infer,nlp,0.4
team-nlp,infer-1,mig-node-b07,nvidia_com_mig_1g_5gb,1,StatefulSet,infer,nlp,0.1
team-nlp,infer-2,mig-node-b07,nvidia_com_mig_1g_5gb,1,StatefulSet,infer,nlp,0.6
kube-system,kube-proxy-a01,gpu-node-a01,,0,DaemonSet,kube-proxy,,0.01
"""


class History:
    """Lines of OpenMetrics text, series by series."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.lines: list[str] = []

    def add(
        self, name: str, labels: Mapping[str, str], ts: np.ndarray, values: np.ndarray | float
    ) -> None:
        """Append one series: seconds and values."""
        words = ",".join(f'{k}="{v}"' for k, v in labels.items())
        head = f"{name}{{{words}}} "
        if isinstance(values, (int, float)):
            tail = f"{values:.17g} "
            self.lines += [f"{head}{tail}{t:.3f}" for t in ts.tolist()]
        else:
            pairs = zip(values.tolist(), ts.tolist(), strict=True)
            self.lines += [f"{head}{v:.15g} {t:.3f}" for v, t in pairs]

    def text(self) -> str:
        """Return the whole text."""
        return "\n".join(self.lines) + "\n# EOF\n"


def grid(every: int, offset: float = 0.0) -> np.ndarray:
    """Return the moments of a scrape loop, in seconds."""
    return np.arange(START.timestamp() + offset, END.timestamp(), every)


def history(samples: Path) -> str:
    """Return the fleet's history as OpenMetrics text."""
    made = History()
    _devices(made, samples / "h100_node.prom", H100, grid(EVERY, 7.131))
    _devices(made, samples / "mig_a100_node.prom", MIG, grid(EVERY, 41.5))
    _kube_state(made, grid(KSM_EVERY, 13.0))
    _cadvisor(made, grid(CADVISOR_EVERY, 3.0))
    _served(made, grid(CADVISOR_EVERY, 5.0))
    _trained(made, grid(CADVISOR_EVERY, 9.0))
    return made.text()


def _devices(made: History, path: Path, node: str, ts: np.ndarray) -> None:
    if node == H100:
        silent = (ts >= SILENCE[0].timestamp()) & (ts < SILENCE[1].timestamp())
        ts = ts[~silent]
    instance = f"10.0.0.{len(node)}:9400"
    made.add("up", {"job": "dcgm-exporter", "instance": instance, "node": node}, ts, 1.0)
    seen: set[tuple[str, ...]] = set()
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            labels = dict(sample.labels)
            key = (name, labels["UUID"], labels.get("GPU_I_ID", ""))
            if key in seen:
                continue
            seen.add(key)
            values = _values(made, name, labels, sample.value, ts)
            _series(
                made, name, {**labels, "instance": instance, "job": "dcgm-exporter"}, ts, values
            )
            if "hostname" in labels and name == "DCGM_FI_DEV_POWER_USAGE":
                for blank, value in SENTINELS.items():
                    scraped = {**labels, "instance": instance, "job": "dcgm-exporter"}
                    _series(made, blank, scraped, ts, np.full(len(ts), value))


def _series(
    made: History, name: str, labels: dict[str, str], ts: np.ndarray, values: np.ndarray
) -> None:
    freed = labels.get("pod") == "eval-9qk2"
    after = ts >= EVAL_ENDS.timestamp()
    if "hostname" in labels:  # the MIG node: honorLabels false
        renamed = {
            f"exported_{k}": labels.pop(k) for k in ("pod", "namespace", "container") if k in labels
        }
        labels |= {
            "pod": "dcgm-exporter-x7k2p",
            "namespace": "gpu-operator",
            "container": "dcgm-exporter",
        }
        if freed:
            made.add(name, {**labels, **renamed}, ts[~after], values[~after])
            idle = 0.0 if "PROF" in name and values[-1] <= 1 else values[-1]
            made.add(name, labels, ts[after], np.full(int(after.sum()), idle))
            return
        labels |= renamed
    made.add(name, labels, ts, values)


def _values(
    made: History, name: str, labels: Mapping[str, str], value: float, ts: np.ndarray
) -> np.ndarray:
    """Return how a reference value goes on over time: noise where it works, flat where idle."""
    count = len(ts)
    flat = np.full(count, float(value))
    if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
        watts = {"4": 117.6, "5": 208.3, "6": 588.9, "7": 69.8}.get(labels["gpu"], 615.0)
        energy: np.ndarray = np.floor(value + watts * (ts - ts[0]) * 1000)
        return energy
    if name == "DCGM_FI_DEV_POWER_USAGE":
        spread = 0.15 if labels["gpu"] in "47" or value < 120 else 6.0
        return np.round(flat + made.rng.normal(0, spread, count), 3)
    day = 1 + 0.5 * np.sin(2 * np.pi * ts / 86400)
    if labels["gpu"] == "5" and name in {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_PROF_DRAM_ACTIVE",
    }:
        moved = flat * day
        return np.rint(moved) if value > 1 else np.round(moved, 6)
    if "PROF" in name and 0 < value <= 1:
        return np.clip(np.round(flat * made.rng.normal(1, 0.02, count), 6), 0, 1)
    return flat


def _pods() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_PODS)))


def _kube_state(made: History, ts: np.ndarray) -> None:
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.3:8080"}
    for at, pod in enumerate(_pods()):
        here = ts[ts < EVAL_ENDS.timestamp()] if pod["pod"] == "eval-9qk2" else ts
        key = {"namespace": pod["namespace"], "pod": pod["pod"], "uid": f"uid-{at:04d}"}
        owner = {"kind": pod["kind"] or "<none>", "name": pod["owner"] or "<none>"}
        info = {
            **ksm,
            **key,
            "node": pod["node"],
            "created_by_kind": owner["kind"],
            "created_by_name": owner["name"],
            "priority_class": "",
        }
        made.add("kube_pod_info", info, here, 1.0)
        made.add(
            "kube_pod_owner",
            {
                **ksm,
                **key,
                "owner_kind": owner["kind"],
                "owner_name": owner["name"],
                "owner_is_controller": "true",
            },
            here,
            1.0,
        )
        words = {"label_team": pod["team"]} if pod["team"] else {}
        if pod["pod"] == "jupyter-alice":
            words["label_notebook_name"] = "jupyter-alice"
        made.add("kube_pod_labels", {**ksm, **key, **words}, here, 1.0)
        for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
            made.add(
                "kube_pod_status_phase",
                {**ksm, **key, "phase": phase},
                here,
                1.0 if phase == "Running" else 0.0,
            )
        began = START.timestamp() - 3600
        made.add("kube_pod_created", {**ksm, **key}, here, began)
        made.add("kube_pod_start_time", {**ksm, **key}, here, began + 20)
        wanted = {"cpu": ("core", 4.0), "memory": ("byte", 2.0**34)}
        if pod["resource"]:
            wanted[pod["resource"]] = ("integer", float(pod["count"]))
        for name, (unit, amount) in wanted.items():
            made.add(
                "kube_pod_container_resource_requests",
                {
                    **ksm,
                    **key,
                    "container": "main",
                    "node": pod["node"],
                    "resource": name,
                    "unit": unit,
                },
                here,
                amount,
            )
    owners = [
        (
            "kube_replicaset_owner",
            "replicaset",
            "prod-fraud",
            "fraud-scorer-6d8f7c9b5",
            "Deployment",
            "fraud-scorer",
        ),
        (
            "kube_replicaset_owner",
            "replicaset",
            "serving",
            "bert-embed",
            "Deployment",
            "bert-embed",
        ),
        ("kube_job_owner", "job_name", "team-vision", "sweep-17", "CronJob", "sweep"),
        ("kube_job_owner", "job_name", "team-nlp", "eval", "<none>", "<none>"),
    ]
    for metric, label, namespace, name, kind, owner_name in owners:
        made.add(
            metric,
            {
                **ksm,
                "namespace": namespace,
                label: name,
                "owner_kind": kind,
                "owner_name": owner_name,
                "owner_is_controller": "true",
            },
            ts,
            1.0,
        )
    _nodes(made, ksm, ts)


def _nodes(made: History, ksm: Mapping[str, str], ts: np.ndarray) -> None:
    nodes = [
        (H100, "p5.48xlarge", "NVIDIA-H100-80GB-HBM3", {"nvidia_com_gpu": 8.0}),
        (
            MIG,
            "p4d.24xlarge",
            "NVIDIA-A100-SXM4-40GB",
            {
                "nvidia_com_mig_3g_20gb": 1.0,
                "nvidia_com_mig_2g_10gb": 1.0,
                "nvidia_com_mig_1g_5gb": 9.0,
            },
        ),
    ]
    for node, kind, product, devices in nodes:
        key = {**ksm, "node": node}
        made.add(
            "kube_node_info",
            {**key, "provider_id": f"aws:///us-west-2a/i-{node}", "system_uuid": f"uuid-{node}"},
            ts,
            1.0,
        )
        made.add(
            "kube_node_labels",
            {
                **key,
                "label_node_kubernetes_io_instance_type": kind,
                "label_topology_kubernetes_io_region": "us-west-2",
                "label_topology_kubernetes_io_zone": "us-west-2a",
                "label_nvidia_com_gpu_product": product,
                "label_nvidia_com_gpu_count": "8" if node == H100 else "2",
                "label_eks_amazonaws_com_capacity_type": "ON_DEMAND",
            },
            ts,
            1.0,
        )
        made.add(
            "kube_node_status_condition", {**key, "condition": "Ready", "status": "true"}, ts, 1.0
        )
        made.add("kube_node_spec_unschedulable", key, ts, 0.0)
        for side in ("allocatable", "capacity"):
            for name, amount in {"cpu": 192.0, "memory": 2.0**41, **devices}.items():
                made.add(
                    f"kube_node_status_{side}", {**key, "resource": name, "unit": "x"}, ts, amount
                )


def _cadvisor(made: History, ts: np.ndarray) -> None:
    for pod in _pods():
        here = ts[ts < EVAL_ENDS.timestamp()] if pod["pod"] == "eval-9qk2" else ts
        key = {"job": "kubelet", "namespace": pod["namespace"], "pod": pod["pod"]}
        used = np.round((here - here[0]) * float(pod["cores"]), 4)
        if pod["pod"] == "infer-0":  # the container restarted half-way
            used[len(used) // 2 :] -= used[len(used) // 2]
        inside = {**key, "container": "main", "image": "registry.example/x"}
        made.add("container_cpu_usage_seconds_total", inside, here, used)
        made.add("container_cpu_usage_seconds_total", {**key, "container": ""}, here, used)
        made.add("container_memory_working_set_bytes", inside, here, 3.0 * 2**30)
        for direction in ("receive", "transmit"):
            name = f"container_network_{direction}_bytes_total"
            made.add(name, {**key, "interface": "eth0"}, here, (here - here[0]) * 1000.0)


def _served(made: History, ts: np.ndarray) -> None:
    """One request a second, nine of ten within 1 s; infer-0's server starts again half-way."""
    seconds = ts - ts[0]
    for pod, space in (("fraud-scorer-6d8f7c9b5-x2k4q", "prod-fraud"), ("infer-0", "team-nlp")):
        key = {"job": "vllm", "namespace": space, "pod": pod, "model_name": "m", "engine": "0"}
        name = "vllm:e2e_request_latency_seconds"
        begun = seconds.copy()
        if pod == "infer-0":
            begun[len(begun) // 2 :] -= begun[len(begun) // 2]
        for bound, share in LATENCIES.items():
            made.add(f"{name}_bucket", {**key, "le": bound}, ts, np.floor(begun * share))
        made.add(f"{name}_count", key, ts, np.floor(begun))
        made.add(f"{name}_sum", key, ts, np.round(begun * 0.6, 3))
    made.add(
        "revision_app_request_latencies_bucket",
        {"job": "kn", "namespace_name": "serving", "pod_name": "bert-embed-5f7", "le": "+Inf"},
        ts, seconds,
    )  # fmt: skip
    at = {"job": "kn", "namespace_name": "serving", "pod_name": "bert-embed-5f7"}
    bounded = {**at, "le": "50.0"}
    made.add("revision_app_request_latencies_bucket", bounded, ts, np.floor(seconds / 2))
    made.add("revision_app_request_latencies_sum", at, ts, seconds * 60.0)
    for model in ("a", "b"):
        key = {"job": "triton", "namespace": "team-nlp", "pod": "infer-1", "model": model}
        made.add("nv_inference_request_success", key, ts, seconds)
        made.add("nv_inference_request_duration_us", key, ts, seconds * 30_000)
    other = {"job": "vllm", "namespace": "kube-system", "pod": "kube-proxy-a01", "le": "+Inf"}
    made.add("vllm:e2e_request_latency_seconds_bucket", other, ts, seconds)


def _trained(made: History, ts: np.ndarray) -> None:
    """The job tells 12,000 tokens/s, its rank's steps take 2 s, and its memory is half used."""
    key = {"job": "train", "namespace": "team-genai", "pod": "llm-pretrain-worker-0"}
    made.add("trainer_throughput_tokens_per_sec", key, ts, 12_000.0)
    made.add("train_step_seconds_sum", {**key, "rank": "0"}, ts, ts - ts[0])
    made.add("train_step_seconds_count", {**key, "rank": "0"}, ts, np.floor((ts - ts[0]) / 2))
    made.add("train_samples_total", {**key, "rank": "0"}, ts, (ts - ts[0]) * 5)
    for device in "01":
        made.add("torch_memory_allocated_bytes", {**key, "device": device}, ts, 2.0**34)
        made.add("torch_memory_reserved_bytes", {**key, "device": device}, ts, 2.0**35)


def binary(name: str) -> str:
    """Return the path of a program, or skip the test that needs it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian package prometheus)")
    return found


def blocks(text: str, folder: Path) -> Path:
    """Write a history as blocks into `folder/data`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "series.om"
    source.write_text(text)
    subprocess.run(
        [
            binary("promtool"),
            "tsdb",
            "create-blocks-from",
            "--max-block-duration=24h",
            "openmetrics",
            str(source),
            str(folder / "data"),
        ],
        check=True,
        capture_output=True,
    )
    source.unlink()
    return folder / "data"


@contextmanager
def serving(
    data: Path, *flags: str, configured: str = "global: {scrape_interval: 1h}\n"
) -> Iterator[str]:
    """Serve a folder of blocks with a real Prometheus; yields its base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = data.parent / "prometheus.yml"
    config.write_text(configured)
    log = data.parent / "prometheus.log"
    command = [
        binary("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            url = f"http://127.0.0.1:{port}"
            _await(f"{url}/-/ready", process, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(ready: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"prometheus ended: {log.read_text()[-600:]}")
        try:
            with urllib.request.urlopen(ready, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{ready} did not answer: {log.read_text()[-600:]}")
