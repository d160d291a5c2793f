"""Attribute the lost GPUs of a node to its pods.

GPUs lost for lack of CPU are attributed to the pods that request more CPU than their GPUs' share of
the node, in proportion to the excess. GPUs lost for lack of GPUs, slivers included, are attributed
to the pods that hold GPUs there, in proportion to their number. If both lack, each cause gets half.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from analyzers.fragmentation.cluster_state import ClusterState
from analyzers.fragmentation.rows import NodePod
from fallow.fragmentation import FragmentationMeasure, PodType
from fallow.models import UNRESOLVED

MOST_BLOCKERS = 10
"""Maximum number of workloads that a finding names."""

MILLI = 1000


def rank_blockers(
    state: ClusterState, rows: list[int], types: Sequence[PodType]
) -> list[dict[str, Any]]:
    """Return the workloads that cost `types` the most free GPUs on these nodes, largest first."""
    by = FragmentationMeasure(types).causes_by_node(
        state.cpu[-1][rows], state.gpu[-1][rows], [state.nodes[n].model for n in rows]
    )
    for_cpu = dict(zip(rows, by["lack-cpu"] + by["lack-both"] / 2, strict=True))
    for_gpu = dict(zip(rows, by["lack-gpu"] + by["sliver"] + by["lack-both"] / 2, strict=True))
    row_of = {state.nodes[n].name: n for n in rows}
    there: dict[int, list[NodePod]] = defaultdict(list)
    for pod in state.pods:
        if pod.node in row_of:
            there[row_of[pod.node]].append(pod)
    owners: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for n, pods in there.items():
        node = state.nodes[n]
        part = (node.cpu_milli or 0) / max(node.gpus, 1)
        beyond = [max(0.0, pod.cpu_milli - part * pod.gpus) for pod in pods]
        cpu_weights = beyond if sum(beyond) else [float(pod.cpu_milli) for pod in pods]
        gpu_weights = [float(pod.gpus) for pod in pods]
        for pod, cpu, gpus in zip(pods, cpu_weights, gpu_weights, strict=True):
            kind = pod.workload_kind or UNRESOLVED
            sums = owners[pod.namespace or "", kind, pod.workload or pod.pod or ""]
            sums[0] += for_cpu[n] * cpu / (sum(cpu_weights) or 1)
            sums[1] += for_gpu[n] * gpus / (sum(gpu_weights) or 1)
            sums[2] += 1
    ranked = sorted(owners.items(), key=lambda item: (-item[1][0] - item[1][1], item[0]))
    return [
        {
            "namespace": namespace,
            "workload_kind": kind,
            "workload": workload,
            "pods": int(count),
            "gpus_lost": round(float(cpu + gpu) / MILLI, 3),
            "by_its_cpu": round(float(cpu) / MILLI, 3),
            "by_its_gpus": round(float(gpu) / MILLI, 3),
        }
        for (namespace, kind, workload), (cpu, gpu, count) in ranked[:MOST_BLOCKERS]
        if cpu + gpu > 0
    ]
