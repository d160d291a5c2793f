"""Who must yield so that a pod of higher priority can run.

Pods yield in units: a gang is evicted whole, wherever its pods are, and only if all of them may be.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

import msgspec

from simulator.cluster.scheduler.fleet import Fleet
from simulator.cluster.scheduler.order import priority
from simulator.cluster.scheduler.placing import place_gang
from simulator.cluster.scheduler.requests import Gang, PodRequest, Policy, Running

_SUBSETS = 300
"""So many sets of a node's units are tried for the fewest; beyond, units are spared one by one."""


class _Unit(msgspec.Struct, frozen=True):
    """A lone pod, or all the running pods of a gang."""

    pods: tuple[Running, ...]

    @property
    def weight(self) -> tuple[int, float, str]:
        """Order of yielding: lowest priority, then youngest, then name."""
        return (
            max(pod.request.priority for pod in self.pods),
            -max(pod.started_s for pod in self.pods),
            self.pods[0].request.uid,
        )


def victims(
    gang: Gang,
    fleet: Fleet,
    policy: Policy = "first-fit",
    may: Callable[[Running], bool] | None = None,
) -> tuple[Running, ...] | None:
    """Return the pods to evict so that the gang fits: fewest, then lowest, then youngest.

    A gang is evicted whole. None: no eviction would help, or the gang may not preempt. `may`
    says which pods yield at all; by default those of lower priority (a quota asks for others).

    For one pod the fewest on any one node are found, exactly while a node has few candidates. For
    a gang the lowest units are released until it fits; who is not in its way after all, stays.
    """
    if not all(pod.preempts for pod in gang.members):
        return None
    above = priority(gang)
    yields = may or (lambda pod: pod.request.priority < above)
    units = sorted(_units(fleet, yields), key=lambda unit: unit.weight)
    if len(gang.members) == 1:
        found = _for_pod(gang.members[0], fleet, units)
    else:
        found = _for_gang(gang, fleet, policy, units)
    return None if found is None else tuple(pod for unit in found for pod in unit.pods)


def _units(fleet: Fleet, yields: Callable[[Running], bool]) -> Iterable[_Unit]:
    groups: dict[str, list[Running]] = {}
    for uid, pod in fleet.running.items():
        groups.setdefault(pod.request.gang or f"pod {uid}", []).append(pod)
    for pods in groups.values():
        if all(yields(pod) for pod in pods):
            yield _Unit(tuple(sorted(pods, key=lambda pod: pod.request.uid)))


def _for_pod(pod: PodRequest, fleet: Fleet, units: list[_Unit]) -> list[_Unit] | None:
    if fleet.feasible(pod).any():
        return []
    empty = fleet.copy()
    on_node: dict[str, list[_Unit]] = {}
    for unit in units:
        _release(empty, [unit])
        for name in sorted({pod.placement.node for pod in unit.pods}):
            on_node.setdefault(name, []).append(unit)
    could = empty.feasible(pod)
    sets = [
        _fewest(pod, fleet.only(name, (p for unit in on_node[name] for p in unit.pods)), units)
        for name, units in sorted(on_node.items())
        if could[fleet.place_of[name]]
    ]
    return min(sets, key=_harm, default=None)


def _fewest(pod: PodRequest, node: Fleet, units: list[_Unit]) -> list[_Unit]:
    """Return the units of one node to evict; all of them together are known to help."""
    sets: list[list[_Unit]] = []
    for size in range(1, len(units)):
        if len(sets) + comb(len(units), size) > _SUBSETS:
            break
        sets += [list(some) for some in combinations(units, size)]
    sets.sort(key=_harm)
    out = list(units)
    for unit in reversed(units):
        rest = [other for other in out if other is not unit]
        if _helps(pod, node, rest):
            out = rest
    return next(
        (some for some in sets if _harm(some) < _harm(out) and _helps(pod, node, some)), out
    )


def _helps(pod: PodRequest, node: Fleet, units: Sequence[_Unit]) -> bool:
    if not _may_help(pod, node, units):
        return False
    trial = node.copy()
    _release(trial, units)
    return bool(trial.feasible(pod).any())


def _may_help(pod: PodRequest, node: Fleet, units: Sequence[_Unit]) -> bool:
    """Rule out by sums what could not help: a trial costs twenty times as much."""
    gone = [p for unit in units for p in unit.pods if p.request.uid in node.running]
    cpu = sum(p.request.cpu_milli for p in gone)
    memory = sum(p.request.memory_mib for p in gone)
    gpu = sum(p.placement.gpu_milli * len(p.placement.devices) for p in gone)
    instances = node.single[0] or any(p.placement.instances for p in gone)
    need = 0 if pod.profile or instances else int(node.need(pod)[0]) * pod.gpus
    return bool(
        node.cpu[0] + cpu >= pod.cpu_milli
        and node.memory[0] + memory >= pod.memory_mib
        and int(node.usable[0].sum()) + gpu >= need
    )


def _harm(units: list[_Unit]) -> tuple[int, list[tuple[int, float, str]]]:
    weights = sorted((unit.weight for unit in units), reverse=True)
    return sum(len(unit.pods) for unit in units), weights


def _for_gang(gang: Gang, fleet: Fleet, policy: Policy, units: list[_Unit]) -> list[_Unit] | None:
    trial = fleet.copy()
    where = place_gang(gang, trial, policy)
    out: list[_Unit] = []
    step = 1
    while where is None:
        more = units[len(out) : len(out) + step]
        if not more:
            return None
        _release(trial, more)
        out += more
        step = len(out)
        where = place_gang(gang, trial, policy)
    where = where[: gang.min_members or len(gang.members)]
    asked = {pod.uid: pod for pod in gang.members}
    for placement in where:
        trial.take(asked[placement.uid], placement)
    return [unit for unit in reversed(out) if not _restored(trial, unit)][::-1]


def _restored(trial: Fleet, unit: _Unit) -> bool:
    """Put a unit back where it was, if all of it still has room."""
    back: list[str] = []
    for pod in unit.pods:
        if not trial.has_room(pod.request, pod.placement):
            for uid in back:
                trial.release(uid)
            return False
        trial.take(pod.request, pod.placement, pod.started_s)
        back.append(pod.request.uid)
    return True


def _release(fleet: Fleet, units: Iterable[_Unit]) -> None:
    for unit in units:
        for pod in unit.pods:
            if pod.request.uid in fleet.running:
                fleet.release(pod.request.uid)
