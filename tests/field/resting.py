"""Workloads whose GPUs rest, behind a real Prometheus: what may be done to them.

Each rests in the same way; what it is asked for, what its host does and who protects it differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.field.history import Scrape, scrape_gpu, scrape_node
from tests.field.site import H100, IDLE, ago, build_node, build_pod, write_time
from tests.field.situation import Situation

CADVISOR = {"job": "kubelet", "metrics_path": "/metrics/cadvisor", "instance": "10.0.0.1:10250"}
SERVER = {"job": "serving", "instance": "10.244.0.7:8000"}
QUIET: Mapping[str, float] = {
    "container_cpu_usage_seconds_total": 1.2,
    "container_network_receive_bytes_total": 9_000,
    "container_network_transmit_bytes_total": 6_000,
    "container_fs_reads_bytes_total": 0,
    "container_fs_writes_bytes_total": 600,
}
"""What a resting pod's counters grow by in a minute."""
VLLM = {
    "vllm:request_success_total": 3.0, "vllm:num_requests_running": 0.0,
    "vllm:num_requests_waiting": 0.0,
}  # fmt: skip
"""A vLLM that nobody asks."""
HOURS = 6.0
KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "Notebook": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1",
}


def rest(
    name: str,
    *,
    kind: str = "Deployment",
    host: Mapping[str, float | None] | None = None,
    serving: Sequence[Scrape] = (),
    node: str = "",
    since: float = HOURS,
    metrics: Mapping[str, float] = IDLE,
    **pod: Any,
) -> tuple[list[Mapping[str, Any]], list[Scrape]]:
    """Return objects and series of a workload with one pod, whose GPU is idle.

    `host`: counters that differ from `QUIET`; None: the series is absent.
    """
    node, who = node or f"n-{name}", f"{name}-0"
    owner = {
        "apiVersion": KINDS[kind], "kind": kind,
        "metadata": {
            "name": name, "namespace": "ml", "uid": f"uid-of-{name}",
            "creationTimestamp": write_time(ago(48)),
        },
        "spec": {"replicas": 1},
    }  # fmt: skip
    made = build_pod(who, node, gpus=1, born=48, **pod)
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": KINDS[kind], "kind": kind, "name": name, "uid": f"uid-of-{name}",
            "controller": True,
        }
    ]  # fmt: skip
    gpu = {
        "UUID": f"GPU-{name}", "gpu": "0", "modelName": H100, "Hostname": node,
        "exported_pod": who, "exported_namespace": "ml", "exported_container": "c",
    }  # fmt: skip
    series = [*scrape_gpu(gpu, metrics, since=since), *scrape_node(node, 1, since=since)]
    for metric, growth in {**QUIET, **(host or {})}.items():
        if growth is not None:
            series.append(count(metric, who, growth, since=since))
    return [build_node(node, 1, born=48), owner, made], [*series, *serving]


def count(
    metric: str, pod: str, growth: float, *, since: float = HOURS, until: float = 0, **labels: str
) -> Scrape:
    """Return a counter of cAdvisor that grows by so much in a minute."""
    where = {"namespace": "ml", "pod": pod, "node": f"n-{pod[:-2]}", **CADVISOR}
    of = {"container": "c", "id": f"/kubepods/{pod}/c"}
    if "network" in metric:
        of = {"interface": "eth0", "id": f"/kubepods/{pod}"}
    if "_fs_" in metric:
        of["device"] = "/dev/nvme1n1"
    return Scrape(metric, {**where, **of, **labels}, 5, since, until, slope=growth)


def load(
    name: str,
    values: Mapping[str, float],
    labels: Mapping[str, str] | None = None,
    *,
    since: float = HOURS,
    until: float = 0,
) -> list[Scrape]:
    """Return what a model server says of its load: gauges by name, and counters of 0 growth."""
    where = {"namespace": "ml", "pod": f"{name}-0", **SERVER, **(labels or {})}
    return [
        Scrape(metric, where, value, since, until, offset_s=7) for metric, value in values.items()
    ]


def grow(name: str, metric: str, growth: float, **labels: str) -> Scrape:
    """Return a counter of a model server that grows by so much in a minute."""
    where = {"namespace": "ml", "pod": f"{name}-0", **SERVER, **labels}
    return Scrape(metric, where, 40, offset_s=7, slope=growth)


def budget(
    name: str,
    labels: Mapping[str, str],
    allowed: int | None,
    *,
    wants: str = "minAvailable",
    value: int | str = 1,
    namespace: str = "ml",
    expected: int = 1,
) -> Mapping[str, Any]:
    """Return a disruption budget; None: no controller has counted it."""
    status = {
        "disruptionsAllowed": allowed, "currentHealthy": expected, "desiredHealthy": expected,
        "expectedPods": expected, "observedGeneration": 1,
    }  # fmt: skip
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-pdb-{name}", "generation": 1,
            "creationTimestamp": write_time(ago(48)),
        },
        "spec": {wants: value, "selector": {"matchLabels": dict(labels)}},
        **({} if allowed is None else {"status": status}),
    }  # fmt: skip


Part = tuple[list[Mapping[str, Any]], list[Scrape]]


def build_situation(
    kind: str,
    parts: Sequence[Part],
    stops: Mapping[str, str],
    *,
    objects: Sequence[Mapping[str, Any]] = (),
    lifted: tuple[str, str] = ("", ""),
    long: bool = True,
) -> Situation:
    """Return a situation of resting workloads, and what a policy that stops them says of each.

    `stops`: by workload, empty: it would be stopped once notice and trust are there, `no finding`,
    or words of why not. `lifted`: what a policy names in `allow.held_by`, and who is stopped then.
    """
    return Situation(
        kind=kind,
        dumps=[[*(o for made, _ in parts for o in made), *objects]],
        scrapes=[s for _, series in parts for s in series],
        stops=stops,
        lifted=lifted,
        long=long,
    )
