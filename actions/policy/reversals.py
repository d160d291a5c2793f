"""Test whether a history proves the rate of reversals that a policy declares.

A share of a few stops proves little: a policy that is reversed after every second stop may also
show 0 of 3. A policy is proved when the upper end of the one-sided 95 % interval of its reversals
(Clopper and Pearson 1934, exact) is within the declared rate.
"""

import math

import msgspec

CONFIDENCE = 0.95


class ReversalProof(msgspec.Struct, frozen=True):
    """The stops and reversals of a history, against the declared rate."""

    reversals: int
    judged: int
    """Stops for which the data show whether they were reversed."""
    declared: float
    days: float
    """Length of the history."""

    @property
    def upper_end(self) -> float:
        """Return the upper end of the rate's interval."""
        return get_upper_end(self.reversals, self.judged)

    @property
    def met(self) -> bool:
        """Return whether the declared rate is proved; without stops nothing is proved."""
        return self.judged > 0 and self.upper_end <= self.declared

    @property
    def missing_stops(self) -> int | None:
        """Return how many more stops without a reversal would prove it; None = no number would."""
        if not self.judged or self.reversals > self.declared * self.judged:
            return None
        needed = count_needed_stops(self.reversals, self.declared)
        return None if needed is None else max(needed - self.judged, 0)

    @property
    def missing_days(self) -> int | None:
        """Return how many days of history that takes at the rate of this one; None = no number."""
        more = self.missing_stops
        return None if more is None or not self.days else math.ceil(more * self.days / self.judged)

    def __str__(self) -> str:
        if not self.judged:
            return "no stop to judge: what stops nothing proves nothing"
        summary = (
            f"{self.reversals} of {self.judged} within {self.declared:.1%}: "
            f"upper end {self.upper_end:.1%}"
        )
        if self.met:
            return summary
        if self.reversals > self.declared * self.judged:
            return f"{summary}; that is more than it declares"
        if self.missing_stops is None:
            return f"{summary}; no history proves a rate of 0%"
        suffix = " without another reversal" if self.reversals else ""
        pace = (
            f", at the pace of this history {_format_days(self.missing_days)}"
            if self.missing_days
            else ""
        )
        stops = f"{self.missing_stops} more stop{_format_plural(self.missing_stops)}"
        return f"{summary}; needs about {stops}{suffix}{pace}"


def get_upper_end(reversals: int, stops: int) -> float:
    """Return the upper end of the one-sided 95 % interval of a share (Clopper and Pearson 1934).

    At that rate, this few reversals or fewer occur one time in twenty: 0 of n gives 1 - 0.05 ** (1
    / n). With no stop judged the result is 1.
    """
    if reversals >= stops:
        return 1.0
    from scipy.special import betaincinv  # noqa: PLC0415  (loads in 0.2 s)

    return float(betaincinv(reversals + 1, stops - reversals, CONFIDENCE))


def count_needed_stops(reversals: int, rate: float) -> int | None:
    """Return the fewest stops that prove a rate with this many reversals; None = no number does."""
    if rate <= 0:
        return None
    low, high = reversals, reversals + 1
    while get_upper_end(reversals, high) > rate:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if get_upper_end(reversals, middle) <= rate else (middle, high)
    return high


def _format_days(count: int | None) -> str:
    return f"{count} day{_format_plural(count)}"


def _format_plural(count: int | None) -> str:
    return "" if count == 1 else "s"
