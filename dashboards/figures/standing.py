"""Whether what is shown can be relied upon: collectors that fail now, audits that fail."""

from datetime import datetime, timedelta

import msgspec

from dashboards.figures.asking import ask
from fallow.seams import Views
from fallow.window import Window

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


def audits(views: Views, window: Window) -> str | None:
    """Return the banner of the audits that fail over a window; None = its ledger adds up."""
    from warehouse.audits import banner, run  # noqa: PLC0415  (the engine loads in 0.3 s)
    from warehouse.lake import Warehouse  # noqa: PLC0415

    if not isinstance(views, Warehouse):  # a test's rows have no books
        return None
    return banner(run(views, window))


def looking(views: Views, until: datetime) -> tuple[Looking, ...]:
    """Return how the newest looks of each collector went, of the day before a moment."""
    recent = (until - RECENT).replace(tzinfo=None)
    rows = ask(views, ("standing/collectors",), None, recent=recent).to_pylist()
    return tuple(Looking(**row) for row in rows)
