"""Did the waiting fall? Rows of the quota table from before and after a step, compared."""

from collections.abc import Sequence
from datetime import datetime

import msgspec


class Look(msgspec.Struct, frozen=True):
    """What one quota said in one hour, in devices."""

    hour: datetime
    key: str
    nominal: float
    used: float
    waiting: float | None


class Judged(msgspec.Struct, frozen=True):
    """Whether a step did harm; None = too little was seen to say."""

    worse: bool | None
    why: str
    harm_gpu_hours: float = 0.0
    """Waited for within what was given away."""
    good_gpu_hours: float = 0.0
    """Used of what was got."""
    waited_before: float | None = None
    """Hours waited per GPU-hour had."""
    waited_after: float | None = None


def worsened(before: Sequence[Look], after: Sequence[Look]) -> Judged:
    """Say whether waiting time worsened from the hours before a step to those after it."""
    raise NotImplementedError
