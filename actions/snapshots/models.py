"""A snapshot and its parts, and the result of a restore."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from fallow.action_models import Target

PartKind = Literal["manifest", "volume", "home", "environment"]
PART_KINDS: tuple[PartKind, ...] = PartKind.__args__  # type: ignore[attr-defined]


class SnapshotPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stored part. `sha256` is of the stored bytes, `tree` of the files inside."""

    kind: PartKind = msgspec.field(name="what")
    key: str
    """Location: a key of the store; for a volume the VolumeSnapshot's path in the API."""
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
    """Folders below `path` that are separate parts, or were left out."""
    persistent: bool = False
    """The files are on a volume that outlives the pod."""


class Snapshot(msgspec.Struct, frozen=True):
    """The stored parts of a workload before it was stopped."""

    id: str
    target: Target
    at: datetime
    parts: tuple[SnapshotPart, ...]
    missing: tuple[str, ...] = ()
    """The requested parts that could not be kept, with the reasons."""

    @property
    def verified(self) -> bool:
        """Return whether all requested parts exist and were read back completely."""
        return not self.missing and all(part.verified for part in self.parts)


class RestoredPart(msgspec.Struct, frozen=True):
    """The result of one part's restore."""

    part: SnapshotPart
    result: Literal["restored", "kept", "left", "failed"]
    """restored: written again and equal; kept: its volume had it all along; left: its owner has
    newer files on the volume; failed: see `why`."""
    why: str = ""


def to_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as plain JSON."""
    return {**msgspec.to_builtins(snapshot), "verified": snapshot.verified}
