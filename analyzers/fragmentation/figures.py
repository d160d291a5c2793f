"""The measure of one set of nodes: how much is free, how much of it is lost, and to what."""

from typing import Any

import msgspec
import numpy as np

from analyzers.fragmentation import packing
from analyzers.fragmentation.picture import Picture
from fallow.fragmentation import CAUSES, Integers, Measure, Reals

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
    """F_n of the pods that ask for GPUs: what the next of them is expected not to use."""

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
    every = Measure(picture.demand.types).fragments(cpu, gpu, models)
    asking = Measure(picture.demand.of_gpus()).fragments(cpu, gpu, models)
    shape = moments, nodes
    return Measured(gpu.sum(axis=1).reshape(shape), every.reshape(shape), asking.reshape(shape))


def causes(picture: Picture, rows: list[int]) -> dict[str, float]:
    """Return F(M) of some nodes at the last moment by cause, in milli-GPU, all causes named."""
    found = Measure(picture.demand.types).causes(
        picture.cpu[-1][rows], picture.gpu[-1][rows], [picture.nodes[n].model for n in rows]
    )
    return {NAMES[cause]: found[cause] for cause in CAUSES}


def figures(picture: Picture, said: Measured, rows: list[int], slot: int) -> Figures:
    """Return the figures of some nodes at the last moment."""
    free = packing.whole(picture.gpu[-1][rows])
    return Figures(
        nodes=len(rows),
        idle_gpus=_gpus(said.idle[-1][rows].sum()),
        fragmented_gpus=_gpus(said.fragments[-1][rows].sum()),
        by_cause={name: _gpus(milli) for name, milli in causes(picture, rows).items()},
        unusable_gpus=_gpus(said.unusable[-1][rows].sum()),
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


def _gpus(milli: float) -> float:
    return round(float(milli) / MILLI, DIGITS)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
