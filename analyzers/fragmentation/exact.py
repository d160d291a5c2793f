"""Compute the fewest restarts that free slots exactly, as one mixed-integer program."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from analyzers.fragmentation.integer_program import IntegerProgram
from analyzers.fragmentation.placement import WHOLE, MovePlan, PodRelocation, PoolPlacement

ANY = -1
"""Replaces the device number of a pod that takes whole devices, or none."""

_ROUNDING = 1e-6
Terms = list[tuple[int, float]]


def solve_moves(
    placement: PoolPlacement, more: int, movable: Sequence[int], seconds: float
) -> tuple[MovePlan | None, int, bool]:
    """Return the plan that frees `more` slots by moving some of `movable`.

    Also return a lower bound of the restarts of such a plan, and whether it is proved that none
    exists.
    """
    model = _MoveModel(placement, movable)
    model.free_slots(more)
    solved = model.program.solve(seconds)
    fewest = int(np.ceil(solved.bound - _ROUNDING))
    if solved.values is None:
        return None, fewest, solved.none
    values = solved.values
    gains = [int(values[c]) - placement.slots(n) for n, c in enumerate(model.slots)]
    plan = MovePlan(
        tuple(
            _name_devices(placement, [way for way, column in model.ways.items() if values[column]])
        ),
        sum(model.sizes[group] for group, column in model.goes.items() if values[column]),
        tuple(n for n, gain in enumerate(gains) for _ in range(max(0, gain))),
        fewest,
    )
    return plan, fewest, False


class _MoveModel:
    """Variables: whether a group restarts, where a pod goes, whether a device is freed or used."""

    def __init__(self, placement: PoolPlacement, movable: Sequence[int]) -> None:
        self.placement = placement
        self.movable = movable
        self.program = IntegerProgram()
        self.freeable = placement.freeable(movable)
        self.sizes: dict[str, int] = defaultdict(int)
        for i in movable:
            self.sizes[self._group(i)] += 1
        self.goes = {g: self.program.variable(cost=size) for g, size in self.sizes.items()}
        self.ways: dict[tuple[int, int, int], int] = {}
        self.leaving: dict[int, Terms] = {}
        self.coming: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self.freed = {key: self.program.variable() for key in self.freeable}
        self.slots: list[int] = []
        self._pods_leave()
        self._devices_empty()
        for place in range(len(placement.places)):
            self._place_fills(place)
        for name, allowed in placement.budgets.items():
            restarts = [
                (self.goes[self._group(i)], 1.0) for i in movable if self._budget(i) == name
            ]
            self.program.at_most(restarts, allowed)

    def free_slots(self, more: int) -> None:
        """Require this many slots beyond the existing ones."""
        have = sum(self.placement.slots(n) for n in range(len(self.placement.places)))
        self.program.at_most([(column, -1.0) for column in self.slots], -(have + more))

    def _group(self, i: int) -> str:
        return self.placement.tenants[i].group or f"alone/{i}"

    def _budget(self, i: int) -> str:
        return self.placement.tenants[i].budget

    def _pods_leave(self) -> None:
        """Let a pod leave to one place at most, and only if its group restarts."""
        for i in self.movable:
            pod, mine = self.placement.tenants[i], Terms()
            for target, place in enumerate(self.placement.places):
                if not self.placement.welcome(pod, target):
                    continue
                fits = [d for d, free in enumerate(place.gpu) if free >= pod.milli]
                for spot in fits if pod.sharing else [ANY]:
                    column = self.program.variable()
                    self.ways[i, target, spot] = column
                    self.coming[target].append((i, spot, column))
                    mine.append((column, 1.0))
            self.leaving[i] = mine
            self.program.at_most([*mine, (self.goes[self._group(i)], -1.0)], 0)

    def _devices_empty(self) -> None:
        """A device is freed when all its pods leave."""
        for key, pods in self.freeable.items():
            for i in pods:
                left = [(column, -1.0) for column, _ in self.leaving[i]]
                self.program.at_most([(self.freed[key], 1.0), *left], 0)

    def _place_fills(self, n: int) -> None:
        """Pods that arrive fit on what is free now; what is free afterwards forms slots."""
        place, pods, slot = self.placement.places[n], self.placement.tenants, self.placement.slot
        coming = self.coming[n]
        opened = self._shares_fill(n)
        arriving_gpus = [(c, float(pods[i].gpus)) for i, spot, c in coming if spot == ANY] + opened
        whole = self.placement.free(n)
        self.program.at_most(arriving_gpus, whole)
        count = self.program.variable(0 if place.target_only else len(place.gpu) // slot.gpus)
        self.slots.append(count)
        leaving_gpus = [(column, -1.0) for (where, _), column in self.freed.items() if where == n]
        self.program.at_most([*arriving_gpus, *leaving_gpus, (count, float(slot.gpus))], whole)
        for resource in ("cpu_milli", "memory_mib"):
            free, needed = getattr(place, resource), getattr(slot, resource)
            arriving = [(c, float(getattr(pods[i], resource))) for i, _, c in coming]
            self.program.at_most(arriving, free)
            if needed:
                left = [
                    (column, -float(getattr(pods[i], resource)))
                    for i in self.movable
                    if pods[i].place == n
                    for column, _ in self.leaving[i]
                ]
                self.program.at_most([*arriving, *left, (count, float(needed))], free)

    def _shares_fill(self, n: int) -> Terms:
        """Let shares fit their devices; return the wholly free devices that they start to use."""
        onto: dict[int, Terms] = defaultdict(list)
        for i, spot, column in self.coming[n]:
            if spot != ANY:
                onto[spot].append((column, float(self.placement.tenants[i].milli)))
                if (n, spot) in self.freed:
                    self.program.at_most([(column, 1.0), (self.freed[n, spot], 1.0)], 1)
        opened = Terms()
        for device, terms in onto.items():
            free = self.placement.places[n].gpu[device]
            if free < WHOLE:
                self.program.at_most(terms, free)
                continue
            column = self.program.variable()
            opened.append((column, 1.0))
            self.program.at_most([*terms, (column, -float(free))], 0)
        return opened


def _name_devices(
    placement: PoolPlacement, chosen: Sequence[tuple[int, int, int]]
) -> list[PodRelocation]:
    """Choose the devices of the pods.

    Shares go where the program put them, whole GPUs to the remaining free devices.
    """
    occupied = {(target, spot) for _, target, spot in chosen}
    moves = []
    for i, target, spot in sorted(chosen, key=lambda way: placement.tenants[way[0]].uid):
        pod = placement.tenants[i]
        devices: tuple[int, ...] = (spot,)
        if spot == ANY:
            gpu = enumerate(placement.places[target].gpu)
            free = [d for d, milli in gpu if milli >= WHOLE and (target, d) not in occupied]
            devices = tuple(free[: pod.gpus])
            occupied |= {(target, d) for d in devices}
        moves.append(PodRelocation(pod.uid, pod.place, target, devices))
    return moves
