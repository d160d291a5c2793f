"""A snapshot and its parts; what came of giving them back."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from fallow.action_models import Target

PartKind = Literal["manifest", "volume", "home", "environment"]
PART_KINDS: tuple[PartKind, ...] = PartKind.__args__  # type: ignore[attr-defined]


class SnapshotPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was kept. `sha256` is of the stored bytes, `tree` of the files inside."""

    what: PartKind
    key: str
    """Where: a key of the store; for a volume the VolumeSnapshot's path in the API."""
    verified: bool
    note: str = ""
    bytes: int = 0
    sha256: str = ""
    tree: str = ""
    files: int = 0
    namespace: str = ""
    pod: str = ""
    container: str = ""
    path: str = ""
    without: tuple[str, ...] = ()
    """Folders below `path` that are parts of their own, or were left out."""
    persistent: bool = False
    """The files lie on a volume that outlives the pod."""


class Snapshot(msgspec.Struct, frozen=True):
    """What was kept of a workload before it was stopped."""

    id: str
    target: Target
    at: datetime
    parts: tuple[SnapshotPart, ...]
    missing: tuple[str, ...] = ()
    """What was asked for and could not be kept, with why."""

    @property
    def verified(self) -> bool:
        """Tell whether all that was asked for is there and was read back whole."""
        return not self.missing and all(part.verified for part in self.parts)


class RestoredPart(msgspec.Struct, frozen=True):
    """What came of giving one part back."""

    part: SnapshotPart
    result: Literal["restored", "kept", "left", "failed"]
    """restored: written again and equal; kept: its volume had it all along; left: its owner has
    newer files on the volume; failed: see `why`."""
    why: str = ""


def to_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as plain JSON."""
    return {**msgspec.to_builtins(snapshot), "verified": snapshot.verified}
