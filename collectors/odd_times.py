"""Bound an import by its own time: a row of a clock that was not set spreads no hours.

Rows of days far before the others are refused where they are few, and so are all from before
`EARLIEST`. Rows of the future are the warehouse's to refuse.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fallow.rejections import Rejection
from fallow.window import EARLIEST

DAY_US = 86_400_000_000
_MOST_APART = 45
"""Days between two rows of one import, beyond which the fewer rows are odd."""
_FEW = 0.05
"""Share of an import's rows that can be odd; more are another time that it has."""
_EARLIEST_DAY = int(np.datetime64(EARLIEST, "D").astype(np.int64))
Days = npt.NDArray[np.int64]


def may_be_odd(first_day: int, last_day: int) -> bool:
    """Return whether rows from one day to another can be odd; else their days need no count."""
    return last_day - first_day > _MOST_APART or first_day < _EARLIEST_DAY


def find_first_day(days: Days, counts: Days) -> int:
    """Return the day since 1970 on which an import begins; `days` are sorted, each once."""
    groups = np.cumsum(np.diff(days, prepend=days[:1]) > _MOST_APART)
    totals = np.bincount(groups, weights=counts)
    many = totals >= _FEW * counts.sum()
    return max(int(days[np.argmax(many[groups])]), _EARLIEST_DAY)


def reject(devices: Sequence[tuple[str, int, int]], first_day: int) -> list[Rejection]:
    """Return what is refused: of each device the day of its first odd row, and how many it has."""
    begin = np.datetime64(first_day, "D")
    return [
        Rejection(
            "sample",
            "",
            device,
            "ts",
            f"{np.datetime64(day, 'D')} is long before the import's other rows, from {begin} on",
            count=count,
        )
        for device, day, count in devices
    ]
