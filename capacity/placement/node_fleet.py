"""Place pods on the devices of nodes, and release them: a fleet whose free capacity changes.

A pod goes to the fullest node that takes it (the least GPU free, then CPU and memory), on whole
devices or on a share of each; a share goes to the device with the least free that fits. Pods of a
gang are placed together or not at all, the largest first.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
WHOLE = 1000
"""Milli-GPU of a whole device."""
MIB = 2**20
UNKNOWN_AMOUNT = 10**12
"""CPU and memory of a node of which they are not known: they limit nothing."""


class FleetPod(msgspec.Struct, frozen=True):
    """What a pod requests of its node."""

    uid: str
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = WHOLE
    """Of each device; under 1000 is a share."""
    requirements: int = -1
    """The number of its requirements of nodes; -1 = it has none."""
    preempts: bool = True
    profile: str = ""
    """Of MIG instances; empty = whole GPUs or shares of them."""

    @property
    def form(self) -> tuple[int | str, ...]:
        """Return what pods have in common that fit into the same places."""
        size = self.cpu_milli, self.memory_mib, self.gpus, self.gpu_milli
        return *size, self.requirements, self.profile


class FleetNode(msgspec.Struct, frozen=True):
    """A node of a fleet, empty or as its pods leave it."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_model: str = ""
    meets: frozenset[int] = frozenset()
    """The numbers of the requirements that it meets."""
    open: bool = True
    """False: cordoned."""
    free: tuple[int, ...] = ()
    """Free milli-GPU by device; none = all of its devices are wholly free."""
    profiles: tuple[str, ...] = ()
    """MIG profile by device; none = it has no MIG instances."""


class FleetPlace(msgspec.Struct, frozen=True):
    """Where a pod is: its node, and the devices of which it has its share."""

    pod: FleetPod
    node: str
    devices: tuple[int, ...]


class NodeFleet:
    """The nodes, what is free on them, and where pods are."""

    def __init__(self, nodes: Iterable[FleetNode]) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self.row_of = {node.name: row for row, node in enumerate(self._nodes)}
        self._cpu = np.array([node.cpu_milli for node in self._nodes], np.int64)
        self._memory = np.array([node.memory_mib for node in self._nodes], np.int64)
        self._open = np.array([node.open for node in self._nodes], bool)
        gpus = np.array([node.gpus for node in self._nodes], np.int64)
        self._gpu = np.where(np.arange(max(gpus, default=0)) < gpus[:, None], WHOLE, 0)
        self._profile = np.full(self._gpu.shape, "", object)
        for row, node in enumerate(self._nodes):
            if node.free:
                self._gpu[row, : node.gpus] = node.free
            if node.profiles:
                self._profile[row, : node.gpus] = node.profiles
        self._has_instances = any(any(node.profiles) for node in self._nodes)
        self._whole, self._spare = (self._gpu == WHOLE).sum(axis=1), self._gpu.sum(axis=1)
        """Devices that are wholly free, and milli-GPU."""
        self._eligible: dict[int, Marks] = {}
        self.places: dict[str, FleetPlace] = {}
        """By uid."""

    def set_open(self, node: str, *, is_open: bool) -> None:
        """Let pods be placed on a node, or no more; running pods stay."""
        self._open[self.row_of[node]] = is_open

    def set_eligible(self, requirements: int, nodes: Iterable[str]) -> None:
        """Say which nodes meet the requirements of a number, in place of `FleetNode.meets`."""
        marks = np.zeros(len(self._nodes), bool)
        marks[[self.row_of[node] for node in nodes]] = True
        self._eligible[requirements] = marks

    def fits(self, pod: FleetPod) -> Marks:
        """Return which nodes take a pod now."""
        marks: Marks = self._open.copy()
        if pod.cpu_milli:  # without a request it fits where too much is requested
            marks &= self._cpu >= pod.cpu_milli
        if pod.memory_mib:
            marks &= self._memory >= pod.memory_mib
        if pod.requirements >= 0:
            if pod.requirements not in self._eligible:
                meeting = [pod.requirements in node.meets for node in self._nodes]
                self._eligible[pod.requirements] = np.array(meeting, bool)
            marks &= self._eligible[pod.requirements]
        if pod.gpu_milli == WHOLE and not (self._has_instances or pod.profile):
            marks &= self._whole >= pod.gpus
            return marks
        usable = (self._gpu >= pod.gpu_milli) & (self._profile == pod.profile)
        marks &= usable.sum(axis=1) >= pod.gpus
        return marks

    def place(self, pods: Sequence[FleetPod]) -> list[FleetPlace] | None:
        """Return where pods go together; None = not all fit. It takes nothing."""
        forms = {pod.form: pod for pod in pods} if len(pods) > 1 else {}
        if not all(self.fits(pod).any() for pod in forms.values()):
            return None
        places = self.place_each(pods, until_one_does_not_fit=True)
        return places if len(places) == len(pods) else None

    def place_each(
        self, pods: Sequence[FleetPod], *, until_one_does_not_fit: bool = False
    ) -> list[FleetPlace]:
        """Return where those pods go that fit, the largest first. It takes nothing."""
        places: list[FleetPlace] = []
        for pod in sorted(pods, key=lambda pod: (-pod.gpus, -pod.gpu_milli, -pod.cpu_milli)):
            rows = np.flatnonzero(self.fits(pod))
            if not len(rows):
                if until_one_does_not_fit:
                    break
                continue
            order = np.lexsort((self._memory[rows], self._cpu[rows], self._spare[rows]))
            places.append(self.find_devices(pod, self._nodes[rows[order[0]]].name))
            if len(pods) > 1:
                self.take(places[-1])
        if len(pods) > 1:
            for place in places:
                self.release(place.pod.uid)
        return places

    def find_devices(self, pod: FleetPod, node: str) -> FleetPlace:
        """Return the place of a pod on a node that takes it."""
        row = self.row_of[node]
        free = self._gpu[row]
        devices = np.flatnonzero((free >= pod.gpu_milli) & (self._profile[row] == pod.profile))
        if pod.gpu_milli < WHOLE:
            devices = devices[np.argsort(free[devices], kind="stable")]
        return FleetPlace(pod, node, tuple(map(int, devices[: pod.gpus])))

    def take(self, place: FleetPlace) -> None:
        """Put a pod on its place."""
        self.places[place.pod.uid] = place
        self._change(place, -1)

    def release(self, uid: str) -> FleetPlace:
        """Take a pod off its place."""
        place = self.places.pop(uid)
        self._change(place, 1)
        return place

    def _change(self, place: FleetPlace, sign: int) -> None:
        row, pod = self.row_of[place.node], place.pod
        self._cpu[row] += sign * pod.cpu_milli
        self._memory[row] += sign * pod.memory_mib
        self._gpu[row, list(place.devices)] += sign * pod.gpu_milli
        self._whole[row] = (self._gpu[row] == WHOLE).sum()
        self._spare[row] += sign * pod.gpu_milli * len(place.devices)
