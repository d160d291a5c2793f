"""Split a change of cost into price x quantity x mix, exact to the cent."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

CENT = Fraction(1, 100)


class ModelChange(NamedTuple):
    """One GPU model (or another dimension of the mix): before and now."""

    hours_before: Fraction
    usd_before: Fraction
    hours: Fraction
    usd: Fraction


class AllocatedHours(NamedTuple):
    """Allocated GPU-hours, of which a part was wasted."""

    before: Fraction
    now: Fraction


def split_effects(
    parts: Sequence[ModelChange], allocated: AllocatedHours | None = None
) -> dict[str, Fraction]:
    """Return what quantity, mix and price added: they sum exactly to the change.

    With Q, q hours, P, p prices, 0 before: quantity = P0 (Q - Q0), at the mean price; mix = sum(p0
    q) - P0 Q, more expensive models than before at their old prices; price = sum((p - p0) q), so
    the joint term belongs to price. A model without a past has no old price: it belongs to mix.
    With `allocated`, quantity is split into allocated hours and the share of them that was wasted.
    """
    hours_before = sum((p.hours_before for p in parts), Fraction())
    usd_before = sum((p.usd_before for p in parts), Fraction())
    hours = sum((p.hours for p in parts), Fraction())
    usd = sum((p.usd for p in parts), Fraction())
    mean = usd_before / hours_before if hours_before else usd / hours if hours else Fraction()
    at_old = sum((_get_old_price(p) * p.hours for p in parts), Fraction())
    quantity = mean * (hours - hours_before)
    effects = {"quantity": quantity, "mix": at_old - mean * hours, "price": usd - at_old}
    if not hours_before:
        effects["price"] += -usd_before
    if allocated is None:
        return effects
    rate = (
        hours_before / allocated.before
        if allocated.before
        else (hours / allocated.now if allocated.now else 0)
    )
    allocated_effect = mean * rate * (allocated.now - allocated.before)
    del effects["quantity"]
    return {"held": allocated_effect, "wasted share": quantity - allocated_effect, **effects}


def round_to_cents(parts: Mapping[str, Fraction]) -> tuple[dict[str, Decimal], Decimal]:
    """Return parts in cents and their sum; the largest part absorbs the rounding."""
    total = round(sum(parts.values(), Fraction()) / CENT)
    cents = {name: round(value / CENT) for name, value in parts.items()}
    greatest = max(cents, key=lambda name: (abs(parts[name]), name))
    cents[greatest] += total - sum(cents.values())
    return {n: Decimal(c).scaleb(-2) for n, c in cents.items()}, Decimal(total).scaleb(-2)


def _get_old_price(part: ModelChange) -> Fraction:
    if part.hours_before:
        return part.usd_before / part.hours_before
    return part.usd / part.hours if part.hours else Fraction()
