"""An action whose saving is measured."""

from datetime import datetime

import msgspec


class MeasuredAction(msgspec.Struct, frozen=True):
    """An applied action: its workload, its time, and its end."""

    action: str
    policy: str
    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    at: datetime
    returned_at: datetime | None
    """When its workload came back, by any actor; None = it is still stopped."""
    idle_since: datetime | None
    """When the idle stretch began."""
    is_reversed: bool = False
    deleted_at: datetime | None = None
    """When its owner deleted the stopped workload: from then on it would have held nothing."""
    until: datetime | None = None
    """After this its return is not observed, and no saving is claimed."""

    @property
    def ends(self) -> tuple[datetime, ...]:
        """Return the end of what may be claimed of it: the earliest of all ends."""
        return tuple(
            timestamp
            for timestamp in (self.returned_at, self.deleted_at, self.until)
            if timestamp is not None
        )
