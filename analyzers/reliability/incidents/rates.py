"""Compute how often things fail: MTBF with Poisson intervals, a trend, and who is worse than peers.

Counts of failures are Poisson over the hours in which they could happen. The interval of an MTBF is
the exact one (chi-square, `fallow.checkpointing.compute_mtbf`). Two counts are compared by the
exact binomial test on their sum: given n failures in all, the share in one part is binomial with
the part's share of the hours (Przyborowski and Wilenski, Biometrika 31, 1940). Many subjects are
compared at once, so the p-values are corrected by Holm's method (Scandinavian Journal of
Statistics 6, 1979), which holds whatever depends on whatever.
"""

from collections.abc import Mapping, Sequence

import msgspec

SIGNIFICANT = 0.05
"""Corrected p-values below this are beyond chance."""
LEAST_PEERS = 3
"""With fewer subjects of a kind nobody is worse than peers."""


class PeerTest(msgspec.Struct, frozen=True):
    """A subject's failures beside those that its peers' rate would give it."""

    expected: float
    """By its peers' rate and its own hours."""
    p: float
    """Probability of so many or more failures by chance, corrected for the number of subjects."""

    @property
    def is_worse(self) -> bool:
        """Return whether it fails more often than its peers beyond chance."""
        return self.p < SIGNIFICANT


def compute_trend(before: int, before_h: float, after: int, after_h: float) -> float | None:
    """Return the two-sided p-value of an unchanged rate; None = nothing can be compared."""
    total = before + after
    if not total or before_h <= 0 or after_h <= 0:
        return None
    share = after_h / (before_h + after_h)
    up = _compute_tail(after, total, share)
    down = _compute_tail(before, total, 1 - share)
    return min(1.0, 2 * min(up, down))


def compare_with_peers(
    counts: Mapping[str, int], hours: Mapping[str, float]
) -> dict[str, PeerTest]:
    """Return the test of each subject against all others of its kind, Holm-corrected."""
    subjects = [name for name, length in hours.items() if length > 0]
    total, all_hours = sum(counts.get(name, 0) for name in subjects), sum(hours.values())
    if len(subjects) < LEAST_PEERS or not total:
        return {}
    chances = {
        name: _compute_tail(counts.get(name, 0), total, hours[name] / all_hours)
        for name in subjects
    }
    corrected = apply_holm(list(chances.values()))
    tests = {}
    for name, p in zip(chances, corrected, strict=True):
        others_h = all_hours - hours[name]
        expected = (total - counts.get(name, 0)) / others_h * hours[name]
        tests[name] = PeerTest(expected, p)
    return tests


def apply_holm(chances: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down method, in the same order."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    corrected, least = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = least
    return corrected


def _compute_tail(count: int, total: int, share: float) -> float:
    """Return the probability of `count` or more of `total` with this share each."""
    from scipy.special import bdtrc  # noqa: PLC0415  (0.1 s that `fallow --help` need not pay)

    return float(bdtrc(count - 1, total, share)) if count else 1.0
