"""What failures cost work that can go on from a checkpoint, and how long it runs between them.

Failures come at a constant rate (exponential times, mean `mtbf`). Times are in one unit, any.

Sources: J. W. Young, CACM 17(9), 1974 (first order); J. T. Daly, Future Generation Computer Systems
22, 2006 (higher order, and the expected time with restarts); the interval of a mean time between
failures from the chi-square distribution of a time-truncated test (MIL-HDBK-781A).
"""

import math

import msgspec

BAND_HOURS = 730.0
"""Hours of a month, as published shares of interrupted instances count them."""


class Mtbf(msgspec.Struct, frozen=True):
    """Mean time between failures over an exposure; None = as long as one likes."""

    failures: int
    hours: float
    mean_h: float | None
    low_h: float
    high_h: float | None
    confidence: float


def young(write: float, mtbf: float) -> float:
    """Return Young's interval between checkpoints that take `write`: sqrt(2 C M)."""
    return math.sqrt(2 * write * mtbf)


def daly(write: float, mtbf: float) -> float:
    """Return Daly's interval of work between checkpoints; the MTBF where writing takes twice it."""
    if write >= 2 * mtbf:
        return mtbf
    ratio = write / (2 * mtbf)
    return young(write, mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write


def time_per_work(interval: float, write: float, mtbf: float, restart: float) -> float:
    """Return the expected time per unit of work: (M/t) e^(R/M) (e^((t+C)/M) - 1), at least 1.

    Work that is never saved has itself as interval and no `write`. Infinite where it never ends.
    """
    if interval <= 0:
        return 1.0
    if math.isinf(mtbf):
        return 1.0 + write / interval
    try:
        tries = math.exp(restart / mtbf) * math.expm1((interval + write) / mtbf)
    except OverflowError:
        return math.inf
    return max(mtbf / interval * tries, 1.0)


def realised_share(spot_usd: float, list_usd: float, stretched: float) -> float:
    """Return the share saved by work that takes longer at a lower price; below 0 it costs more."""
    return 1 - spot_usd * stretched / list_usd


def hazard(share: float, hours: float = BAND_HOURS) -> float:
    """Return failures per hour where a share (below 1) fails within so many hours."""
    return -math.log1p(-share) / hours


def mtbf(failures: int, hours: float, confidence: float = 0.95) -> Mtbf:
    """Return the mean time between failures seen over so many hours, with its interval.

    Two-sided; where nothing failed the lower bound is one-sided.
    """
    from scipy.special import chdtri  # noqa: PLC0415  (0.1 s that `fallow --help` need not pay)

    outside = 1 - confidence
    if not failures:
        low = 2 * hours / chdtri(2, outside)
        return Mtbf(0, hours, None, float(low), None, confidence)
    low = 2 * hours / chdtri(2 * failures + 2, outside / 2)
    high = 2 * hours / chdtri(2 * failures, 1 - outside / 2)
    return Mtbf(failures, hours, hours / failures, float(low), float(high), confidence)
