"""Compute a defragmentation plan: the fewest restarts that free a number of whole slots.

A greedy plan empties the places that need the fewest moves; a lower bound gives the fewest moves of
any plan. Where the two differ, and the program is small enough, it is solved exactly.
"""

from collections.abc import Sequence

from analyzers.fragmentation.exact import solve_moves
from analyzers.fragmentation.greedy import empty_nodes
from analyzers.fragmentation.placement import MovePlan, PoolPlacement

MOST_WAYS = 60_000
"""Pods x targets up to which the program contains the whole pool; else its cheapest places."""


def plan_moves(placement: PoolPlacement, more: int, seconds: float = 5.0) -> MovePlan | None:
    """Return a plan that frees `more` slots, or None where none was found.

    `MovePlan.fewest` is a proven bound: with `proven`, no plan restarts fewer pods.
    """
    movable = placement.movable()
    costs = _compute_costs(placement, movable)
    gains = sorted(cost for n in costs for cost in costs[n])
    if len(gains) < more:
        return None
    fewest = sum(gains[:more])
    quick = empty_nodes(placement, more, movable, fewest)
    if quick is not None and quick.proven:
        return quick
    targets = sum(any(place.gpu) for place in placement.places)
    if len(movable) * targets <= MOST_WAYS:
        best, bound, none = solve_moves(placement, more, movable, seconds)
        return None if none else _pick_better(quick, best, max(fewest, bound))
    near = set[int]()
    left = MOST_WAYS // max(1, targets)
    for n in sorted(costs, key=lambda n: (costs[n], n)):
        left -= sum(placement.tenants[i].place == n for i in movable)
        if left < 0:
            break
        near.add(n)
    some = _keep_whole_groups(placement, [i for i in movable if placement.tenants[i].place in near])
    best, _, _ = solve_moves(placement, more, some, seconds)
    return _pick_better(quick, best, fewest)


def plan_most(placement: PoolPlacement, wanted: int, seconds: float = 5.0) -> MovePlan | None:
    """Return a plan that frees the most slots found, up to `wanted`; None where there is none.

    Each attempt may take `seconds`; a plan for more slots exists only where one for fewer does.
    """
    best, low, high = plan_moves(placement, wanted, seconds), 0, wanted
    if best is not None:
        return best
    while high - low > 1:
        middle = (low + high) // 2
        plan = plan_moves(placement, middle, seconds)
        if plan is None:
            high = middle
        else:
            best, low = plan, middle
    return best


def _pick_better(plan: MovePlan | None, other: MovePlan | None, fewest: int) -> MovePlan | None:
    plans = [p for p in (plan, other) if p is not None]
    if not plans:
        return None
    best = min(plans, key=lambda p: p.restarts)
    return MovePlan(best.moves, best.restarts, best.slots, min(fewest, best.restarts))


def _keep_whole_groups(placement: PoolPlacement, pods: Sequence[int]) -> list[int]:
    """Return only the pods whose whole group is among them."""
    able = set(pods)
    sizes: dict[str, int] = {}
    for tenant in placement.tenants:
        sizes[tenant.group] = sizes.get(tenant.group, 0) + 1
    have: dict[str, int] = {}
    for i in able:
        have[placement.tenants[i].group] = have.get(placement.tenants[i].group, 0) + 1
    return [
        i
        for i in pods
        if not placement.tenants[i].group
        or have[placement.tenants[i].group] == sizes[placement.tenants[i].group]
    ]


def _compute_costs(placement: PoolPlacement, movable: Sequence[int]) -> dict[int, list[int]]:
    """Return, by place, the fewest of its own pods that must leave for each further slot.

    It never overestimates: a pod is counted on its own place only, and frees every device it uses.
    """
    freeable = placement.freeable(movable)
    touched: dict[int, dict[int, int]] = {}
    for (place, _), pods in freeable.items():
        for i in pods:
            of = touched.setdefault(place, {})
            of[i] = of.get(i, 0) + 1
    per_place: dict[int, int] = {}
    for place, _ in freeable:
        per_place[place] = per_place.get(place, 0) + 1
    by_place = {}
    slot = placement.slot
    for n in range(len(placement.places)):
        free, able = placement.free(n), per_place.get(n, 0)
        have, most = placement.slots(n), (free + able) // slot.gpus
        shares = sorted(touched.get(n, {}).values(), reverse=True)
        if placement.places[n].target_only:
            continue
        costs, before = [], 0
        for count in range(have + 1, most + 1):
            need, cost = count * slot.gpus - free, 0
            if need == able:
                cost = len(shares)
            else:
                while need > 0:
                    need -= shares[cost]
                    cost += 1
            costs.append(max(0, cost - before))
            before = max(before, cost)
        if costs:
            # The bound takes the cheapest first, so a later slot must not be cheaper than its real
            # cost.
            by_place[n] = _make_convex(costs)
    return by_place


def _make_convex(costs: list[int]) -> list[int]:
    """Return costs that any choice of first slots sums to at most, in growing order."""
    return costs if costs == sorted(costs) else [min(costs)] * len(costs)
