"""Choose which pods must yield so that a pod of higher priority can run.

Pods yield in units: a gang is evicted whole, wherever its pods are, and only if all of them may be.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

import msgspec

from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.order import get_priority
from simulator.cluster.scheduler.placing import place_gang
from simulator.cluster.scheduler.requests import PodGang, PodRequest, Policy, Running

_SUBSETS = 300
"""Sets of a node's units that are tried for the smallest; beyond, units are spared one by one."""


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


def choose_victims(
    gang: PodGang,
    fleet: SchedulerFleet,
    policy: Policy = "first-fit",
    may: Callable[[Running], bool] | None = None,
) -> tuple[Running, ...] | None:
    """Return the pods to evict so that the gang fits: fewest, then lowest, then youngest.

    A gang is evicted whole. None: no eviction would help, or the gang may not preempt. `may`
    decides which pods yield at all; by default those of lower priority (a quota has other rules).

    For one pod, the fewest victims on any one node are found, exactly while a node has few
    candidates. For a gang, the lowest units yield, as few of them as suffice; units not in its way
    stay.
    """
    if not all(pod.preempts for pod in gang.members):
        return None
    above = get_priority(gang)
    yields = may or (lambda pod: pod.request.priority < above)
    units = sorted(_list_units(fleet, yields), key=lambda unit: unit.weight)
    if len(gang.members) == 1:
        chosen_units = _choose_for_pod(gang.members[0], fleet, units)
    else:
        chosen_units = _choose_for_gang(gang, fleet, policy, units)
    return (
        None if chosen_units is None else tuple(pod for unit in chosen_units for pod in unit.pods)
    )


def _list_units(fleet: SchedulerFleet, yields: Callable[[Running], bool]) -> Iterable[_Unit]:
    groups: dict[str, list[Running]] = {}
    for uid, pod in fleet.running.items():
        groups.setdefault(pod.request.gang or f"pod {uid}", []).append(pod)
    for pods in groups.values():
        if all(yields(pod) for pod in pods):
            yield _Unit(tuple(sorted(pods, key=lambda pod: pod.request.uid)))


def _choose_for_pod(
    pod: PodRequest, fleet: SchedulerFleet, units: list[_Unit]
) -> list[_Unit] | None:
    if fleet.feasible(pod).any():
        return []
    alone = next(
        (unit for unit in units if len(unit.pods) == 1 and _is_enough(pod, fleet, unit)), None
    )
    if alone is not None:
        return [alone]
    on_node: dict[str, list[_Unit]] = {}
    for unit in units:
        for name in sorted({pod.placement.node for pod in unit.pods}):
            on_node.setdefault(name, []).append(unit)
    could = _remove_pods(fleet, units).feasible(pod)
    best: list[_Unit] | None = None
    for name, candidates in sorted(on_node.items()):
        if could[fleet.place_of[name]]:
            best = _choose_fewest(pod, fleet, name, candidates, best)
    return best


def _is_enough(pod: PodRequest, fleet: SchedulerFleet, unit: _Unit) -> bool:
    """Return whether it is enough that one single pod ends."""
    name = unit.pods[0].placement.node
    return _may_help(pod, fleet, fleet.place_of[name], [unit]) and _is_helpful(
        pod, fleet.only(name, unit.pods), [unit]
    )


def _choose_fewest(
    pod: PodRequest, fleet: SchedulerFleet, name: str, units: list[_Unit], best: list[_Unit] | None
) -> list[_Unit] | None:
    """Return the best of a node's sets of units, or what is better already.

    All of the node's units together are known to help.
    """
    node = fleet.only(name, (member for unit in units for member in unit.pods))
    tried = 0
    for size in range(1, len(units) + 1):
        if best is not None and size > _rank_harm(best)[0]:
            return best
        tried += comb(len(units), size)
        if tried > _SUBSETS:
            spared = _choose_spare(pod, node, units)
            return spared if best is None else min(best, spared, key=_rank_harm)
        for subset in sorted(map(list, combinations(units, size)), key=_rank_harm):
            if best is not None and _rank_harm(subset) >= _rank_harm(best):
                break
            if _is_helpful(pod, node, subset):
                best = subset
    return best


