"""Compute a quick defragmentation plan: empty whole places, the cheapest first."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from analyzers.fragmentation.placement import (
    WHOLE,
    MovePlan,
    PodRelocation,
    PoolPlacement,
)
from capacity.placement.node_fleet import FleetNode, FleetPod, NodeFleet


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
        placed = state.move_off(candidate.place, candidate.leaving)
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
        self._fleet = NodeFleet(
            FleetNode(
                _name(n),
                place.cpu_milli,
                place.memory_mib,
                len(place.gpu),
                open=not placement.slots(n),
                free=place.gpu,
            )
            for n, place in enumerate(placement.places)
        )
        self._targets: set[int] = set()

    def within(self, restarted: frozenset[int]) -> bool:
        """Return whether every disruption budget allows these restarts."""
        budgets = Counter(self.placement.tenants[i].budget for i in restarted)
        return all(n <= self.placement.budgets.get(b, 0) for b, n in budgets.items() if b)

    def move_off(self, source: int, leaving: Sequence[int]) -> list[PodRelocation] | None:
        """Move pods off a place, the largest first, each to the tightest fit; None = no room."""
        if source in self._targets:
            return None
        pods = [self._describe(i) for i in leaving]
        self._fleet.set_open(_name(source), is_open=False)
        places = self._fleet.place(pods)
        if places is None:
            self._fleet.set_open(_name(source), is_open=not self.placement.slots(source))
            return None
        for place in places:
            self._fleet.take(place)
        moves = [PodRelocation(p.pod.uid, source, int(p.node), p.devices) for p in places]
        self._targets |= {move.target for move in moves}
        return moves

    def _describe(self, i: int) -> FleetPod:
        """Return a pod as the fleet places it: only where it is welcome."""
        pod, placement = self.placement.tenants[i], self.placement
        places = range(len(placement.places))
        self._fleet.set_eligible(i, [_name(n) for n in places if placement.welcome(pod, n)])
        return FleetPod(
            pod.uid, pod.cpu_milli, pod.memory_mib, pod.gpus, pod.milli or WHOLE, requirements=i
        )


def _name(place: int) -> str:
    """Return a name that sorts as the place's number."""
    return f"{place:07}"
