"""What is kept before a workload is stopped, checked before it counts, and given back on undo."""

from actions.snapshots.models import RestoredPart, Snapshot, SnapshotPart
from actions.snapshots.snapshotter import Snapshotter

__all__ = ["RestoredPart", "Snapshot", "SnapshotPart", "Snapshotter"]