def _choose_spare(pod: PodRequest, node: SchedulerFleet, units: list[_Unit]) -> list[_Unit]:
    """Spare one unit after the other, highest and oldest first, while the rest still helps."""
    out = list(units)
    for unit in reversed(units):
        rest = [other for other in out if other is not unit]
        if _is_helpful(pod, node, rest):
            out = rest
    return out


def _is_helpful(pod: PodRequest, node: SchedulerFleet, units: Sequence[_Unit]) -> bool:
    if not _may_help(pod, node, 0, units):
        return False
    return bool(_remove_pods(node, units).feasible(pod).any())


def _may_help(pod: PodRequest, fleet: SchedulerFleet, row: int, units: Sequence[_Unit]) -> bool:
    """Rule out, by sums, what could not help: a trial costs twenty times as much."""
    name = fleet.names[row]
    evicted = [p for unit in units for p in unit.pods if p.placement.node == name]
    cpu = sum(p.request.cpu_milli for p in evicted)
    memory = sum(p.request.memory_mib for p in evicted)
    gpu = sum(p.placement.gpu_milli * len(p.placement.devices) for p in evicted)
    instances = pod.profile or fleet.single[row] or any(p.placement.instances for p in evicted)
    need = 0 if instances else fleet.need_on(pod, row) * pod.gpus
    return bool(
        fleet.cpu[row] + cpu >= pod.cpu_milli
        and fleet.memory[row] + memory >= pod.memory_mib
        and fleet.spare[row] + gpu >= need
    )


def _rank_harm(units: list[_Unit]) -> tuple[int, list[tuple[int, float, str]]]:
    weights = sorted((unit.weight for unit in units), reverse=True)
    return sum(len(unit.pods) for unit in units), weights


def _choose_for_gang(
    gang: PodGang, fleet: SchedulerFleet, policy: Policy, units: list[_Unit]
) -> list[_Unit] | None:
    if place_gang(gang, fleet, policy) is not None:
        return []
    if place_gang(gang, _remove_pods(fleet, units), policy) is None:
        return None
    # The shortest run of the lowest and youngest that is enough: `few` is not, `many` is.
    few, many = 0, len(units)
    while many - few > 1:
        middle = (few + many) // 2
        if place_gang(gang, _remove_pods(fleet, units[:middle]), policy) is None:
            few = middle
        else:
            many = middle
    out = units[:many]
    trial = _remove_pods(fleet, out)
    requests = {pod.uid: pod for pod in gang.members}
    where = place_gang(gang, trial, policy) or ()
    for placement in where[: gang.min_members or len(gang.members)]:
        trial.take(requests[placement.uid], placement)
    needed_units = [unit for unit in reversed(out) if not _restore(trial, unit)][::-1]
    # With fewer victims, members of several kinds may be placed elsewhere and not all fit: all
    # yield.
    spared = place_gang(gang, _remove_pods(fleet, needed_units), policy) is not None
    return needed_units if spared else out


def _remove_pods(fleet: SchedulerFleet, units: Iterable[_Unit]) -> SchedulerFleet:
    rest = fleet.copy()
    _release(rest, units)
    return rest


def _restore(trial: SchedulerFleet, unit: _Unit) -> bool:
    """Restore a unit, if all of it still has room."""
    restored: list[str] = []
    for pod in unit.pods:
        if not trial.has_room(pod.request, pod.placement):
            for uid in restored:
                trial.release(uid)
            return False
        trial.take(pod.request, pod.placement, pod.started_s)
        restored.append(pod.request.uid)
    return True


def _release(fleet: SchedulerFleet, units: Iterable[_Unit]) -> None:
    for unit in units:
        for pod in unit.pods:
            if pod.request.uid in fleet.running:
                fleet.release(pod.request.uid)
