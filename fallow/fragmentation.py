"""Measure how much of the free GPU capacity the expected next pod could not use.

A node has free CPU c and free milli-GPU g_1..g_k. A pod type m requests q GPUs of mu each. It
strands F_n(m) =
    sum of g_i                      it requests no GPU, may not use this model, or does not fit:
                                    fewer than q of the g_i reach mu, or c is too small
    sum of the g_i under mu         it fits: only the remainders below mu are lost
F_n(M) is the mean over a mix M of types by popularity, F(M) the sum over the nodes. Memory is not
part of the measure. Source: Weng et al., "Beware of Fragmentation" (USENIX ATC'23, FGD).
Depends on numpy and msgspec only: the simulator's scheduler and the analyzers share it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt

from fallow.resources import read_table

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
CAUSES = ("lack-both", "lack-gpu", "lack-cpu", "sliver", "no-gpu", "no-gpu-lack-cpu", "no-access")
"""Why free GPU capacity is lost to a type; the two `no-gpu` causes are of types without a GPU."""
_CELLS = 2_000_000
"""Types x nodes x devices in memory at once: a few megabytes."""


class PodType(msgspec.Struct, frozen=True):
    """One type of pod and its share of the mix."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    """Milli-GPU of each GPU; 1000 = a whole GPU."""
    gpu_models: tuple[str, ...] = ()
    """Empty = any."""
    popularity: float = 1.0
    """Share of the mix; the mix sums to 1."""
    spec: str = ""
    """The models as the pod's spec spells them: the published measure counts specs with another
    spelling, or with a model named twice, as separate types."""


@cache
def read_typical_mix() -> tuple[PodType, ...]:
    """Return the default mix (`typical_pods.csv`): what the pods of the openb trace request.

    Source: Alibaba openb trace 2023 (Apache-2.0), reduced by `mix` to 95 % of 8,152 pods.
    """
    rows = read_table("fallow", "typical_pods.csv")
    pods = sum(int(row["pods"]) for row in rows)
    return tuple(
        PodType(
            int(row["cpu_milli"]),
            int(row["gpus"]),
            int(row["gpu_milli"]),
            popularity=int(row["pods"]) / pods,
        )
        for row in rows
    )


def mix(pods: Iterable[PodType], cover: float = 0.95) -> tuple[PodType, ...]:
    """Return the most popular types of pods; see `popular`. Each pod counts once."""
    return select_popular(
        Counter(msgspec.structs.replace(pod, popularity=0.0) for pod in pods), cover
    )


def select_popular(counts: Mapping[PodType, int], cover: float = 0.95) -> tuple[PodType, ...]:
    """Return the most popular types that together cover this share of the pods, renormalised.

    Types with equal counts are sorted by more CPU, then more of a GPU, then more GPUs. The types'
    own popularity is ignored.
    """
    ranked = sorted(
        counts.items(),
        key=lambda item: (
            item[1],
            item[0].cpu_milli,
            item[0].gpu_milli,
            item[0].gpus,
            item[0].gpu_models,
            item[0].spec,
        ),
        reverse=True,
    )
    remaining, chosen = cover * sum(counts.values()), []
    for kind, count in ranked:
        if remaining <= 0:
            break
        chosen.append((kind, count))
        remaining -= count
    total = sum(count for _, count in chosen)
    return tuple(msgspec.structs.replace(kind, popularity=n / total) for kind, n in chosen)


class FragmentationMeasure:
    """The measure for one mix, ready for many nodes."""

    def __init__(self, types: Sequence[PodType]) -> None:
        self._types = tuple(types)
        self._cpu = np.array([t.cpu_milli for t in types], np.int64)[:, None]
        self._count = np.array([t.gpus for t in types], np.int64)[:, None]
        # For a type that requests no GPU no g_i is large enough: all of them are lost to it.
        self._share = np.array([t.gpu_milli if t.gpus else 1 << 60 for t in types], np.int64)
        self._popularity = np.array([t.popularity for t in types], np.float64)
        self._picky = any(t.gpu_models for t in types)

    def fragments(self, cpu: Integers, gpu: Integers, models: Sequence[str] = ()) -> Reals:
        """Return F_n(M) of each node in milli-GPU.

        `cpu` is free milli-CPU [node], `gpu` free milli-GPU [node, device], 0 beyond a node's
        devices; `models` has each node's GPU model and may be empty where no type requires one.
        """
        lost_by_node = np.empty(len(cpu), np.float64)
        step = max(1, _CELLS // max(1, len(self._types) * gpu.shape[1]))
        for low in range(0, len(cpu), step):
            rows = slice(low, low + step)
            lost, *_ = self._lost(cpu[rows], gpu[rows], models[rows] if self._picky else ())
            lost_by_node[rows] = self._popularity @ lost
        return lost_by_node

    def causes(self, cpu: Integers, gpu: Integers, models: Sequence[str] = ()) -> dict[str, float]:
        """Return F(M) of all the nodes split by cause (`CAUSES`), in milli-GPU."""
        split = self.causes_by_node(cpu, gpu, models)
        return {cause: float(lost.sum()) for cause, lost in split.items()}

    def causes_by_node(
        self, cpu: Integers, gpu: Integers, models: Sequence[str] = ()
    ) -> dict[str, Reals]:
        """Return F_n(M) of each node split by cause (`CAUSES`), in milli-GPU."""
        lost, enough_gpu, access = self._lost(cpu, gpu, models)
        weighed = lost * self._popularity[:, None]
        needs_gpus = self._count > 0
        enough_cpu = cpu >= self._cpu
        masks = {
            "lack-both": needs_gpus & access & ~enough_gpu & ~enough_cpu,
            "lack-gpu": needs_gpus & access & ~enough_gpu & enough_cpu,
            "lack-cpu": needs_gpus & access & enough_gpu & ~enough_cpu,
            "sliver": needs_gpus & access & enough_gpu & enough_cpu,
            "no-gpu": ~needs_gpus & enough_cpu,
            "no-gpu-lack-cpu": ~needs_gpus & ~enough_cpu,
            "no-access": needs_gpus & ~access,
        }
        return {cause: np.where(masks[cause], weighed, 0.0).sum(axis=0) for cause in CAUSES}

    def _lost(
        self, cpu: Integers, gpu: Integers, models: Sequence[str]
    ) -> tuple[Integers, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        large = gpu[None] >= self._share[:, None, None]
        access = np.ones((len(self._types), len(cpu)), bool)
        if self._picky:
            for index, kind in enumerate(self._types):
                if kind.gpu_models:
                    access[index] = [model in kind.gpu_models for model in models]
        enough = large.sum(axis=2) >= self._count
        fits = (self._count > 0) & access & enough & (cpu >= self._cpu)
        slivers = np.where(large, 0, gpu[None]).sum(axis=2)
        return np.where(fits, slivers, gpu.sum(axis=1)), enough, access
