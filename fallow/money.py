"""Round dollars to cents: a sum is rounded once, and its parts add up to it."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

CENT, MICRO = Decimal("0.01"), Decimal("0.000001")
DECIMALS = 8
"""Of stored dollars (`fallow.tables`)."""
MOST_USD = 10**9
"""Dollars of one figure from outside: stored ones have ten digits before the point."""
MOST_USD_H = 10**6
"""Dollars of an hour, of a GPU or a node."""
MICRO_HOURS = 6
"""Decimals of GPU-hours in machine-readable files; the last one is 3.6 ms."""


def round_to_cents(usd: Decimal) -> Decimal:
    """Return dollars rounded to cents, half to even, as every page and table shows them."""
    return usd.quantize(CENT)


def multiply(usd: Decimal | None, part: float) -> Decimal | None:
    """Return a part of dollars, in millionths; None = there is no price."""
    return None if usd is None else (usd * Decimal(repr(part))).quantize(MICRO, ROUND_HALF_EVEN)


def sum_known(parts: Iterable[Decimal | None]) -> Decimal | None:
    """Return the exact sum of the values that have a price; None = none has a price."""
    amounts = [usd for usd in parts if usd is not None]
    return sum(amounts, Decimal()) if amounts else None


def sum_money(parts: Sequence[Decimal | None]) -> Decimal | None:
    """Return the sum of the values that have a price, rounded once; None = none has a price."""
    total = sum_known(parts)
    return None if total is None else round_to_cents(total)


def sum_bills(bills: Sequence[Decimal | None]) -> Decimal | None:
    """Return the bill of several clusters: the sum of theirs, each rounded once.

    So a cluster has the same cents alone and among others; None = none has a price.
    """
    return sum_money([None if usd is None else round_to_cents(usd) for usd in bills])


def apportion(
    parts: Sequence[Decimal | None], whole: Decimal | None = None
) -> list[Decimal | None]:
    """Return parts in cents that sum to `whole` (None = their rounded sum), by largest remainder.

    Each part is its own dollars rounded down or up to a cent, provided that `whole` is their
    rounded sum; None stays None.
    """
    indexes = [n for n, usd in enumerate(parts) if usd is not None]
    if not indexes:
        return list(parts)
    exact = {n: parts[n] or Decimal() for n in indexes}
    floors = {n: usd.quantize(CENT, ROUND_FLOOR) for n, usd in exact.items()}
    target = sum_money(parts) if whole is None else whole
    cents_left = int(((target or Decimal()) - sum(floors.values(), Decimal())) / CENT)
    order = sorted(indexes, key=lambda n: (floors[n] - exact[n], -exact[n], n))
    if cents_left < 0:
        order.reverse()
    for position in range(abs(cents_left)):
        floors[order[position % len(order)]] += CENT if cents_left > 0 else -CENT
    return [floors.get(n) for n in range(len(parts))]


def apportion_column(
    parts: Sequence[Decimal | None], whole: Decimal | None = None
) -> list[Decimal | None]:
    """Return parts as `apportion` does; those of 0 stay 0."""
    cents = apportion([usd or None for usd in parts], whole)
    return [usd if exact else exact for usd, exact in zip(cents, parts, strict=True)]


def split(
    usd: Sequence[Decimal | None],
    idle: Sequence[Decimal | None],
    wholes: tuple[Decimal | None, Decimal | None] | None = None,
) -> tuple[list[Decimal | None], list[Decimal | None]]:
    """Return the dollars of rows, and their idle part, in cents: each column sums to its own total.

    The totals are `wholes`, or the rounded sums. A row's idle part is never more than the row. A
    wholly idle row has no other part than 0.
    """
    total_usd, idle_total = wholes or (
        sum_money(usd),
        sum_money([i for i, u in zip(idle, usd, strict=True) if u is not None]),
    )
    if total_usd is None or idle_total is None:
        return list(usd), list(idle)
    indexes = [n for n, u in enumerate(usd) if u is not None]
    idle_parts = [idle[n] or Decimal() for n in indexes]
    used_parts = [(usd[n] or Decimal()) - i for n, i in zip(indexes, idle_parts, strict=True)]
    in_use: list[Decimal | None] = [None] * len(usd)
    idled: list[Decimal | None] = [None] * len(usd)
    shares = apportion([i or None for i in idle_parts], idle_total)
    others = apportion([r or None for r in used_parts], total_usd - idle_total)
    for n, i, r in zip(indexes, shares, others, strict=True):
        idled[n] = i or Decimal("0.00")
        in_use[n] = (i or Decimal("0.00")) + (r or Decimal("0.00"))
    return in_use, idled


def split_states(
    states: Mapping[str, Decimal | None],
    wholes: tuple[Decimal | None, Decimal | None] | None = None,
) -> dict[str, Decimal | None]:
    """Return what a cluster's hours of each state cost, in cents that sum to its bill.

    Every sum of states is a sum of these, so that used, wasted and unknown add up to paid.
    `wholes` as in `split`.
    """
    idle = [usd if state == "idle" else Decimal() for state, usd in states.items()]
    cents, _ = split(list(states.values()), [usd or Decimal() for usd in idle], wholes)
    return dict(zip(states, cents, strict=True))


def round_shares(
    own: Sequence[Decimal | None], shares: Sequence[Decimal | None], cents: Sequence[Decimal | None]
) -> list[Decimal | None]:
    """Return what rows pass on to others (negative) and get of it, in cents that sum to 0.

    `own` are the rows' dollars before, `cents` the same in cents: who passes all of them on passes
    all cents on.
    """
    outgoing = [
        -(rounded or Decimal()) if usd and share == -usd else None
        for usd, share, rounded in zip(own, shares, cents, strict=True)
    ]
    others = [share if part is None else None for part, share in zip(outgoing, shares, strict=True)]
    rounded_others = apportion_column(others, -(sum_known(outgoing) or Decimal()))
    return [
        part if other is None else other
        for part, other in zip(outgoing, rounded_others, strict=True)
    ]
