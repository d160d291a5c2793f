"""Compute dollars, rounded down, so that sums never exceed the bill."""

from decimal import ROUND_DOWN, Decimal

CENT = Decimal("0.01")
SMALLEST = Decimal("0.000001")
"""Amounts of findings and claims are stored in millionths of a dollar."""


def compute_dollars(hours: float, usd_h: float) -> Decimal:
    """Return the cost of hours at a rate in dollars per hour."""
    return (Decimal(repr(hours)) * Decimal(repr(usd_h))).quantize(SMALLEST, ROUND_DOWN)
