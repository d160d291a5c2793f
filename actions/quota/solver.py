"""Compute how much each account gives and gets: whole devices, no harm, constant sums.

A wish is a bound, not an order. What an account uses, waits for and was promised now decides how
much of the wish is fulfilled. Integer variables d (one per account that may move), HiGHS:

    sum d = 0                                     the sum is preserved
    give:  0 >= d >= -min(g - wish, g - max(least, used + waiting + floor), max_step g)
    get:   0 <= d <=  min(wish - g, most - g)
    for each account above others:  least, used, step <= its own g + sum d below it <= most

First as many devices as possible change hands. Of all ways to do that, accounts with priority give
and get first. An account above others follows the accounts below it, so the difference between it
and the sum of its children stays the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import floor, inf

from actions.quota.accounts import Account, QuotaShift, QuotaStep, StepRules, TargetQuota

EPS = 1e-9
Bounds = tuple[int, int]


def solve(
    accounts: Sequence[Account], wishes: Sequence[TargetQuota], rules: StepRules, now: datetime
) -> QuotaStep:
    """Return the step closest to the wishes that keeps every rule, in the order of writing.

    First children shrink before their parents, then parents grow before their children; all
    shrinking comes before any growing. At no time does a sum exceed its parent, or its old value.
    """
    accounts_by_key = {a.key: a for a in accounts}
    refused: dict[str, str] = {}
    bounds: dict[str, Bounds] = {}
    overcommitted = _find_overcommitted(accounts_by_key)
    for wish in wishes:
        result = _get_bounds(wish, accounts_by_key, overcommitted, rules, now)
        if isinstance(result, str):
            refused[wish.key] = result
        else:
            bounds[wish.key] = result
    ancestors = {key: _list_bounding(key, accounts_by_key) for key in bounds}
    limits = {
        key: _bound_parent(accounts_by_key[key], rules)
        for parents in ancestors.values()
        for key in parents
    }
    moves = _maximize(bounds, ancestors, limits)
    total = sum(change for change in moves.values() if change > 0)
    if total < max(1, rules.least_move):
        why = _explain_nothing(bounds, total, rules)
        return QuotaStep((), tuple({**dict.fromkeys(bounds, why), **refused}.items()))
    follow: dict[str, int] = {}
    for key, change in moves.items():
        for parent in ancestors[key]:
            follow[parent] = follow.get(parent, 0) + change
    refused |= {
        key: "the others can give, or need, no more" for key, change in moves.items() if not change
    }
    changes = {key: change for key, change in {**moves, **follow}.items() if change}
    return QuotaStep(
        tuple(
            _shift(accounts_by_key[key], changes[key])
            for key in order_writes(changes, accounts_by_key)
        ),
        tuple(refused.items()),
        frozenset(key for key in follow if follow[key]),
    )


def order_writes(changes: Mapping[str, float], accounts_by_key: Mapping[str, Account]) -> list[str]:
    """Return keys in the order of writing: shrinking from below, then growing from above."""
    depth = {key: len(_list_ancestors(key, accounts_by_key)) for key in changes}
    shrink = sorted((k for k in changes if changes[k] < 0), key=lambda k: -depth[k])
    grow = sorted((k for k in changes if changes[k] > 0), key=lambda k: depth[k])
    return [*shrink, *grow]


def _get_bounds(
    wish: TargetQuota,
    accounts_by_key: Mapping[str, Account],
    overcommitted: Mapping[str, str],
    rules: StepRules,
    now: datetime,
) -> Bounds | str:
    """Return the bounds of an account's change, or why it must not change."""
    account = accounts_by_key.get(wish.key)
    if account is None:
        return "it is not there any more"
    if account.nominal is None:
        return "it has no nominal quota"
    change = wish.to - account.nominal
    stuck = _explain_stuck(account, accounts_by_key, overcommitted) or _explain_too_soon(
        account, change, rules, now
    )
    if stuck:
        return stuck
    return _bound_receiver(account, change) if change > 0 else _bound_giver(account, -change, rules)


def _explain_stuck(
    account: Account, accounts_by_key: Mapping[str, Account], overcommitted: Mapping[str, str]
) -> str:
    if any(other.parent == account.key for other in accounts_by_key.values()):
        return "its quota is that of the queues below it"
    reasons = (
        overcommitted[key]
        for key in _list_ancestors(account.key, accounts_by_key)
        if key in overcommitted
    )
    return account.fixed or next(reasons, "")


def _bound_receiver(account: Account, change: float) -> Bounds | str:
    headroom = inf if account.most is None else account.most - (account.nominal or 0.0)
    received = _to_whole(min(change, headroom))
    return (0, received) if received else "its cap leaves no room"


def _bound_giver(account: Account, change: float, rules: StepRules) -> Bounds | str:
    if account.used is None:
        return "what it uses is not known"
    nominal = account.nominal or 0.0
    required = max(account.least, account.used + account.waiting + rules.floor)
    amount = _to_whole(min(change, nominal - required, rules.max_step * nominal))
    if amount:
        return -amount, 0
    if _to_whole(change) == 0:
        return "nothing is asked of it"
    if nominal - required < 1:
        return f"it needs {required:g} of its {nominal:g}"
    return f"{rules.max_step:.0%} of its {nominal:g} is less than one device"


