"""Compute what failures cost work that resumes from checkpoints, and the best interval.

Failures have a constant rate (exponential times, mean `mtbf`). All times are in one unit, any.

Sources: J. W. Young, CACM 17(9), 1974 (first order); J. T. Daly, Future Generation Computer Systems
22, 2006 (higher order, and the expected time with restarts); the interval of a mean time between
failures from the chi-square distribution of a time-truncated test (MIL-HDBK-781A).
"""

import math

import msgspec

from fallow.errors import UsageError
from fallow.window import parse_duration

BAND_HOURS = 730.0
"""Hours of a month, as published shares of interrupted instances count them."""
INTERVAL = "fallow.dev/checkpoint-interval"
"""The format of the owner's annotation: `30m`."""


class Mtbf(msgspec.Struct, frozen=True):
    """Mean time between failures over an exposure; None = no upper bound."""

    failures: int
    hours: float
    mean_h: float | None
    low_h: float
    high_h: float | None
    confidence: float


def parse_interval_hours(text: object) -> float | None:
    """Return the hours of an owner's annotation; None = it has none, or not a duration."""
    try:
        hours = parse_duration(str(text)).total_seconds() / 3600 if text else 0.0
    except UsageError:
        return None
    return hours if hours > 0 else None


def compute_young_interval(write: float, mtbf: float) -> float:
    """Return Young's interval between checkpoints that take `write` to write: sqrt(2 C M)."""
    return math.sqrt(2 * write * mtbf)


def compute_daly_interval(write: float, mtbf: float) -> float:
    """Return Daly's interval of work between checkpoints; the MTBF from `write` = 2 MTBF on."""
    if write >= 2 * mtbf:
        return mtbf
    ratio = write / (2 * mtbf)
    return compute_young_interval(write, mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write


def compute_time_per_work(interval: float, write: float, mtbf: float, restart: float) -> float:
    """Return the expected time per unit of work: (M/t) e^(R/M) (e^((t+C)/M) - 1), at least 1.

    Work without checkpoints has its whole length as interval and no `write`. Infinite where the
    work can never end.
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


def compute_realised_share(spot_usd: float, list_usd: float, stretched: float) -> float:
    """Return the realised saving of work that takes longer at a lower price; below 0 = a loss."""
    return 1 - spot_usd * stretched / list_usd


def compute_hazard(share: float, hours: float = BAND_HOURS) -> float:
    """Return failures per hour where a share (below 1) fails within this many hours."""
    return -math.log1p(-share) / hours


def compute_mtbf(failures: int, hours: float, confidence: float = 0.95) -> Mtbf:
    """Return the observed mean time between failures over this many hours, with its interval.

    The interval is two-sided; without any failure the lower bound is one-sided.
    """
    from scipy.special import chdtri  # noqa: PLC0415  (0.1 s that `fallow --help` need not pay)

    outside = 1 - confidence
    if not failures:
        low = 2 * hours / chdtri(2, outside)
        return Mtbf(0, hours, None, float(low), None, confidence)
    low = 2 * hours / chdtri(2 * failures + 2, outside / 2)
    high = 2 * hours / chdtri(2 * failures, 1 - outside / 2)
    return Mtbf(failures, hours, hours / failures, float(low), float(high), confidence)
