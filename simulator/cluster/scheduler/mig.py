"""Serve GPUs in MIG mode: which instances they can serve, hold and release.

`fallow.mig` defines where instances fit; a GPU's used slices are a bit mask.
"""

from collections.abc import Iterable, Sequence

from fallow.errors import UsageError
from fallow.mig import (
    compute_stranded,
    find_layout,
    get_profile,
    list_profiles,
    open_starts,
    read_models,
)
from simulator.cluster.scheduler.requests import WHOLE, MigDevice, MigInstance

__all__ = [
    "compute_stranded",
    "count_spare",
    "get_profile",
    "get_used_slices",
    "give_back",
    "hold",
    "lay_out",
    "list_free_starts",
    "list_profiles",
    "open_starts",
    "read_models",
]


def get_used_slices(gpu_model: str, instances: Iterable[MigInstance]) -> int:
    """Return the memory slices that instances lie on, as bits.

    Raises:
        UsageError: a start that is not legal, slices used twice, or too many of a profile.
    """
    mask = 0
    counts: dict[str, int] = {}
    for instance in instances:
        kind = get_profile(gpu_model, instance.profile)
        if instance.start not in kind.starts:
            starts = ", ".join(map(str, kind.starts))
            raise UsageError(
                f"{instance.profile} cannot start at slice {instance.start} of a {gpu_model}",
                hint=f"legal starts: {starts}",
            )
        counts[kind.name] = counts.get(kind.name, 0) + 1
        if mask & kind.mask(instance.start) or counts[kind.name] > kind.most:
            raise UsageError(f"{instance.profile} at {instance.start} has no room on its GPU")
        mask |= kind.mask(instance.start)
    return mask


def list_free_starts(gpu_model: str, device: MigDevice, name: str) -> tuple[int, ...]:
    """Return the starts at which a GPU can serve one more instance of a profile."""
    if device.fixed:
        return tuple(i.start for i in device.instances if i.profile == name and not i.allocated)
    kind = read_models().get(gpu_model, {}).get(name)
    same_profile = sum(i.profile == name for i in device.instances)
    if kind is None or same_profile >= kind.most:
        return ()
    starts = open_starts(gpu_model, get_used_slices(gpu_model, device.instances), name)
    return starts[: kind.most - same_profile] if kind.most < len(kind.starts) else starts


def count_spare(gpu_model: str, device: MigDevice) -> int:
    """Return the milli-GPU, by memory slices, that no pod holds and some pod could."""
    kinds = list_profiles(gpu_model)
    slices = max(kind.size for kind in kinds.values())
    if device.fixed:
        free = sum(kinds[i.profile].size for i in device.instances if not i.allocated)
    else:
        free = slices - get_used_slices(gpu_model, device.instances).bit_count()
    return free * WHOLE // slices


def hold(device: MigDevice, instance: MigInstance) -> MigDevice:
    """Return the GPU with an instance held, created first if the GPU's layout is not fixed."""
    rest = tuple(i for i in device.instances if i.start != instance.start)
    held_instance = MigInstance(instance.profile, instance.start, allocated=True)
    return MigDevice(tuple(sorted((*rest, held_instance), key=lambda i: i.start)), device.fixed)


def give_back(device: MigDevice, instance: MigInstance) -> MigDevice:
    """Return the GPU without that holder; if its layout is not fixed, without the instance."""
    rest = tuple(i for i in device.instances if i.start != instance.start)
    fixed_instances = (MigInstance(instance.profile, instance.start),) if device.fixed else ()
    return MigDevice(tuple(sorted((*rest, *fixed_instances), key=lambda i: i.start)), device.fixed)


def lay_out(gpu_model: str, names: Sequence[str]) -> tuple[MigInstance, ...]:
    """Return legal places for a GPU's profiles (`3g.40gb`, `2g.20gb`, ...), by start.

    Raises:
        UsageError: an unknown model or profile, or a set that no layout holds.
    """
    return tuple(MigInstance(name, start) for name, start in find_layout(gpu_model, names))