def _explain_too_soon(account: Account, change: float, rules: StepRules, now: datetime) -> str:
    if account.moved_at is None:
        return ""
    age, day = now - account.moved_at, f"{account.moved_at:%Y-%m-%d}"
    if age < rules.period:
        return f"it was changed on {day}: one step in {rules.period.days} days"
    if change * account.moved < 0 and age < rules.settle:
        verb = "got" if account.moved > 0 else "gave"
        return f"it {verb} {abs(account.moved):g} on {day}: no way back in {rules.settle.days} days"
    return ""


def _bound_parent(account: Account, rules: StepRules) -> Bounds:
    """Return the bounds of the change of an account above others."""
    if account.fixed:
        return 0, 0
    nominal = account.nominal or 0.0
    spare = nominal - max(account.least, account.used or 0.0)
    down = _to_whole(min(spare, rules.max_step * nominal))
    up = _to_whole(inf if account.most is None else account.most - nominal)
    return -down, up


def _find_overcommitted(accounts_by_key: Mapping[str, Account]) -> dict[str, str]:
    """Return the accounts whose children have larger nominal quotas than they have.

    These accounts cannot move.
    """
    sums: dict[str, float] = {}
    for account in accounts_by_key.values():
        if account.parent is not None and account.nominal is not None:
            sums[account.parent] = sums.get(account.parent, 0.0) + account.nominal
    return {
        key: f"{key} has {nominal:g}, those below it are promised {total:g}: mend that first"
        for key, total in sums.items()
        if key in accounts_by_key
        and (nominal := accounts_by_key[key].nominal) is not None
        and total > nominal + EPS
    }


def _list_ancestors(key: str, accounts_by_key: Mapping[str, Account]) -> list[str]:
    """Return the accounts above one, the nearest first; a circle ends the list."""
    ancestors: list[str] = []
    parent = accounts_by_key[key].parent
    while (
        parent is not None
        and parent in accounts_by_key
        and parent not in ancestors
        and parent != key
    ):
        ancestors.append(parent)
        parent = accounts_by_key[parent].parent
    return ancestors


def _list_bounding(key: str, accounts_by_key: Mapping[str, Account]) -> list[str]:
    """Return the accounts above one that bound it: none beyond an unlimited one."""
    bounding: list[str] = []
    for ancestor in _list_ancestors(key, accounts_by_key):
        if accounts_by_key[ancestor].nominal is None:
            break
        bounding.append(ancestor)
    return bounding


def _maximize(
    bounds: Mapping[str, Bounds],
    ancestors: Mapping[str, Sequence[str]],
    limits: Mapping[str, Bounds],
) -> dict[str, int]:
    """Return whole changes: the most devices that can change hands, in the order of priority."""
    if not any(high for _, high in bounds.values()) or not any(low for low, _ in bounds.values()):
        return {}
    keys = list(bounds)
    rows: list[tuple[Callable[[str], bool], Bounds]] = [(lambda _: True, (0, 0))]
    rows += [(lambda k, p=p: p in ancestors[k], limit) for p, limit in limits.items()]  # type: ignore[misc]
    is_receiver = [1 if bounds[key][1] > 0 else 0 for key in keys]
    best = _solve_integers(keys, bounds, rows, [-g for g in is_receiver])
    total = round(sum(best[key] for key, g in zip(keys, is_receiver, strict=True) if g))
    receivers = {key for key, g in zip(keys, is_receiver, strict=True) if g}
    rows.append((lambda k: k in receivers, (total, total)))
    costs = [(n + 1) * (1 if g else -1) for n, g in enumerate(is_receiver)]
    return _solve_integers(keys, bounds, rows, costs)


def _solve_integers(
    keys: Sequence[str],
    bounds: Mapping[str, Bounds],
    rows: Iterable[tuple[Callable[[str], bool], Bounds]],
    costs: Sequence[int],
) -> dict[str, int]:
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import Bounds as Box  # noqa: PLC0415
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415

    constraints = list(rows)
    matrix = np.array([[float(has(key)) for key in keys] for has, _ in constraints])
    low, high = ([b[n] for _, b in constraints] for n in (0, 1))
    box = Box([bounds[k][0] for k in keys], [bounds[k][1] for k in keys])
    solution = milp(
        np.array(costs, dtype=float),
        constraints=LinearConstraint(matrix, low, high),
        integrality=np.ones(len(keys)),
        bounds=box,
    )
    if solution.x is None:
        return dict.fromkeys(keys, 0)
    return {key: round(x) for key, x in zip(keys, solution.x, strict=True)}


def _explain_nothing(bounds: Mapping[str, Bounds], total: int, rules: StepRules) -> str:
    if not any(low for low, _ in bounds.values()):
        return "no queue can give now"
    if not any(high for _, high in bounds.values()):
        return "no queue can take now"
    return f"{total} in all could move: fewer than {rules.least_move} are not worth a change"


def _shift(account: Account, change: int) -> QuotaShift:
    before = account.nominal or 0.0
    return QuotaShift(account.key, before, round(before + change, 9))


def _to_whole(value: float) -> int:
    return 1_000_000 if value == inf else max(0, floor(value + EPS))
