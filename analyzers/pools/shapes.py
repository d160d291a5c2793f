"""The requests of pods and the capacity of instance types, as arrays in one canonical order."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays import Ints

Marks = npt.NDArray[np.bool_]

WHOLE = 1000
"""Thousandths of a GPU."""
CPU, MEMORY, PODS = 0, 1, 2
Sharing = Literal["", "share", "mig"]
_SHARING: tuple[Sharing, ...] = ("", "share", "mig")


class PodShape(msgspec.Struct, frozen=True, order=True):
    """What one pod requests of a node. Empty strings and tuples mean any.

    Units: millicores, MiB, GPUs, thousandths of each GPU. A pod that requests parts of several GPUs
    is assumed to request whole ones.
    """

    gpus: int = 0
    milli: int = WHOLE
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    """Minimum memory of the GPU it runs on."""
    sharing: Sharing = ""
    vendor: str = ""
    arch: str = ""
    models: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    """Instance types that it names."""
    least_gpus: int = 0
    """GPUs that its node must have: a gang that computes over NVLink is not split."""


class TypeOffer(msgspec.Struct, frozen=True):
    """An instance type: its capacity for pods after the system and DaemonSets."""

    instance_type: str
    arch: str
    vendor: str
    gpu_model: str
    gpus: int
    gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int
    pods: int
    usd_h: Decimal | None
    as_of: datetime | None = None
    reference: str = ""

    def refuses(self, shape: PodShape) -> str | None:
        """Return why a pod can never run on an empty node of this type, or None."""
        tests = (
            ("instance type", not shape.types or self.instance_type in shape.types),
            ("architecture", shape.arch in {"", self.arch}),
            ("GPU vendor", not shape.gpus or shape.vendor in {"", self.vendor}),
            ("GPU model", not shape.gpus or not shape.models or self.gpu_model in shape.models),
            ("GPU memory", not shape.gpus or shape.gpu_memory_mib <= self.gpu_memory_mib),
            ("GPUs per node", not shape.gpus or max(shape.gpus, shape.least_gpus) <= self.gpus),
            ("CPU", shape.cpu_milli <= self.cpu_milli),
            ("memory", shape.memory_mib <= self.memory_mib),
            ("pods per node", self.pods > 0),
        )
        return next((reason for reason, fits in tests if not fits), None)


class PackingProblem:
    """Pods to place and types to place them on: `s` numbers the shapes, `t` the types.

    Types without a price are left out: they are never recommended. Where pods request GPUs, types
    whose GPUs no pod can use are not bought for the other pods either. The input order of pods and
    types makes no difference.
    """

    def __init__(self, pods: Mapping[PodShape, int], offers: Iterable[TypeOffer]) -> None:
        self.shapes = tuple(sorted(pods))
        self.count = _make_ints([pods[shape] for shape in self.shapes])
        priced = {o.instance_type: o for o in offers if o.usd_h is not None and o.usd_h > 0}
        self.offers = tuple(priced[name] for name in sorted(priced))
        self.price = np.array([float(o.usd_h or 0) for o in self.offers])
        self.need = _make_ints([(s.cpu_milli, s.memory_mib, 1) for s in self.shapes]).reshape(-1, 3)
        self.room = _make_ints([(o.cpu_milli, o.memory_mib, o.pods) for o in self.offers]).reshape(
            -1, 3
        )
        self.gpus = _make_ints([s.gpus for s in self.shapes])
        self.milli = _make_ints([_compute_milli(s) for s in self.shapes])
        self.sharing = _make_ints([_SHARING.index(s.sharing) for s in self.shapes])
        self.node_gpus = _make_ints([o.gpus for o in self.offers])
        refused = [[o.refuses(s) is not None for o in self.offers] for s in self.shapes]
        size = len(self.shapes), len(self.offers)
        self.allowed = ~np.array(refused, dtype=np.bool_).reshape(size)
        takers = self.gpus > 0
        if takers.any():
            self.allowed &= self.allowed[takers].any(axis=0)
        self.most = self._most()

    def _most(self) -> Ints:
        """Return how many pods of each shape fill an empty node of each type."""
        if not self.shapes or not self.offers:
            return np.zeros((len(self.shapes), len(self.offers)), dtype=np.int64)
        wanted = np.maximum(self.need, 1)
        fits = np.min(self.room[None, :, :] // wanted[:, None, :], axis=2)
        per_gpu = WHOLE // np.maximum(self.milli, 1)
        slots = (self.node_gpus[None, :] * per_gpu[:, None]) // np.maximum(self.gpus, 1)[:, None]
        fits = np.where(self.gpus[:, None] > 0, np.minimum(fits, slots), fits)
        most: Ints = np.where(self.allowed, fits, 0)
        return most

    def of(self, count: Ints) -> "PackingProblem":
        """Return the same shapes and types with other numbers of pods."""
        problem = copy.copy(self)
        problem.count = count
        return problem

    def unplaceable(self) -> tuple[PodShape, ...]:
        """Return the shapes that no type can take."""
        return tuple(
            s for n, s in enumerate(self.shapes) if self.count[n] and not self.most[n].any()
        )


def _compute_milli(shape: PodShape) -> int:
    if not shape.gpus:
        return 0
    return shape.milli if shape.gpus == 1 else WHOLE


def _make_ints(values: Sequence[object]) -> Ints:
    return np.array(values, dtype=np.int64)
