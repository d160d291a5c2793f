"""What is kept before a workload is stopped, checked before it counts, and given back on undo."""

from actions.snapshots.nouns import Part, Restored, Snapshot
from actions.snapshots.snapshotter import Snapshotter

__all__ = ["Part", "Restored", "Snapshot", "Snapshotter"]
