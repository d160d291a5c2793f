"""The measure of one set of nodes: how much is free, how much of it is lost, and to what."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.fragmentation import packing
from analyzers.fragmentation.node_pools import NextPods, pools
from analyzers.fragmentation.picture import Picture
from fallow.fragmentation import CAUSES, Integers, Measure, PodType, Reals

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
"""The measure's causes as findings spell them."""

DIGITS = 6


class Measured(msgspec.Struct):
    """A cluster's nodes, measured at every moment; in milli-GPU [moment, node]."""

    idle: Integers
    fragments: Reals
    """F_n(M) of the whole mix."""
    unusable: Reals
    """F_n of the pods that come next: what the next of them is expected not to use."""
    next_pods: NextPods

    def ratio(self) -> Reals:
        """Return the part of each node's free GPU time that the next GPU pod cannot use."""
        idle = self.idle.sum(axis=0)
        lost = self.unusable.sum(axis=0)
        found: Reals = np.divide(lost, idle, out=np.zeros(len(idle)), where=idle > 0)
        return found


class Figures(msgspec.Struct, frozen=True):
    """What `details` and `summary` carry, in GPUs, at the last moment."""

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


def measured(picture: Picture) -> Measured:
    """Measure every node at every moment."""
    moments, nodes, width = picture.gpu.shape
    cpu = picture.cpu.reshape(-1)
    gpu = picture.gpu.reshape(-1, width)
    models = [node.model for node in picture.nodes] * moments
    shape = moments, nodes
    every = Measure(picture.demand.types).fragments(cpu, gpu, models)
    asking = Measure(picture.demand.of_gpus()).fragments(cpu, gpu, models).reshape(shape)
    next_pods = NextPods(picture)
    for pool in pools(picture) if any(picture.pending) else ():
        of_pool = [pool.model] * len(pool.rows)
        for m in range(moments):
            if next_pods.waiting(pool, m):
                measure = Measure(next_pods.types(pool, m))
                now = picture.cpu[m][pool.rows], picture.gpu[m][pool.rows]
                asking[m, pool.rows] = measure.fragments(*now, of_pool)
    return Measured(gpu.sum(axis=1).reshape(shape), every.reshape(shape), asking, next_pods)


def causes(picture: Picture, rows: list[int], types: Sequence[PodType]) -> dict[str, float]:
    """Return what some nodes lose at the last moment by cause, in milli-GPU, all causes named."""
    found = Measure(types).causes(
        picture.cpu[-1][rows], picture.gpu[-1][rows], [picture.nodes[n].model for n in rows]
    )
    return {NAMES[cause]: found[cause] for cause in CAUSES}


def _unusable_by_cause(picture: Picture, said: Measured, rows: list[int]) -> dict[str, float]:
    """Return what the pods that come next cannot use, by cause, in milli-GPU."""
    sums = dict.fromkeys(NAMES.values(), 0.0)
    among = set(rows)
    for pool in pools(picture):
        mine = [n for n in pool.rows if n in among]
        for cause, lost in causes(picture, mine, said.next_pods.types(pool)).items():
            sums[cause] += lost
    return {cause: lost for cause, lost in sums.items() if not cause.startswith("cpu_only")}


def figures(picture: Picture, said: Measured, rows: list[int], slot: int) -> Figures:
    """Return the figures of some nodes at the last moment."""
    free = packing.whole(picture.gpu[-1][rows])
    return Figures(
        nodes=len(rows),
        idle_gpus=_gpus(said.idle[-1][rows].sum()),
        fragmented_gpus=_gpus(said.fragments[-1][rows].sum()),
        by_cause=_all_gpus(causes(picture, rows, picture.demand.types)),
        unusable_gpus=_gpus(said.unusable[-1][rows].sum()),
        unusable_by_cause=_all_gpus(_unusable_by_cause(picture, said, rows)),
        whole_free_gpus=int(free.sum()),
        packing={
            str(size): {
                "jobs_that_fit": packing.fitting(free, size),
                "packability": _round(packing.packability(free, size)),
                "free_on_smaller_remainders": packing.short(free, size),
            }
            for size in packing.SIZES
        },
        largest_job_gpus=packing.largest(free),
        gang_slots=packing.fitting(free, slot),
    )


def cpu_probe(picture: Picture, rows: list[int]) -> dict[str, int] | None:
    """Say how many pods of 1 GPU with the usual CPU fit, and which GPUs lack that CPU."""
    cpu = picture.demand.cpu_per_gpu()
    if not cpu:
        return None
    free = packing.whole(picture.gpu[-1][rows])
    fit, blocked = packing.probe(free, picture.cpu[-1][rows], 1, cpu)
    return {"cpu_milli_per_gpu": cpu, "pods_that_fit": fit, "free_gpus_that_lack_cpu": blocked}


def _all_gpus(milli: Mapping[str, float]) -> dict[str, float]:
    return {name: _gpus(value) for name, value in milli.items()}


def _gpus(milli: float) -> float:
    return round(float(milli) / MILLI, DIGITS)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
