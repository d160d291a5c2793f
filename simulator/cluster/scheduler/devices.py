"""Choose which devices, replicas or MIG instances of a node a pod gets."""

import itertools
from collections.abc import Iterator

import numpy as np

from simulator.cluster.scheduler import mig
from simulator.cluster.scheduler.fleet import SchedulerFleet, is_whole
from simulator.cluster.scheduler.requests import (
    WHOLE,
    MigDevice,
    MigInstance,
    Placement,
    PodRequest,
    Policy,
)


def choose_placement(
    request: PodRequest, fleet: SchedulerFleet, row: int, policy: Policy, device: int | None = None
) -> Placement:
    """Return the placement on a feasible node.

    Whole GPUs: the lowest free indices. A share: the device with the least free that fits.
    Time slicing: the emptiest device first, as NVIDIA's device plugin spreads. MIG: the lowest
    free instance; one cut on demand lies where it strands least unless the policy is first-fit.
    `device` overrules for a share (FGD knows better). Ties go to the lowest index.
    """
    node = fleet.names[row]
    if not request.gpus:
        return Placement(request.uid, node)
    if request.profile or (is_whole(request) and fleet.single[row]):
        instances_served = itertools.islice(_list_served(request, fleet, row, policy), request.gpus)
        devices, instances = zip(*instances_served, strict=True)
        return Placement(request.uid, node, devices, 0, instances)
    free = fleet.usable[row]
    need = fleet.need_on(request, row)
    if device is not None:
        return Placement(request.uid, node, (device,), need)
    fits = np.flatnonzero(free >= need)
    if need < WHOLE:
        spread = fleet.replicas[row] > 1
        fits = fits[np.argsort(-free[fits] if spread else free[fits], kind="stable")]
    return Placement(request.uid, node, tuple(int(d) for d in fits[: request.gpus]), need)


def _list_served(
    request: PodRequest, fleet: SchedulerFleet, row: int, policy: Policy
) -> Iterator[tuple[int, MigInstance]]:
    """Yield instances in the order of serving, each held before the next one is searched."""
    mig_devices = dict(enumerate(fleet.mig_devices[row]))
    while True:
        choices = [
            (_cost(fleet.models[row], mig_device, name, start, policy), device, start, name)
            for device in fleet.healthy(row)
            if (mig_device := mig_devices[device]) is not None
            for name in (
                [request.profile] if request.profile else mig.list_profiles(fleet.models[row])
            )
            for start in mig.list_free_starts(fleet.models[row], mig_device, name)
        ]
        if not choices:
            return
        _, device, start, name = min(choices)
        mig_device = mig_devices[device]
        if mig_device is not None:
            mig_devices[device] = mig.hold(mig_device, MigInstance(name, start))
        yield device, MigInstance(name, start, allocated=True)


def _cost(gpu_model: str, mig_device: MigDevice, name: str, start: int, policy: Policy) -> float:
    if mig_device.fixed or policy == "first-fit":
        return 0.0
    used_slices = mig.get_used_slices(gpu_model, mig_device.instances)
    after = used_slices | mig.get_profile(gpu_model, name).mask(start)
    return mig.compute_stranded(gpu_model, after) - mig.compute_stranded(gpu_model, used_slices)
