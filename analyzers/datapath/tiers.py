"""Find a cheaper storage class for data: with every fee, at the least favourable number of reads.

stay  = gib x price x months                              + reads x retrieval
move  = gib x new price x months (the minimum stay at least) + reads x new retrieval
        + gib x (retrieval out + write in + what is left of the old minimum stay)
"""

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from fallow.settings.datapath import StorageClass

MONTH = Fraction(487, 16)
"""Days per month: 365.25 / 12."""


class ReadRange(msgspec.Struct, frozen=True):
    """GiB read per day: minimum and maximum by the traffic of pods."""

    least: Fraction
    most: Fraction


class TierMove(msgspec.Struct, frozen=True):
    """A class that costs less for any reads between their bounds."""

    to: StorageClass
    stay_usd: Fraction
    """Over the horizon, at the reads with the smallest saving."""
    move_usd: Fraction
    saving_usd: Fraction
    fees_usd: Fraction
    """The cost of the move itself: out, in, and the old minimum stay."""


def compute_stay_cost(
    gib: Fraction, storage_class: StorageClass, reads: Fraction, days: Fraction
) -> Fraction:
    """Return the cost of a number of days in a class, `reads` in GiB per day."""
    storage = gib * Fraction(storage_class.usd_per_gib_month) * days / MONTH
    return storage + reads * days * Fraction(storage_class.retrieval_usd_per_gib)


def compute_fees(
    gib: Fraction, old: StorageClass, new: StorageClass, age_days: Fraction
) -> Fraction:
    """Return the cost of the move: retrieval, writing, and the rest of the old minimum stay."""
    rest = max(Fraction(old.minimum_days) - age_days, Fraction())
    early = gib * Fraction(old.usd_per_gib_month) * rest / MONTH
    moved = Fraction(old.retrieval_usd_per_gib) + Fraction(new.write_usd_per_gib)
    return early + gib * moved


def compute_move_cost(  # noqa: PLR0917
    gib: Fraction,
    old: StorageClass,
    new: StorageClass,
    reads: Fraction,
    days: Fraction,
    age_days: Fraction,
) -> Fraction:
    """Return the cost of a number of days after a move now; a minimum stay is paid completely."""
    paid_days = max(days, Fraction(new.minimum_days))
    storage = gib * Fraction(new.usd_per_gib_month) * paid_days / MONTH
    read = reads * days * Fraction(new.retrieval_usd_per_gib)
    return storage + read + compute_fees(gib, old, new, age_days)


def find_best_class(  # noqa: PLR0917
    gib: Fraction,
    old: StorageClass,
    classes: Iterable[StorageClass],
    reads: ReadRange,
    days: Fraction,
    age_days: Fraction,
) -> TierMove | None:
    """Return the class with the largest saving at the least favourable reads; None = stay.

    The saving is linear in reads, so it is smallest at one of their bounds. Data with any reads
    never move to a class that requires a restore first.
    """
    moves = []
    for new in classes:
        if new.name == old.name or (reads.most > 0 and not new.instant):
            continue
        costs = [
            (
                compute_stay_cost(gib, old, r, days),
                compute_move_cost(gib, old, new, r, days, age_days),
            )
            for r in (reads.least, reads.most)
        ]
        stay, move = min(costs, key=lambda pair: pair[0] - pair[1])
        if stay > move:
            moves.append(
                TierMove(new, stay, move, stay - move, compute_fees(gib, old, new, age_days))
            )
    return max(moves, key=lambda m: (m.saving_usd, m.to.name), default=None)


def compute_cache_return(
    gib: Fraction,
    storage_class: StorageClass,
    reads: ReadRange,
    days: Fraction,
    cache_usd_gib_month: Fraction,
) -> Fraction:
    """Return the retrieval fees that a cache of the whole set saves, minus its own cost.

    The cache serves only reads after the first fill; shorter waits of GPUs are not counted.
    """
    served = max(reads.least * days - gib, Fraction())
    cost = gib * cache_usd_gib_month * days / MONTH
    return served * Fraction(storage_class.retrieval_usd_per_gib) - cost
