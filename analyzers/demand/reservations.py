"""Commitments: the share of use that they cover, the share of them that is used, the break-even."""

import msgspec
import numpy as np

from analyzers.arrays import Doubles


class ReservedGpus(msgspec.Struct, frozen=True):
    """GPUs of one model per hour of the window."""

    allocated: Doubles
    """Allocated GPUs on reserved nodes, or that commitments paid."""
    paid: Doubles
    """All of these, allocated or not."""
    other: Doubles
    """Allocated GPUs that are paid by the hour."""
    free: Doubles
    """Free GPUs on reserved nodes; a commitment has no node on which it lies unused."""

    @property
    def coverage(self) -> float | None:
        """Return the share of the use that ran on reservations."""
        whole = float((self.allocated + self.other).sum())
        return float(self.allocated.sum()) / whole if whole else None

    @property
    def utilisation(self) -> float | None:
        """Return the share of the reservations that was used."""
        whole = float(self.paid.sum())
        return float(self.allocated.sum()) / whole if whole else None

    @property
    def misplaced(self) -> Doubles:
        """Return GPUs reserved and free while others of the model were paid by the hour."""
        least: Doubles = np.minimum(self.free, self.other)
        return least


def count_to_reserve(use: Doubles, ratio: float) -> int:
    """Return how many GPUs are cheaper reserved, at `ratio` of the hourly price.

    The n-th GPU is cheaper if more than that share of the hours use it (a newsvendor's quantile: Cu
    = 1 - ratio, Co = ratio).
    """
    if not len(use) or ratio >= 1:
        return 0
    rank = min(int(ratio * len(use) + 1e-9), len(use) - 1)
    return int(np.floor(np.sort(use)[::-1][rank] + 1e-9))


def compute_saved_hours(use: Doubles, gpus: int, ratio: float) -> float:
    """Return the GPU-hours at the hourly price that reserving this many GPUs saves."""
    return float(np.minimum(use, gpus).sum() - ratio * gpus * len(use))
