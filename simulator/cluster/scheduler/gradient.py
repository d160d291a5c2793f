"""Place by FGD: where a pod raises the fragmentation measure least.

The result for a request and a node is kept until the node changes. Most pods repeat an earlier
request, so that only the nodes changed since then are measured again.
"""

import numpy as np

from fallow.fragmentation import Integers, Reals
from simulator.cluster.scheduler import mig
from simulator.cluster.scheduler.devices import choose_placement
from simulator.cluster.scheduler.fleet import Marks, SchedulerFleet, is_whole
from simulator.cluster.scheduler.requests import WHOLE, PodRequest

_DIGITS = 6
"""Of a milli-GPU: differences beyond are the order of summing, not a choice."""
_ANY = -1


def find_least(request: PodRequest, fleet: SchedulerFleet, fits: Marks) -> tuple[int, int | None]:
    """Return the node of the least gradient among those that fit, and the device of a share."""
    key = (
        request.cpu_milli,
        request.gpus,
        request.gpu_milli,
        request.gpu_memory_mib,
        request.profile,
    )
    if key not in fleet.gradients:
        nothing = np.full(len(fleet.nodes), _ANY, np.int64)
        fleet.gradients[key] = nothing, np.zeros(len(fleet.nodes)), nothing.copy()
    seen, change, device = fleet.gradients[key]
    stale = np.flatnonzero(fits & (seen != fleet.version))
    if len(stale):
        change[stale], device[stale] = _compute_gradient(request, fleet, stale)
        seen[stale] = fleet.version[stale]
    rows = np.flatnonzero(fits)
    row = int(rows[np.argmin(change[rows])])
    return row, None if device[row] == _ANY else int(device[row])


def _compute_gradient(
    request: PodRequest, fleet: SchedulerFleet, rows: Integers
) -> tuple[Reals, Integers]:
    device = np.full(len(rows), _ANY, np.int64)
    cpu, free = fleet.cpu[rows], fleet.usable[rows]
    before = _measure_change(fleet, rows, cpu, free)
    cpu = cpu - request.cpu_milli
    if not request.gpus:
        after = _measure_change(fleet, rows, cpu, free)
    elif request.gpus == 1 and not is_whole(request) and not request.profile:
        after, device = _find_best_share(request, fleet, rows, cpu, free)
    else:
        after = _measure_change(fleet, rows, cpu, _compute_free_after(request, fleet, rows, free))
        after += _compute_mig_change(request, fleet, rows)
    return np.round(after - before, _DIGITS), device


def _find_best_share(
    request: PodRequest, fleet: SchedulerFleet, rows: Integers, cpu: Integers, free: Integers
) -> tuple[Reals, Integers]:
    """Try a share on every device of every node."""
    width = free.shape[1]
    need = fleet.need(request)[rows]
    options = np.repeat(free[:, None, :], width, axis=1)
    diagonal = np.arange(width)
    options[:, diagonal, diagonal] -= need[:, None]
    legal = free >= need[:, None]
    after = np.full(free.shape, np.inf)
    at, _ = np.nonzero(legal)
    after[legal] = _measure_change(fleet, rows[at], cpu[at], options[legal])
    # Equal gradients: the device with the least free, then the lowest index.
    rounded = np.round(after, _DIGITS)
    least_free = np.where(rounded == rounded.min(axis=1, keepdims=True), free, WHOLE + 1)
    device = least_free.argmin(axis=1)
    return after[np.arange(len(rows)), device], device


def _compute_free_after(
    request: PodRequest, fleet: SchedulerFleet, rows: Integers, free: Integers
) -> Integers:
    """Return the free devices after the pod took what `placement` would give it."""
    after = free.copy()
    plain = is_whole(request) & (fleet.replicas[rows] == 1) & ~fleet.single[rows]
    whole = (free == WHOLE) & plain[:, None]
    after[whole & (whole.cumsum(axis=1) <= request.gpus)] = 0
    if request.profile:
        return after
    for at in np.flatnonzero(~plain & ~fleet.single[rows]):
        where = choose_placement(request, fleet, int(rows[at]), "fgd")
        after[at, list(where.devices)] -= where.gpu_milli
    return after


def _compute_mig_change(request: PodRequest, fleet: SchedulerFleet, rows: Integers) -> Reals:
    """Return how many milli-GPU of the GPUs' free slices are stranded in addition."""
    change = np.zeros(len(rows))
    for at, row in enumerate(rows):
        if not (request.profile or fleet.single[row]):
            continue
        model = fleet.models[row]
        where = choose_placement(request, fleet, int(row), "fgd")
        mig_devices = {device: fleet.mig_devices[row][device] for device in where.devices}
        slices = max(kind.size for kind in mig.list_profiles(model).values())
        for device, instance in zip(where.devices, where.instances, strict=True):
            mig_device = mig_devices[device]
            if mig_device is None or mig_device.fixed:
                continue
            mig_devices[device] = grown = mig.hold(mig_device, instance)
            lost = mig.compute_stranded(model, mig.get_used_slices(model, grown.instances))
            lost -= mig.compute_stranded(model, mig.get_used_slices(model, mig_device.instances))
            change[at] += lost * WHOLE / slices
    return change


def _measure_change(fleet: SchedulerFleet, rows: Integers, cpu: Integers, free: Integers) -> Reals:
    return fleet.measure.fragments(cpu, free, [fleet.models[row] for row in rows])
