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
Days = npt.NDArray[np.int64]


def find_first_day(days: Days, counts: Days) -> int:
    """Return the day since 1970 on which an import begins; `days` are sorted, each once."""
    earliest = int(np.datetime64(EARLIEST, "D").astype(np.int64))
    groups = np.cumsum(np.diff(days, prepend=days[:1]) > _MOST_APART)
    totals = np.bincount(groups, weights=counts)
    many = totals >= _FEW * counts.sum()
    first = int(days[np.argmax(many[groups])]) if len(days) else earliest
    return max(first, earliest)


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
