"""Whether what is shown can be relied upon: collectors that fail now."""

from datetime import datetime, timedelta

import msgspec

from dashboards.figures.asking import ask
from fallow.seams import Views

RECENT = timedelta(days=1)
"""A collector that did not look for longer than this is not looking any more."""


class Looking(msgspec.Struct, frozen=True):
    """One collector's last hour of looks."""

    cluster: str
    collector: str
    looks: int
    succeeded: int
    last_success: datetime | None
    targets_down: int
    error: str | None

    @property
    def down(self) -> bool:
        """Whether every look failed."""
        return self.succeeded == 0


def looking(views: Views, until: datetime) -> tuple[Looking, ...]:
    """Return how the newest looks of each collector went, of the day before a moment."""
    recent = (until - RECENT).replace(tzinfo=None)
    rows = ask(views, ("standing/collectors",), None, recent=recent).to_pylist()
    return tuple(Looking(**row) for row in rows)
