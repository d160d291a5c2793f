"""Track what is free in the fleet, as arrays over nodes; built once, then updated."""

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from fallow.errors import UsageError
from fallow.fragmentation import FragmentationMeasure, Integers, PodType, Reals, read_typical_mix
from fallow.gpu_models import read_gpu_models
from simulator.cluster.scheduler import mig
from simulator.cluster.scheduler.eligibility import is_eligible, is_welcome
from simulator.cluster.scheduler.requests import (
    WHOLE,
    MigDevice,
    MigInstance,
    NodeFree,
    NodeTaint,
    Placement,
    PodRequest,
    Running,
)

Marks = npt.NDArray[np.bool_]
_STAMPS = itertools.count()
_CHANGING = (
    "cpu",
    "memory",
    "pods",
    "open",
    "version",
    "used_milli",
    "works",
    "usable",
    "most",
    "units",
    "spare",
)
MAX_REPLICAS = 31
"""More replicas would not divide 1,000 milli-GPU into as many equal whole parts."""


class SchedulerFleet:
    """Free resources of the nodes, by name, and the pods that hold the rest.

    Keep one for the life of a cluster: building costs a walk over the nodes, taking and giving
    back a few microseconds.

    Raises:
        UsageError: a name twice, an impossible MIG layout, too many replicas.
    """

    def __init__(self, nodes: Iterable[NodeFree], types: Sequence[PodType] | None = None) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.names = [node.name for node in self.nodes]
        self.place_of = {name: row for row, name in enumerate(self.names)}
        if len(self.place_of) < len(self.names):
            twice = next(a for a, b in zip(self.names, self.names[1:], strict=False) if a == b)
            raise UsageError(f"two nodes are called {twice!r}", hint="give each node its own name")
        self.running: dict[str, Running] = {}
        rows, width = len(self.nodes), max([1, *(len(node.gpu_milli) for node in self.nodes)])
        self.cpu = np.array([node.cpu_milli for node in self.nodes], np.int64)
        self.memory = np.array([node.memory_mib for node in self.nodes], np.int64)
        self.pods = np.array([node.pods for node in self.nodes], np.int64)
        self.open = np.array([node.open for node in self.nodes], bool)
        self.models = [node.gpu_model for node in self.nodes]
        self.replicas = np.array([node.replicas for node in self.nodes], np.int64)
        self.single = np.array([node.mig_strategy == "single" for node in self.nodes], bool)
        memory = {model.gpu_model: round(model.memory_gib * 1024) for model in read_gpu_models()}
        self.device_mib = np.array([memory.get(model, 0) for model in self.models], np.int64)
        self.version = np.zeros(rows, np.int64)
        """A number that differs after every change of a node, and from those of other fleets."""
        self.measure = FragmentationMeasure(read_typical_mix() if types is None else types)
        """The fragmentation measure of the expected pods (`types`), which fgd follows."""
        self.gradients: dict[object, tuple[Integers, Reals, Integers]] = {}
        """fgd's results by request: version seen, gradient, device. Copies share them."""
        self.used_milli = np.zeros((rows, width), np.int64)
        self.works = np.zeros((rows, width), bool)
        self.mig_devices: list[list[MigDevice | None]] = []
        self.usable = np.zeros((rows, width), np.int64)
        """Free milli-GPU that may be placed on: healthy devices that are not in MIG mode."""
        self.most = np.zeros(rows, np.int64)
        """The greatest of a node's usable."""
        self.units = np.zeros(rows, np.int64)
        """How many `nvidia.com/gpu` a node can still serve: devices, replicas or instances."""
        self.instances: dict[str, Integers] = {}
        """How many instances of each profile a node can still serve."""
        self.spare = np.zeros(rows, np.int64)
        """Milli-GPU that no pod holds, slices of GPUs in MIG mode included."""
        self._eligible: dict[object, tuple[Marks, Marks]] = {}
        for row, node in enumerate(self.nodes):
            self._lay(row, node)
            self.refresh(row)

    def copy(self) -> "SchedulerFleet":
        """Return a separate fleet for trials."""
        twin = copy.copy(self)
        for name in _CHANGING:
            setattr(twin, name, getattr(self, name).copy())
        twin.instances = {name: counts.copy() for name, counts in self.instances.items()}
        twin.mig_devices = [list(mig_devices) for mig_devices in self.mig_devices]
        twin.nodes = list(self.nodes)
        twin.running = dict(self.running)
        return twin

    def only(self, name: str, pods: Iterable[Running]) -> "SchedulerFleet":
        """Return a fleet of this one node, with only these of its pods, for trials."""
        row = self.place_of[name]
        single_node = SchedulerFleet([self.node(name)], types=())
        width = single_node.used_milli.shape[1]
        single_node.used_milli[0], single_node.works[0] = (
            self.used_milli[row, :width],
            self.works[row, :width],
        )
        single_node.refresh(0)
        single_node.running = {pod.request.uid: pod for pod in pods if pod.placement.node == name}
        return single_node

    def take(self, request: PodRequest, placement: Placement, started_s: float = 0.0) -> None:
        """Allocate a placement, until `release`.

        Raises:
            UsageError: the pod holds something already, or the place is not free.
        """
        row = self.place_of[placement.node]
        if placement.uid in self.running or not self.has_room(request, placement):
            raise UsageError(
                f"pod {request.name!r} cannot take {placement.node}",
                hint="a pod is placed once, on what is free: ask `place` first",
            )
        self._move(row, request, placement, 1)
        self.running[placement.uid] = Running(request, placement, started_s)

    def release(self, uid: str) -> Running:
        """Release what a pod holds."""
        running = self.running.pop(uid)
        self._move(self.place_of[running.placement.node], running.request, running.placement, -1)
        return running

    def has_room(self, request: PodRequest, placement: Placement) -> bool:
        """Return whether exactly this placement is free (health and cordons are ignored)."""
        row = self.place_of[placement.node]
        if placement.instances:
            room = all(
                instance.start
                in mig.list_free_starts(self.models[row], mig_device, instance.profile)
                for mig_device, instance in self._list_instances(row, placement)
            )
        else:
            used = [int(self.used_milli[row, device]) for device in placement.devices]
            room = all(part + placement.gpu_milli <= WHOLE for part in used)
        return bool(
            room
            and self.cpu[row] >= request.cpu_milli
            and self.memory[row] >= request.memory_mib
            and self.pods[row] >= 1
        )

    def close(self, node: str) -> None:
        """Allow no new placement on a node (cordoned, not ready); running pods stay."""
        self.open[self.place_of[node]] = False

    def reopen(self, node: str) -> None:
        """Allow placements on a node again."""
        self.open[self.place_of[node]] = True

    def lose_device(self, node: str, index: int) -> None:
        """Allow no new placement on a device (fallen off the bus, cordoned)."""
        self.works[self.place_of[node], index] = False
        self.refresh(self.place_of[node])

    def regain_device(self, node: str, index: int) -> None:
        """Allow placements on a device again."""
        self.works[self.place_of[node], index] = True
        self.refresh(self.place_of[node])

    def relabel(self, node: str, labels: Mapping[str, str], taints: tuple[NodeTaint, ...]) -> None:
        """Replace a node's labels and taints."""
        row = self.place_of[node]
        self.nodes[row] = msgspec.structs.replace(self.nodes[row], labels=labels, taints=taints)
        self._eligible = {}

    def node(self, name: str) -> NodeFree:
        """Return what is left on a node."""
        row = self.place_of[name]
        width = len(self.nodes[row].gpu_milli)
        return msgspec.structs.replace(
            self.nodes[row],
            cpu_milli=int(self.cpu[row]),
            memory_mib=int(self.memory[row]),
            pods=int(self.pods[row]),
            gpu_milli=tuple(int(free) for free in self.usable[row, :width]),
            mig=tuple(self.mig_devices[row]),
            open=bool(self.open[row]),
        )

    def feasible(self, request: PodRequest) -> Marks:
        """Return which nodes could take the pod now."""
        eligible, _ = self.eligible(request)
        fits: Marks = eligible & self.open & (self.pods >= 1)
        fits &= (self.cpu >= request.cpu_milli) & (self.memory >= request.memory_mib)
        if not request.gpus:
            return fits
        if request.profile:
            served = self.instances.get(request.profile)
            return np.zeros_like(fits) if served is None else fits & (served >= request.gpus)
        if is_whole(request):
            return np.asarray(fits & (self.units >= request.gpus))
        need = self.need(request)
        fits &= (need > 0) & (self.replicas == 1)
        if request.gpus == 1:
            return np.asarray(fits & (self.most >= need))
        enough = (self.usable >= need[:, None]).sum(axis=1) >= request.gpus
        return np.asarray(fits & enough)

    def need(self, request: PodRequest) -> Integers:
        """Return the milli-GPU of each device that the pod takes, by node; 0 = cannot.

        The greater of its share of cores and of memory, as the allocation rules count a HAMi pod.
        """
        if is_whole(request):
            return np.asarray(WHOLE // self.replicas)
        if not request.gpu_memory_mib:
            return np.full(len(self.nodes), request.gpu_milli, np.int64)
        return np.array([self.need_on(request, row) for row in range(len(self.nodes))], np.int64)

    def need_on(self, request: PodRequest, row: int) -> int:
        """Return the milli-GPU of each device that the pod takes on one node; 0 = cannot."""
        if is_whole(request):
            return WHOLE // int(self.replicas[row])
        if not request.gpu_memory_mib:
            return request.gpu_milli
        device_mib = int(self.device_mib[row])
        if request.gpu_memory_mib > device_mib:
            return 0
        return max(request.gpu_milli, -(-request.gpu_memory_mib * WHOLE // device_mib))

    def eligible(self, request: PodRequest) -> tuple[Marks, Marks]:
        """Return which nodes the pod may use at all, and which of them it prefers."""
        key = (request.selector, request.excluded, request.tolerations, request.gpu_models)
        if key not in self._eligible:
            may = np.array([is_eligible(request, node) for node in self.nodes], bool)
            rather = np.array([is_welcome(request, node) for node in self.nodes], bool)
            self._eligible[key] = may, rather
        return self._eligible[key]

    def healthy(self, row: int) -> list[int]:
        """Return the indices of a node's devices that work."""
        return [int(device) for device in np.flatnonzero(self.works[row])]

    def refresh(self, row: int, *, gpus: bool = True) -> None:
        """Compute again what a node can serve."""
        self.version[row] = next(_STAMPS)
        if not gpus:
            return
        free = np.where(self.works[row], WHOLE - self.used_milli[row], 0)
        self.spare[row] = self._recount(row, free) if any(self.mig_devices[row]) else free.sum()
        self.usable[row] = free
        self.most[row] = free.max()
        if not self.single[row]:
            self.units[row] = (free >= WHOLE // self.replicas[row]).sum()

    def _list_instances(
        self, row: int, placement: Placement
    ) -> list[tuple[MigDevice, MigInstance]]:
        pairs = zip(placement.devices, placement.instances, strict=True)
        mig_devices = self.mig_devices[row]
        return [
            (mig_device, i)
            for device, i in pairs
            if (mig_device := mig_devices[device]) is not None
        ]

    def _move(self, row: int, request: PodRequest, placement: Placement, sign: int) -> None:
        self.cpu[row] -= sign * request.cpu_milli
        self.memory[row] -= sign * request.memory_mib
        self.pods[row] -= sign
        change: Callable[[MigDevice, MigInstance], MigDevice] = (
            mig.hold if sign > 0 else mig.give_back
        )
        for place, device in enumerate(placement.devices):
            mig_device = self.mig_devices[row][device] if placement.instances else None
            if mig_device is None:
                self.used_milli[row, device] += sign * placement.gpu_milli
            else:
                self.mig_devices[row][device] = change(mig_device, placement.instances[place])
        self.refresh(row, gpus=bool(placement.devices))

    def _lay(self, row: int, node: NodeFree) -> None:
        width = len(node.gpu_milli)
        mig_devices = [*node.mig, *[None] * (width - len(node.mig))]
        for mig_device in mig_devices:
            if mig_device is not None:
                mig.get_used_slices(node.gpu_model, mig_device.instances)
                for name in mig.list_profiles(node.gpu_model):
                    self.instances.setdefault(name, np.zeros(len(self.nodes), np.int64))
        if not 1 <= node.replicas <= MAX_REPLICAS:
            raise UsageError(
                f"node {node.name!r} wants {node.replicas} time-slicing replicas",
                hint=f"1 to {MAX_REPLICAS}",
            )
        self.mig_devices.append(mig_devices)
        self.used_milli[row, :width] = [WHOLE - free for free in node.gpu_milli]
        self.works[row, :width] = True

    def _recount(self, row: int, free: Integers) -> int:
        """Count what the GPUs in MIG mode can serve; they serve nothing else."""
        model, spare = self.models[row], 0
        for counts in self.instances.values():
            counts[row] = 0
        for device, mig_device in enumerate(self.mig_devices[row]):
            if mig_device is None:
                continue
            free[device] = 0
            if self.works[row, device]:
                spare += mig.count_spare(model, mig_device)
                for name in mig.list_profiles(model):
                    self.instances[name][row] += len(mig.list_free_starts(model, mig_device, name))
        if self.single[row]:
            self.units[row] = sum(int(counts[row]) for counts in self.instances.values())
        return spare + int(free.sum())


def is_whole(request: PodRequest) -> bool:
    """Return whether the pod requests plain `nvidia.com/gpu`: devices, replicas, single MIG."""
    return request.gpu_milli == WHOLE and not request.gpu_memory_mib and not request.profile
