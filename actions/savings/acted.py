"""An action whose saving is measured."""

from datetime import datetime

import msgspec


class Acted(msgspec.Struct, frozen=True):
    """An action that took: on whom, when, and until when it stood."""

    action: str
    policy: str
    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    at: datetime
    back: datetime | None
    """When its workload came back, whoever did that; None = it stands."""
    idle_since: datetime | None
    """When the idle stretch began."""
    regretted: bool = False
    left: datetime | None = None
    """When its owner took away what was stopped: from then on it would have held nothing."""
    until: datetime | None = None
    """After this nobody looks whether it came back, and nothing is claimed."""

    @property
    def ends(self) -> tuple[datetime, ...]:
        """Return what ended, or will end, what may be claimed of it: the earliest counts."""
        return tuple(moment for moment in (self.back, self.left, self.until) if moment is not None)
