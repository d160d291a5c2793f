"""An action whose saving is measured."""

from datetime import datetime

import msgspec


class MeasuredAction(msgspec.Struct, frozen=True):
    """An action that took: on whom, when, and until when it stood."""

    action: str
    policy: str
    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    at: datetime
    returned_at: datetime | None
    """When its workload came back, whoever did that; None = it stands."""
    idle_since: datetime | None
    """When the idle stretch began."""
    is_reversed: bool = False
    deleted_at: datetime | None = None
    """When its owner took away what was stopped: from then on it would have held nothing."""
    until: datetime | None = None
    """After this nobody looks whether it came back, and nothing is claimed."""

    @property
    def ends(self) -> tuple[datetime, ...]:
        """Return what ended, or will end, what may be claimed of it: the earliest counts."""
        return tuple(
            timestamp
            for timestamp in (self.returned_at, self.deleted_at, self.until)
            if timestamp is not None
        )
