"""Measure GPUs in MIG mode: their free slices, and how many the next instance cannot use.

The measure uses memory slices instead of GPUs. A profile can use the free instances of that
profile; the rest of a GPU's free slices is stranded for it. The result is the mean over the
requested profiles. Another full layout that keeps the instances in use may strand less: the
difference is what a changed layout would make usable.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from analyzers.fragmentation.request_mix import RequestMix
from analyzers.fragmentation.rows import DeviceShare
from fallow import mig
from fallow.gpu_models import get_model_name

_FREE = 1e-6


class MigGpu(msgspec.Struct, frozen=True):
    """One GPU in MIG mode, in memory slices."""

    node: str
    parent: str
    model: str
    allocated: tuple[str, ...]
    free: tuple[str, ...]
    slices: int
    free_slices: int
    stranded: float
    """Free slices that the expected next instance cannot use in the present layout."""
    stranded_recut: float
    """The same with the layout below."""
    layout: tuple[str, ...]
    """The set of profiles that keeps the allocated ones and strands the least."""


def read_mig_devices(rows: Sequence[DeviceShare], demand: RequestMix) -> list[MigGpu]:
    """Return the GPUs whose model and profiles are known, of the rows of MIG instances."""
    of: dict[tuple[str, str], list[DeviceShare]] = defaultdict(list)
    for row in rows:
        of[row.node, row.parent or ""].append(row)
    gpus = []
    for (node, parent), instances in sorted(of.items()):
        name = get_model_name(instances[0].model) or ""
        model = _find_variant(name, [i.profile for i in instances])
        if model is None:
            continue
        allocated = sorted(i.profile or "" for i in instances if i.allocated > _FREE)
        free = sorted(i.profile or "" for i in instances if i.allocated <= _FREE)
        gpus.append(_build_mig_device((node, parent, model), allocated, free, demand))
    return gpus


def _find_variant(model: str, names: Sequence[str | None]) -> str | None:
    """Return the model whose table has all the profiles; GPU variants differ in memory."""
    models = mig.read_models()
    fits = [m for m in models if m.startswith(model) and all(n in models[m] for n in names)]
    return fits[0] if model and fits else None


def _build_mig_device(
    where: tuple[str, str, str], allocated: list[str], free: list[str], demand: RequestMix
) -> MigGpu:
    kinds = mig.list_profiles(where[2])
    slices = max(kind.size for kind in kinds.values())
    left = slices - sum(kinds[name].size for name in allocated)
    wanted = [(name, weight) for name, weight in demand.profiles if name in kinds]
    if not wanted:
        wanted = [(name, 1.0) for name in kinds if not name.endswith("+me")]
    total = sum(weight for _, weight in wanted)

    def lost(instances: Mapping[str, int]) -> float:
        usable = sum(w * instances.get(name, 0) * kinds[name].size for name, w in wanted)
        return left - usable / total

    # Exporters do not report where instances start: every full layout with those in use is tried.
    keep = Counter(allocated)
    sets = [names for names in mig.list_multisets(where[2]) if not keep - Counter(names)]
    best = min(((lost(Counter(names) - keep), names) for names in sets), default=None)
    now = lost(Counter(free)), tuple(sorted([*allocated, *free]))
    again = now if best is None or best[0] >= now[0] else best
    return MigGpu(*where, tuple(allocated), tuple(free), slices, left, now[0], *again)
