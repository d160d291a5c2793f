"""Choose which running units yield their nodes, as kube-scheduler does; gangs yield whole.

For a pod, each node is tried: all that may yield there leave, then come back one by one, the most
important first, while the pod still fits. Of the nodes the one is taken whose victims have the
least priority, at most and in sum, then the fewest pods, then those that began last. For a gang,
the least important units yield, as few of them as suffice.

Source: kube-scheduler, pkg/scheduler/framework/preemption (without disruption budgets).
"""

from collections.abc import Iterable, Sequence

import msgspec

from capacity.placement.node_fleet import FleetPlace, FleetPod, NodeFleet


class YieldingUnit(msgspec.Struct, frozen=True):
    """A unit that may be evicted, and since when it runs."""

    name: str
    priority: int
    since_s: float
    places: tuple[FleetPlace, ...]

    @property
    def importance(self) -> tuple[int, float, str]:
        """Return the order of yielding: the lowest priority, then the youngest, then the name."""
        return self.priority, -self.since_s, self.name


def choose_victims(
    pods: Sequence[FleetPod], fleet: NodeFleet, units: Iterable[YieldingUnit]
) -> list[YieldingUnit]:
    """Return the units that leave so that pods fit; empty = it does not help, or none is needed."""
    if not all(pod.preempts for pod in pods):
        return []
    ordered = sorted(units, key=lambda unit: unit.importance)
    _release(fleet, ordered)
    fits = fleet.fits(pods[0])
    helps = bool(fits.any()) if len(pods) == 1 else fleet.place(pods) is not None
    _restore(fleet, ordered)
    if not helps:
        return []
    if len(pods) > 1:
        return _choose_for_gang(pods, fleet, ordered)
    on_node: dict[str, list[YieldingUnit]] = {}
    for unit in ordered:
        for node in {place.node for place in unit.places}:
            if fits[fleet.row_of[node]]:
                on_node.setdefault(node, []).append(unit)
    chosen = (
        _select_victims(pods, fleet, there, fleet.row_of[node])
        for node, there in sorted(on_node.items())
    )
    return min(chosen, key=_rank_harm, default=[])


def _choose_for_gang(
    pods: Sequence[FleetPod], fleet: NodeFleet, ordered: Sequence[YieldingUnit]
) -> list[YieldingUnit]:
    few, many = 0, len(ordered)
    while many - few > 1:  # the first `few` are not enough, the first `many` are
        middle = (few + many) // 2
        _release(fleet, ordered[:middle])
        few, many = (few, middle) if _is_placeable(pods, fleet, None) else (middle, many)
        _restore(fleet, ordered[:middle])
    return _select_victims(pods, fleet, ordered[:many], None)


def _select_victims(
    pods: Sequence[FleetPod], fleet: NodeFleet, units: Sequence[YieldingUnit], row: int | None
) -> list[YieldingUnit]:
    """Return those of enough units without which it is not enough; the fleet stays as it is."""
    _release(fleet, units)
    victims: list[YieldingUnit] = []
    for unit in reversed(units):
        _restore(fleet, [unit])
        if not _is_placeable(pods, fleet, row):
            _release(fleet, [unit])
            victims.append(unit)
    _restore(fleet, victims)
    return victims


def _is_placeable(pods: Sequence[FleetPod], fleet: NodeFleet, row: int | None) -> bool:
    """Return whether pods fit now, one of them on a given node."""
    return fleet.place(pods) is not None if row is None else bool(fleet.fits(pods[0])[row])


def _rank_harm(victims: Sequence[YieldingUnit]) -> tuple[int, int, int, float]:
    priorities = [unit.priority for unit in victims for _ in unit.places]
    return max(priorities), sum(priorities), len(priorities), -min(u.since_s for u in victims)


def _release(fleet: NodeFleet, units: Iterable[YieldingUnit]) -> None:
    for unit in units:
        for place in unit.places:
            fleet.release(place.pod.uid)


def _restore(fleet: NodeFleet, units: Iterable[YieldingUnit]) -> None:
    for unit in units:
        for place in unit.places:
            fleet.take(place)
