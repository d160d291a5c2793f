"""Dollars in cents: one sum is rounded once, and its parts sum to it."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

CENT = Decimal("0.01")
MICRO_HOURS = 6
"""Decimals of GPU-hours in files that machines read: 3.6 ms."""


def cents(usd: Decimal) -> Decimal:
    """Return dollars rounded to cents, halves to even, as every page and table writes them."""
    return usd.quantize(CENT)


def total(parts: Sequence[Decimal | None]) -> Decimal | None:
    """Return the sum of what has a price, rounded once; None = nothing has."""
    known = [usd for usd in parts if usd is not None]
    return cents(sum(known, Decimal())) if known else None


def apportion(
    parts: Sequence[Decimal | None], whole: Decimal | None = None
) -> list[Decimal | None]:
    """Return parts in cents that sum to `whole` (none = their rounded sum), by largest remainder.

    Each is its own dollars rounded down or up to a cent, as long as `whole` is their sum rounded;
    None stays None.
    """
    known = [n for n, usd in enumerate(parts) if usd is not None]
    if not known:
        return list(parts)
    exact = {n: parts[n] or Decimal() for n in known}
    made = {n: usd.quantize(CENT, ROUND_FLOOR) for n, usd in exact.items()}
    target = total(parts) if whole is None else whole
    left = int(((target or Decimal()) - sum(made.values(), Decimal())) / CENT)
    order = sorted(known, key=lambda n: (made[n] - exact[n], -exact[n], n))
    if left < 0:
        order.reverse()
    for place in range(abs(left)):
        made[order[place % len(order)]] += CENT if left > 0 else -CENT
    return [made.get(n) for n in range(len(parts))]


def split(
    usd: Sequence[Decimal | None], idle: Sequence[Decimal | None]
) -> tuple[list[Decimal | None], list[Decimal | None]]:
    """Return dollars of rows, and their idle part, in cents: both columns sum to their own total.

    Never is a row's idle part more than the row, nor the rest of a wholly idle row other than 0.
    """
    whole, idle_whole = (
        total(usd),
        total([i for i, u in zip(idle, usd, strict=True) if u is not None]),
    )
    if whole is None or idle_whole is None:
        return list(usd), list(idle)
    known = [n for n, u in enumerate(usd) if u is not None]
    resting = [idle[n] or Decimal() for n in known]
    rest = [(usd[n] or Decimal()) - i for n, i in zip(known, resting, strict=True)]
    spent: list[Decimal | None] = [None] * len(usd)
    idled: list[Decimal | None] = [None] * len(usd)
    shares = apportion([i or None for i in resting], idle_whole)
    others = apportion([r or None for r in rest], whole - idle_whole)
    for n, i, r in zip(known, shares, others, strict=True):
        idled[n] = i or Decimal("0.00")
        spent[n] = (i or Decimal("0.00")) + (r or Decimal("0.00"))
    return spent, idled
