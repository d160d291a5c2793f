"""How much each account gives and gets: whole devices, nobody hurt, nothing lost.

A wish is a bound, not an order: what an account uses, waits for and was promised now decides how
much of it comes true. Integer variables d (one per account that may move), HiGHS:

    sum d = 0                                     the sum is preserved
    give:  0 >= d >= -min(g - wish, g - max(least, used + waiting + floor), max_step g)
    get:   0 <= d <=  min(wish - g, most - g)
    for each account above others:  least, used, step <= its own g + sum d below it <= most

First as many devices as possible change hands; of all ways to do that, those heard first give and
get first. An account above others follows what lies below it, so the room between it and the sum
of its children stays as it was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import floor, inf

from actions.quota.accounts import Account, Rules, Shift, Solution, Wish

EPS = 1e-9
Bounds = tuple[int, int]


def solve(
    accounts: Sequence[Account], wishes: Sequence[Wish], rules: Rules, now: datetime
) -> Solution:
    """Return the step closest to the wishes that keeps every rule, in the order of writing.

    Children shrink before their parents, then parents grow before their children, all shrinking
    before any growing: at no moment does a sum exceed what stands above it, or what it was.
    """
    known = {a.key: a for a in accounts}
    refused: dict[str, str] = {}
    room: dict[str, Bounds] = {}
    broken = _broken(known)
    for wish in wishes:
        said = _room(wish, known, broken, rules, now)
        if isinstance(said, str):
            refused[wish.key] = said
        else:
            room[wish.key] = said
    above = {key: _above(key, known) for key in room}
    limits = {key: _limits(known[key], rules) for line in above.values() for key in line}
    moves = _most(room, above, limits)
    total = sum(d for d in moves.values() if d > 0)
    if total < max(1, rules.least_move):
        why = _why_nothing(room, total, rules)
        return Solution((), tuple({**dict.fromkeys(room, why), **refused}.items()))
    follow: dict[str, int] = {}
    for key, d in moves.items():
        for one in above[key]:
            follow[one] = follow.get(one, 0) + d
    refused |= {key: "the others can give, or need, no more" for key, d in moves.items() if not d}
    changes = {key: d for key, d in {**moves, **follow}.items() if d}
    return Solution(
        tuple(_shift(known[key], changes[key]) for key in in_order(changes, known)),
        tuple(refused.items()),
        frozenset(key for key in follow if follow[key]),
    )


def in_order(changes: Mapping[str, float], known: Mapping[str, Account]) -> list[str]:
    """Return keys as they must be written: shrinking from below, then growing from above."""
    depth = {key: len(_line(key, known)) for key in changes}
    shrink = sorted((k for k in changes if changes[k] < 0), key=lambda k: -depth[k])
    grow = sorted((k for k in changes if changes[k] > 0), key=lambda k: depth[k])
    return [*shrink, *grow]


def _room(
    wish: Wish,
    known: Mapping[str, Account],
    broken: Mapping[str, str],
    rules: Rules,
    now: datetime,
) -> Bounds | str:
    """Return by how much an account may move, or why it may not."""
    account = known.get(wish.key)
    if account is None:
        return "it is not there any more"
    if account.guarantee is None:
        return "it guarantees no number"
    change = wish.to - account.guarantee
    stuck = _stuck(account, known, broken) or _too_soon(account, change, rules, now)
    if stuck:
        return stuck
    return _gets(account, change) if change > 0 else _gives(account, -change, rules)


def _stuck(account: Account, known: Mapping[str, Account], broken: Mapping[str, str]) -> str:
    if any(other.parent == account.key for other in known.values()):
        return "its quota is that of the queues below it"
    above = (broken[key] for key in _line(account.key, known) if key in broken)
    return account.fixed or next(above, "")


def _gets(account: Account, change: float) -> Bounds | str:
    room = inf if account.most is None else account.most - (account.guarantee or 0.0)
    got = _whole(min(change, room))
    return (0, got) if got else "its cap leaves no room"


def _gives(account: Account, change: float, rules: Rules) -> Bounds | str:
    if account.used is None:
        return "what it uses is not known"
    have = account.guarantee or 0.0
    need = max(account.least, account.used + account.waiting + rules.floor)
    given = _whole(min(change, have - need, rules.max_step * have))
    if given:
        return -given, 0
    if _whole(change) == 0:
        return "nothing is asked of it"
    if have - need < 1:
        return f"it needs {need:g} of its {have:g}"
    return f"{rules.max_step:.0%} of its {have:g} is less than one device"


def _too_soon(account: Account, change: float, rules: Rules, now: datetime) -> str:
    if account.moved_at is None:
        return ""
    age, day = now - account.moved_at, f"{account.moved_at:%Y-%m-%d}"
    if age < rules.period:
        return f"it was changed on {day}: one step in {rules.period.days} days"
    if change * account.moved < 0 and age < rules.settle:
        did = "got" if account.moved > 0 else "gave"
        return f"it {did} {abs(account.moved):g} on {day}: no way back in {rules.settle.days} days"
    return ""


def _limits(account: Account, rules: Rules) -> Bounds:
    """Return by how much an account above others may follow them."""
    if account.fixed:
        return 0, 0
    have = account.guarantee or 0.0
    spare = have - max(account.least, account.used or 0.0)
    down = _whole(min(spare, rules.max_step * have))
    up = _whole(inf if account.most is None else account.most - have)
    return -down, up


def _broken(known: Mapping[str, Account]) -> dict[str, str]:
    """Return the accounts whose children are promised more than they have: those are stuck."""
    sums: dict[str, float] = {}
    for account in known.values():
        if account.parent is not None and account.guarantee is not None:
            sums[account.parent] = sums.get(account.parent, 0.0) + account.guarantee
    return {
        key: f"{key} has {have:g}, those below it are promised {total:g}: mend that first"
        for key, total in sums.items()
        if key in known and (have := known[key].guarantee) is not None and total > have + EPS
    }


def _line(key: str, known: Mapping[str, Account]) -> list[str]:
    """Return the accounts above one, the nearest first; a circle ends it."""
    line: list[str] = []
    here = known[key].parent
    while here is not None and here in known and here not in line and here != key:
        line.append(here)
        here = known[here].parent
    return line


def _above(key: str, known: Mapping[str, Account]) -> list[str]:
    """Return the accounts above one that bound it: none beyond an unlimited one."""
    line: list[str] = []
    for one in _line(key, known):
        if known[one].guarantee is None:
            break
        line.append(one)
    return line


def _most(
    room: Mapping[str, Bounds], above: Mapping[str, Sequence[str]], limits: Mapping[str, Bounds]
) -> dict[str, int]:
    """Return whole changes: the most that can change hands, those heard first before others."""
    if not any(high for _, high in room.values()) or not any(low for low, _ in room.values()):
        return {}
    keys = list(room)
    rows: list[tuple[Callable[[str], bool], Bounds]] = [(lambda _: True, (0, 0))]
    rows += [(lambda k, p=p: p in above[k], limit) for p, limit in limits.items()]  # type: ignore[misc]
    gets = [1 if room[key][1] > 0 else 0 for key in keys]
    best = _milp(keys, room, rows, [-g for g in gets])
    total = round(sum(best[key] for key, g in zip(keys, gets, strict=True) if g))
    getting = {key for key, g in zip(keys, gets, strict=True) if g}
    rows.append((lambda k: k in getting, (total, total)))
    turn = [(n + 1) * (1 if g else -1) for n, g in enumerate(gets)]
    return _milp(keys, room, rows, turn)


def _milp(
    keys: Sequence[str],
    room: Mapping[str, Bounds],
    rows: Iterable[tuple[Callable[[str], bool], Bounds]],
    costs: Sequence[int],
) -> dict[str, int]:
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import Bounds as Box  # noqa: PLC0415
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415

    listed = list(rows)
    matrix = np.array([[float(has(key)) for key in keys] for has, _ in listed])
    low, high = ([b[n] for _, b in listed] for n in (0, 1))
    box = Box([room[k][0] for k in keys], [room[k][1] for k in keys])
    found = milp(
        np.array(costs, dtype=float),
        constraints=LinearConstraint(matrix, low, high),
        integrality=np.ones(len(keys)),
        bounds=box,
    )
    if found.x is None:
        return dict.fromkeys(keys, 0)
    return {key: round(x) for key, x in zip(keys, found.x, strict=True)}


def _why_nothing(room: Mapping[str, Bounds], total: int, rules: Rules) -> str:
    if not any(low for low, _ in room.values()):
        return "nobody can give now"
    if not any(high for _, high in room.values()):
        return "nobody can take now"
    return f"{total} in all could move: fewer than {rules.least_move} are not worth a change"


def _shift(account: Account, change: int) -> Shift:
    before = account.guarantee or 0.0
    return Shift(account.key, before, round(before + change, 9))


def _whole(value: float) -> int:
    return 1_000_000 if value == inf else max(0, floor(value + EPS))
