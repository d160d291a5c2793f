"""Track the devices: holders, outages, and what is free for the scheduler."""

from collections.abc import Sequence
from math import inf

import msgspec

from simulator.cluster.labels import build_labels
from simulator.cluster.nodes import (
    MAX_PODS,
    MIB_PER_GIB,
    SimulatedNode,
    count_resources,
    cut,
    get_reserved,
    list_devices,
    parse_taints,
)
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.requests import (
    WHOLE,
    MigDevice,
    MigInstance,
    NodeFree,
    Placement,
    PodRequest,
    Running,
)
from simulator.models import DeviceAllocation, Holder, Outage, SimulatedDevice

DAEMON_CPU_MILLI, DAEMON_MIB, DAEMON_PODS = 1_000, 2_048, 8
"""Requests of every node's DaemonSets (driver, device plugin, exporter, CNI, logs): a choice."""


class Hardware:
    """All devices of the fleet in one tuple, and their history."""

    def __init__(self, specs: Sequence[SimulatedNode], seed: int) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.devices: tuple[SimulatedDevice, ...] = list_devices(specs, seed)
        self.allocations: list[DeviceAllocation] = []
        self.outages: list[Outage] = []
        self.fleet = SchedulerFleet(_compute_free(spec) for spec in specs)
        self.placed: dict[str, dict[str, Running]] = {spec.name: {} for spec in specs}
        """The fleet's running pods by node and uid."""
        self.freed = False
        """Whether anything was released since the scheduler's last turn (it sets this to False)."""
        self._open: dict[str, int] = {}
        self._out: dict[int, int] = {}
        self._closing: dict[int, str] = {}
        self._users: dict[int, set[str]] = {}
        self.on_node: dict[str, list[int]] = {name: [] for name in self.specs}
        self._places: dict[tuple[str, int, int | None], int] = {}
        for place, device in enumerate(self.devices):
            self.on_node[device.node].append(place)
            start = None
            if device.instance is not None:
                layout = cut(self.specs[device.node].pool)[device.index] or ()
                start = next(p.start for p in layout if p.number == device.instance)
            self._places[device.node, device.index, start] = place

    def places(self, placement: Placement) -> tuple[int, ...]:
        """Return the devices of a placement as indices of the fleet's tuple."""
        starts: list[int | None] = [i.start for i in placement.instances]
        starts = starts or [None] * len(placement.devices)
        return tuple(
            self._places[placement.node, index, start]
            for index, start in zip(placement.devices, starts, strict=True)
        )

    def hold(
        self, request: PodRequest, placement: Placement, holder: Holder, now_s: float
    ) -> tuple[int, ...]:
        """Allocate a pod's placement; return its devices."""
        self.fleet.take(request, placement, now_s)
        self.placed[placement.node][request.uid] = self.fleet.running[request.uid]
        devices = self.places(placement)
        if devices:
            self.begin(request.uid, holder, devices, placement.share, now_s)
        return devices

    def begin(
        self, uid: str, holder: Holder, devices: tuple[int, ...], share: float, now_s: float
    ) -> None:
        """Begin an allocation."""
        self._open[uid] = len(self.allocations)
        self.allocations.append(DeviceAllocation(holder, devices, now_s, inf, share))
        for place in devices:
            self._users.setdefault(place, set()).add(uid)

    def end(self, uid: str, now_s: float) -> None:
        """End a pod's allocation; its placement may remain (a lost node that may return)."""
        number = self._open.pop(uid, None)
        if number is None:
            return
        allocation = self.allocations[number]
        self.allocations[number] = msgspec.structs.replace(allocation, end_s=now_s)
        for place in allocation.devices:
            self._users[place].discard(uid)
            if place in self._closing and not self._users[place]:
                self._stop(place, self._closing.pop(place), now_s)

    def release(self, uid: str, now_s: float) -> None:
        """Release the placement of a pod, if it has one."""
        self.end(uid, now_s)
        if uid not in self.fleet.running:
            return
        del self.placed[self.fleet.running[uid].placement.node][uid]
        self.fleet.release(uid)
        self.freed = True

    def stop(self, place: int, why: str, now_s: float) -> None:
        """Make a device unusable from now, or from the end of its last allocation."""
        if self._users.get(place):
            self._closing[place] = why
        else:
            self._stop(place, why, now_s)

    def _stop(self, place: int, why: str, now_s: float) -> None:
        self.resume(place, now_s)
        self._out[place] = len(self.outages)
        self.outages.append(Outage(place, now_s, inf, why))

    def resume(self, place: int, now_s: float) -> None:
        """End a device's outage."""
        self._closing.pop(place, None)
        number = self._out.pop(place, None)
        if number is not None:
            self.outages[number] = msgspec.structs.replace(self.outages[number], end_s=now_s)


def _compute_free(spec: SimulatedNode) -> NodeFree:
    pool = spec.pool
    cpu, memory = get_reserved(pool)
    mig_devices = [
        None if parts is None else MigDevice(tuple(MigInstance(p.profile, p.start) for p in parts))
        for parts in cut(pool)
    ]
    return NodeFree(
        name=spec.name,
        cpu_milli=pool.vcpu * 1000 - cpu - DAEMON_CPU_MILLI,
        memory_mib=pool.memory_gib * MIB_PER_GIB - memory - DAEMON_MIB,
        pods=MAX_PODS - DAEMON_PODS,
        gpu_milli=(WHOLE,) * pool.gpu_count,
        gpu_model=pool.gpu_model,
        mig=tuple(mig_devices) if pool.mig else (),
        mig_strategy="single" if pool.mig_strategy == "single" else "mixed",
        replicas=pool.replicas,
        labels=build_labels(spec.name, pool, count_resources(pool)),
        taints=parse_taints(pool),
    )
