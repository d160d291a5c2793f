"""Dollars, rounded down: what rounding drops is never above the bill."""

from decimal import ROUND_DOWN, Decimal

CENT = Decimal("0.01")
SMALLEST = Decimal("0.000001")
"""Amounts of findings and claims are kept to a millionth of a dollar."""


def compute_dollars(hours: float, usd_h: float) -> Decimal:
    """Return what hours cost at a rate in dollars an hour."""
    return (Decimal(repr(hours)) * Decimal(repr(usd_h))).quantize(SMALLEST, ROUND_DOWN)
