"""Compute a quick defragmentation plan: empty whole places, the cheapest first."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from analyzers.fragmentation.placement import (
    WHOLE,
    MovePlan,
    PlacedPod,
    PodRelocation,
    PoolPlacement,
)


class _Candidate(msgspec.Struct, frozen=True):
    """A place that could be emptied: its slots, the pods that leave, the pods that restart."""

    place: int
    gain: int
    leaving: tuple[int, ...]
    restarts: frozenset[int]


def empty_nodes(
    placement: PoolPlacement, more: int, movable: Sequence[int], fewest: int
) -> MovePlan | None:
    """Return a plan that frees `more` slots, if this method finds one.

    `fewest` is a known bound.
    """
    state = _GreedyState(placement)
    left, moves, slots = more, list[PodRelocation](), list[int]()
    restarted: frozenset[int] = frozenset()
    candidates = _find_candidates(placement, movable)
    for candidate in sorted(candidates, key=lambda c: (len(c.restarts) / c.gain, c.place)):
        if not left:
            break
        if candidate.gain > left or not state.within(restarted | candidate.restarts):
            continue
        placed = state.placed(candidate.place, [placement.tenants[i] for i in candidate.leaving])
        if placed is not None:
            moves += placed
            restarted |= candidate.restarts
            slots += [candidate.place] * candidate.gain
            left -= candidate.gain
    if left:
        return None
    ordered = tuple(sorted(moves, key=lambda m: m.uid))
    return MovePlan(ordered, len(restarted), tuple(slots), min(fewest, len(restarted)))


def _find_candidates(placement: PoolPlacement, movable: Sequence[int]) -> list[_Candidate]:
    able = set(movable)
    members: dict[str, set[int]] = defaultdict(set)
    for i in movable:
        members[placement.tenants[i].group].add(i)
    at: dict[int, list[int]] = defaultdict(list)
    for i, tenant in enumerate(placement.tenants):
        if tenant.devices:
            at[tenant.place].append(i)
    candidates = []
    for n, leaving in at.items():
        if placement.places[n].target_only:
            continue
        total = len(placement.places[n].gpu) // placement.slot.gpus
        gain = total - placement.slots(n)
        if (
            gain < 1
            or not set(leaving) <= able
            or not _has_room_for_all(placement, n, leaving, total)
        ):
            continue
        restarts: set[int] = set()
        for i in leaving:
            group = placement.tenants[i].group
            restarts |= members[group] if group else {i}
        candidates.append(_Candidate(n, gain, tuple(leaving), frozenset(restarts)))
    return candidates


def _has_room_for_all(placement: PoolPlacement, n: int, leaving: Sequence[int], total: int) -> bool:
    """Return whether the place, without those pods, has room for all its slots."""
    place, slot = placement.places[n], placement.slot
    own = [placement.tenants[i] for i in leaving]
    gpu = sum(place.gpu) + sum(milli for t in own for _, milli in t.devices)
    return (
        gpu >= len(place.gpu) * WHOLE
        and place.cpu_milli + sum(t.cpu_milli for t in own) >= total * slot.cpu_milli
        and place.memory_mib + sum(t.memory_mib for t in own) >= total * slot.memory_mib
    )


class _GreedyState:
    """The remaining free capacity while a greedy plan grows; existing slots stay whole."""

    def __init__(self, placement: PoolPlacement) -> None:
        self.placement = placement
        self.gpu = [list(place.gpu) for place in placement.places]
        self.cpu = [place.cpu_milli for place in placement.places]
        self.memory = [place.memory_mib for place in placement.places]
        self.slot_places = {n for n in range(len(placement.places)) if placement.slots(n)}
        self.used: set[int] = set()

    def within(self, restarted: frozenset[int]) -> bool:
        """Return whether every disruption budget allows these restarts."""
        evictions: dict[str, int] = {}
        for i in restarted:
            name = self.placement.tenants[i].budget
            if name:
                evictions[name] = evictions.get(name, 0) + 1
        return all(n <= self.placement.budgets.get(name, 0) for name, n in evictions.items())

    def placed(self, source: int, pods: Sequence[PlacedPod]) -> list[PodRelocation] | None:
        """Move pods off a place, the largest first, each to the tightest fit; None = no room."""
        if source in self.used:
            return None
        before = [list(free) for free in self.gpu], list(self.cpu), list(self.memory)
        moves = []
        for pod in sorted(pods, key=lambda p: (-p.gpus * p.milli, -p.cpu_milli, p.uid)):
            target = self._best(pod, source)
            if target is None:
                self.gpu, self.cpu, self.memory = before
                return None
            n, devices = target
            for device in devices:
                self.gpu[n][device] -= pod.milli
            self.cpu[n] -= pod.cpu_milli
            self.memory[n] -= pod.memory_mib
            moves.append(PodRelocation(pod.uid, source, n, devices))
        self.slot_places.add(source)
        self.used |= {move.target for move in moves}
        return moves

    def _best(self, pod: PlacedPod, source: int) -> tuple[int, tuple[int, ...]] | None:
        best = None
        for n in range(len(self.placement.places)):
            if n in self.slot_places or n == source or not self.placement.welcome(pod, n):
                continue
            fits = [d for d, free in enumerate(self.gpu[n]) if free >= max(1, pod.milli)]
            if (
                self.cpu[n] < pod.cpu_milli
                or self.memory[n] < pod.memory_mib
                or len(fits) < pod.gpus
            ):
                continue
            devices = tuple(sorted(fits, key=lambda d: (self.gpu[n][d], d))[: pod.gpus])
            key = (sum(self.gpu[n]) - pod.gpus * pod.milli, self.cpu[n], n)
            if best is None or key < best[0]:
                best = key, (n, devices)
        return None if best is None else best[1]
