"""Measure a set of nodes: free capacity, the lost part of it, and the causes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.fragmentation import packing
from analyzers.fragmentation.cluster_state import ClusterState
from analyzers.fragmentation.node_pools import ModelPool, NextPods, group_pools
from fallow.fragmentation import CAUSES, FragmentationMeasure, Integers, PodType, Reals

MILLI = 1000
NAMES = {
    "lack-gpu": "lack_gpu",
    "lack-cpu": "lack_cpu",
    "lack-both": "lack_both",
    "sliver": "sliver",
    "no-access": "no_access",
    "no-gpu": "cpu_only_demand",
    "no-gpu-lack-cpu": "cpu_only_demand_lack_cpu",
}
"""The measure's causes as findings name them."""

DIGITS = 6


class ClusterMeasurement(msgspec.Struct):
    """A cluster's nodes, measured at every time; in milli-GPU [time, node]."""

    idle: Integers
    fragments: Reals
    """F_n(M) of the whole mix."""
    unusable: Reals
    """F_n of the pods that come next: the expected capacity that the next of them cannot use."""
    next_pods: NextPods

    def ratio(self) -> Reals:
        """Return the share of each node's free GPU time that the next GPU pod cannot use."""
        idle = self.idle.sum(axis=0)
        lost = self.unusable.sum(axis=0)
        ratios: Reals = np.divide(lost, idle, out=np.zeros(len(idle)), where=idle > 0)
        return ratios


class FragmentationFigures(msgspec.Struct, frozen=True):
    """The figures in `details` and `summary`, in GPUs, at the last time."""

    nodes: int
    idle_gpus: float
    fragmented_gpus: float
    by_cause: dict[str, float]
    unusable_gpus: float
    unusable_by_cause: dict[str, float]
    whole_free_gpus: int
    packing: dict[str, dict[str, Any]]
    largest_job_gpus: int
    gang_slots: int


def measure(state: ClusterState) -> ClusterMeasurement:
    """Measure every node at every time."""
    count, nodes, width = state.gpu.shape
    cpu = state.cpu.reshape(-1)
    gpu = state.gpu.reshape(-1, width)
    models = [node.model for node in state.nodes] * count
    shape = count, nodes
    every = FragmentationMeasure(state.demand.types).fragments(cpu, gpu, models)
    unusable = (
        FragmentationMeasure(state.demand.of_gpus()).fragments(cpu, gpu, models).reshape(shape)
    )
    next_pods = NextPods(state)
    for pool in group_pools(state) if any(state.pending) else ():
        of_pool = [pool.model] * len(pool.rows)
        for m in range(count):
            if next_pods.waiting(pool, m):
                measure = FragmentationMeasure(next_pods.types(pool, m))
                now = state.cpu[m][pool.rows], state.gpu[m][pool.rows]
                unusable[m, pool.rows] = measure.fragments(*now, of_pool)
    return ClusterMeasurement(
        gpu.sum(axis=1).reshape(shape), every.reshape(shape), unusable, next_pods
    )


def sum_causes(state: ClusterState, rows: list[int], types: Sequence[PodType]) -> dict[str, float]:
    """Return the loss of some nodes at the last time by cause, in milli-GPU, by all causes."""
    causes = FragmentationMeasure(types).causes(
        state.cpu[-1][rows], state.gpu[-1][rows], [state.nodes[n].model for n in rows]
    )
    return {NAMES[cause]: causes[cause] for cause in CAUSES}


def measure_packable(
    state: ClusterState, measurement: ClusterMeasurement, pool: ModelPool
) -> float:
    """Return the most of a pool's loss that better packing could make usable, as a share.

    Pods that request more GPUs than are free in the whole pool, or than a node has, can use none
    of them, wherever the others are placed.
    """
    largest = MILLI * max(len(state.devices[n]) for n in pool.rows)
    lost = measurement.unusable[:, pool.rows].sum(axis=1)
    free = measurement.idle[:, pool.rows].sum(axis=1)
    stays = 0.0
    for nth, idle in enumerate(free.tolist()):
        without = sum(
            pod.popularity
            for pod in measurement.next_pods.types(pool, nth)
            if pod.gpus * pod.gpu_milli > min(idle, largest)
            or (pod.gpu_models and pool.model not in pod.gpu_models)
        )
        stays += min(float(lost[nth]), without * idle)
    return 1 - stays / float(lost.sum()) if lost.sum() else 0.0


def _sum_unusable(
    state: ClusterState, measurement: ClusterMeasurement, rows: list[int]
) -> dict[str, float]:
    """Return what the pods that come next cannot use, by cause, in milli-GPU."""
    sums = dict.fromkeys(NAMES.values(), 0.0)
    among = set(rows)
    for pool in group_pools(state):
        mine = [n for n in pool.rows if n in among]
        for cause, lost in sum_causes(state, mine, measurement.next_pods.types(pool)).items():
            sums[cause] += lost
    return {cause: lost for cause, lost in sums.items() if not cause.startswith("cpu_only")}


def compute_figures(
    state: ClusterState, measurement: ClusterMeasurement, rows: list[int], slot: int
) -> FragmentationFigures:
    """Return the figures of some nodes at the last time."""
    free = packing.count_whole(state.gpu[-1][rows])
    return FragmentationFigures(
        nodes=len(rows),
        idle_gpus=_convert_to_gpus(measurement.idle[-1][rows].sum()),
        fragmented_gpus=_convert_to_gpus(measurement.fragments[-1][rows].sum()),
        by_cause=_convert_all(sum_causes(state, rows, state.demand.types)),
        unusable_gpus=_convert_to_gpus(measurement.unusable[-1][rows].sum()),
        unusable_by_cause=_convert_all(_sum_unusable(state, measurement, rows)),
        whole_free_gpus=int(free.sum()),
        packing={
            str(size): {
                "jobs_that_fit": packing.count_fitting(free, size),
                "packability": _round_value(packing.compute_packability(free, size)),
                "free_on_smaller_remainders": packing.count_short(free, size),
            }
            for size in packing.SIZES
        },
        largest_job_gpus=packing.find_largest(free),
        gang_slots=packing.count_fitting(free, slot),
    )


def probe_cpu(state: ClusterState, rows: list[int]) -> dict[str, int] | None:
    """Return how many pods of 1 GPU with the usual CPU fit, and the GPUs without that CPU."""
    cpu = state.demand.cpu_per_gpu()
    if not cpu:
        return None
    free = packing.count_whole(state.gpu[-1][rows])
    fit, blocked = packing.probe_request(free, state.cpu[-1][rows], 1, cpu)
    return {"cpu_milli_per_gpu": cpu, "pods_that_fit": fit, "free_gpus_that_lack_cpu": blocked}


def _convert_all(milli: Mapping[str, float]) -> dict[str, float]:
    return {name: _convert_to_gpus(value) for name, value in milli.items()}


def _convert_to_gpus(milli: float) -> float:
    return round(float(milli) / MILLI, DIGITS)


def _round_value(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
