"""Commitments: how much of the use they cover, how much of them is used, when they pay."""

import msgspec
import numpy as np

from analyzers.quota.fair import Doubles


class ReservedGpus(msgspec.Struct, frozen=True):
    """Of one GPU model, GPUs per hour of the window."""

    allocated: Doubles
    """On reserved nodes, allocated."""
    paid: Doubles
    """On reserved nodes, allocated or not."""
    other: Doubles
    """Allocated on nodes that are paid by the hour."""

    @property
    def coverage(self) -> float | None:
        """Return the part of the use that ran on reservations."""
        whole = float((self.allocated + self.other).sum())
        return float(self.allocated.sum()) / whole if whole else None

    @property
    def utilisation(self) -> float | None:
        """Return the part of the reservations that was used."""
        whole = float(self.paid.sum())
        return float(self.allocated.sum()) / whole if whole else None

    @property
    def misplaced(self) -> Doubles:
        """Return GPUs reserved and free while others of the model were paid by the hour."""
        least: Doubles = np.minimum(np.maximum(self.paid - self.allocated, 0), self.other)
        return least


def count_to_reserve(use: Doubles, ratio: float) -> int:
    """Return how many GPUs pay as a reservation at `ratio` of the price by the hour.

    The n-th GPU pays where more than that part of the hours use it (a newsvendor's quantile:
    Cu = 1 - ratio, Co = ratio).
    """
    if not len(use) or ratio >= 1:
        return 0
    rank = min(int(ratio * len(use) + 1e-9), len(use) - 1)
    return int(np.floor(np.sort(use)[::-1][rank] + 1e-9))


def compute_saved_hours(use: Doubles, gpus: int, ratio: float) -> float:
    """Return the GPU-hours at the price by the hour that reserving so many GPUs saves."""
    return float(np.minimum(use, gpus).sum() - ratio * gpus * len(use))
