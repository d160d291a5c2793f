"""The initial placement of a defragmentation plan: nodes, pods, and the allowed moves.

All moves of a plan go to capacity that is free before the first move. So their order does not
matter and no move waits for another.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fallow.node_requirements import BlockingTaint, NodeRequirements

WHOLE = 1000


class NodeSpace(msgspec.Struct, frozen=True):
    """A node: its free capacity, and the constraints for pods that move to it."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpu: tuple[int, ...]
    """Free milli-GPU by device."""
    sort: str = ""
    """Pods move only between places of one type: model, instance type, capacity type."""
    zone: str = ""
    taints: frozenset[BlockingTaint] = frozenset()
    labels: Mapping[str, str] = {}
    target_only: bool = False
    """True: pods may move here, and no slot is freed."""


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod on a place."""

    uid: str
    name: str
    place: int
    devices: tuple[tuple[int, int], ...] = ()
    """(device, milli-GPU) that it holds."""
    cpu_milli: int = 0
    memory_mib: int = 0
    group: str = ""
    """Pods of one group move together or not at all; empty = alone."""
    budget: str = ""
    """Name of a disruption budget; see `PoolPlacement.budgets`."""
    stays: str = ""
    """Why it may not move; empty = it may."""
    zonal: bool = False
    """True: it has a volume that is bound to its zone."""
    requirements: NodeRequirements = NodeRequirements()

    @property
    def gpus(self) -> int:
        """Return how many devices it holds."""
        return len(self.devices)

    @property
    def milli(self) -> int:
        """Return its share of each device; the shares are equal for all pods that may move."""
        return self.devices[0][1] if self.devices else 0

    @property
    def sharing(self) -> bool:
        """Return whether it holds less than a device."""
        return bool(self.devices) and self.milli < WHOLE


class FreeSlot(msgspec.Struct, frozen=True):
    """The capacity to free on one node."""

    gpus: int
    cpu_milli: int = 0
    memory_mib: int = 0


class PodRelocation(msgspec.Struct, frozen=True):
    """The move of one pod; `devices` are the indexes of its new devices."""

    uid: str
    source: int
    target: int
    devices: tuple[int, ...] = ()


class MovePlan(msgspec.Struct, frozen=True):
    """Moves that free slots, and a lower bound of the restarts of any plan."""

    moves: tuple[PodRelocation, ...]
    restarts: int
    """Pods that restart: those that move, and the rest of their groups."""
    slots: tuple[int, ...]
    """The places with more whole slots than before, one entry per slot."""
    fewest: int
    """No plan restarts fewer pods than this."""

    @property
    def proven(self) -> bool:
        """Return whether no plan with fewer restarts exists."""
        return self.restarts == self.fewest


class PoolPlacement(msgspec.Struct, frozen=True):
    """Places and the pods on them."""

    places: Sequence[NodeSpace]
    tenants: Sequence[PlacedPod]
    slot: FreeSlot
    budgets: Mapping[str, int] = {}
    """How many pods of each budget may be disrupted."""

    def movable(self) -> list[int]:
        """Return the pods that may move, whose whole group may, within every budget."""
        stuck = {t.group for t in self.tenants if t.group and self._stuck(t)}
        sizes: dict[tuple[str, str], int] = {}
        for t in self.tenants:
            if t.group and t.budget:
                sizes[t.group, t.budget] = sizes.get((t.group, t.budget), 0) + 1
        stuck |= {group for (group, name), n in sizes.items() if n > self.budgets.get(name, 0)}
        return [
            i
            for i, t in enumerate(self.tenants)
            if not self._stuck(t)
            and (t.group not in stuck if t.group else not self.places[t.place].target_only)
        ]

    def _stuck(self, tenant: PlacedPod) -> bool:
        odd = tenant.sharing and tenant.gpus > 1
        uneven = len({milli for _, milli in tenant.devices}) > 1
        used_up = bool(tenant.budget) and self.budgets.get(tenant.budget, 0) < 1
        return bool(tenant.stays) or odd or uneven or used_up

    def welcome(self, tenant: PlacedPod, target: int) -> bool:
        """Return whether a pod may go to a place that has enough free capacity for it alone."""
        source, place = self.places[tenant.place], self.places[target]
        if (
            target == tenant.place
            or source.sort != place.sort
            or (tenant.zonal and source.zone != place.zone)
            # What taints its own node, it tolerates: not every source of pods has tolerations.
            or tenant.requirements.explain_refusal(place.labels, place.taints - source.taints)
            or place.cpu_milli < tenant.cpu_milli
            or place.memory_mib < tenant.memory_mib
        ):
            return False
        fits = sum(free >= tenant.milli for free in place.gpu)
        return not tenant.devices or fits >= tenant.gpus

    def free(self, place: int) -> int:
        """Return the wholly free devices of a place."""
        return sum(free >= WHOLE for free in self.places[place].gpu)

    def slots(self, place: int) -> int:
        """Return how many slots a place has now."""
        node, slot = self.places[place], self.slot
        if node.target_only:
            return 0
        counts = [self.free(place) // slot.gpus]
        if slot.cpu_milli:
            counts.append(node.cpu_milli // slot.cpu_milli)
        if slot.memory_mib:
            counts.append(node.memory_mib // slot.memory_mib)
        return max(0, min(counts))

    def freeable(self, movable: Iterable[int]) -> dict[tuple[int, int], list[int]]:
        """Return the allocated devices that moves alone could free, with the pods to move."""
        able = set(movable)
        holders: dict[tuple[int, int], list[int]] = {}
        for i, tenant in enumerate(self.tenants):
            for device, _ in tenant.devices:
                holders.setdefault((tenant.place, device), []).append(i)
        return {
            (place, device): pods
            for (place, device), pods in holders.items()
            if set(pods) <= able
            and self.places[place].gpu[device]
            + sum(m for i in pods for d, m in self.tenants[i].devices if d == device)
            >= WHOLE
        }
