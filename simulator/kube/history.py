"""Keep changes in order: watches read them forwards, snapshots of the past backwards."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Object = dict[str, Any]
Type = Literal["ADDED", "MODIFIED", "DELETED"]


class StoreChange(msgspec.Struct, frozen=True):
    """One write: the object after it (a deleted one with its last version) and before it."""

    version: int
    type: Type
    kind: str
    """Key of the kind (`simulator.kube.kinds`)."""
    key: str
    object: Object
    before: Object | None


class ChangeHistory:
    """The last changes; older ones are removed once there are twice as many as `keep`."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._changes: list[StoreChange] = []
        self.forgotten = 0
        """The newest version whose change was removed."""

    def add(self, change: StoreChange) -> None:
        """Append the newest change."""
        self._changes.append(change)
        if len(self._changes) > 2 * self._keep:
            self.forgotten = self._changes[-self._keep - 1].version
            del self._changes[: -self._keep]

    def since(self, version: int) -> list[StoreChange]:
        """Return the changes after a version."""
        return self._changes[bisect_right(self._changes, version, key=lambda c: c.version) :]

    def forget(self, version: int) -> None:
        """Compact: remove versions up to this one."""
        self._changes = self.since(version)
        self.forgotten = version

    def past(self, kind: str, objects: Mapping[str, Object], version: int) -> dict[str, Object]:
        """Return the objects of a kind as of a version that is still in the history."""
        out = dict(objects)
        for change in reversed(self.since(version)):
            if change.kind != kind:
                continue
            if change.before is None:
                out.pop(change.key, None)
            else:
                out[change.key] = change.before
        return out
