"""The request of the expected next pod: the mix of observed pods."""

from collections.abc import Sequence

import msgspec

from analyzers.fragmentation.rows import RequestedType
from fallow.fragmentation import PodType, read_typical_mix, select_popular
from fallow.gpu_models import parse_models

WHOLE = 1000


class RequestMix(msgspec.Struct, frozen=True):
    """The mix of one cluster."""

    types: tuple[PodType, ...]
    pods: int
    """The number of pods in the mix."""
    kinds: int
    """The number of different requests; `types` are the frequent ones."""
    assumed: bool = False
    """True: too few pods were observed, and this is the typical mix of another fleet."""
    profiles: tuple[tuple[str, float], ...] = ()
    """Requested MIG profiles, with their pods."""
    sizes: tuple[tuple[int, int, int], ...] = ()
    """(GPUs, milli-CPU, pods) of all that requested whole GPUs."""

    @classmethod
    def of(cls, rows: Sequence[RequestedType], cover: float, least_pods: int) -> "RequestMix":
        """Build the mix from rows of `requested_types.sql`.

        With fewer than `least_pods`, assume a typical one.
        """
        counts: dict[PodType, int] = {}
        profiles: dict[str, float] = {}
        for row in rows:
            if row.profile:
                profiles[row.profile] = profiles.get(row.profile, 0.0) + row.pods
                continue
            kind = PodType(
                row.cpu_milli,
                row.gpus,
                row.gpu_milli,
                parse_models(row.models),
                popularity=0.0,
                spec=row.models or "",
            )
            counts[kind] = counts.get(kind, 0) + row.pods
        seen = sum(counts.values())
        assumed = seen < least_pods or not any(kind.gpus for kind in counts)
        return cls(
            read_typical_mix() if assumed else select_popular(counts, cover),
            seen,
            len(counts),
            assumed,
            tuple(sorted(profiles.items())),
            tuple((k.gpus, k.cpu_milli, n) for k, n in counts.items() if k.gpu_milli == WHOLE),
        )

    @property
    def gpu_share(self) -> float:
        """Return the share of the mix that requests GPUs."""
        return sum(kind.popularity for kind in self.types if kind.gpus)

    def of_gpus(self) -> tuple[PodType, ...]:
        """Return the types that request GPUs, as a mix of their own."""
        return tuple(
            msgspec.structs.replace(kind, popularity=kind.popularity / self.gpu_share)
            for kind in self.types
            if kind.gpus
        )

    def cpu_per_gpu(self) -> int:
        """Return the median milli-CPU per GPU of the pods that request whole GPUs.

        0 = no such pod.
        """
        whole = [kind for kind in self.types if kind.gpus and kind.gpu_milli == WHOLE]
        return _compute_median([(k.cpu_milli / k.gpus, k.popularity) for k in whole])

    def cpu_of(self, gpus: int) -> int:
        """Return the median milli-CPU of the pods that request this many GPUs; 0 = no such pod."""
        return _compute_median(
            [(float(cpu), float(n)) for size, cpu, n in self.sizes if size == gpus]
        )


def _compute_median(weighed: Sequence[tuple[float, float]]) -> int:
    half, upto = sum(weight for _, weight in weighed) / 2, 0.0
    for value, weight in sorted(weighed):
        upto += weight
        if upto >= half:
            return round(value)
    return 0
