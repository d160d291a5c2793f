"""Snapshots: kept before a workload is stopped, verified before use, and restored on undo."""

from actions.snapshots.models import RestoredPart, Snapshot, SnapshotPart
from actions.snapshots.snapshotter import Snapshotter

__all__ = ["RestoredPart", "Snapshot", "SnapshotPart", "Snapshotter"]
