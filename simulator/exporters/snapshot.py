"""What a world shows at one moment; the doors ask for nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from simulator.models import Block, DeviceAllocation, HostSample


class WorldSnapshot(msgspec.Struct, frozen=True):
    """A block and the tick of it that is now, the cluster's objects, and the hosts' looks."""

    block: Block
    tick: int
    objects: Mapping[str, Sequence[Mapping[str, Any]]]
    """By kind, as the API prints them."""
    hosts: Sequence[HostSample] = ()
    tenures: Sequence[DeviceAllocation] = ()
    """Who shares devices; only those with a share below 1 matter."""

    @property
    def now_s(self) -> float:
        """The moment, seconds since the epoch."""
        return float(self.block.ticks[self.tick])


class SnapshotSource(Protocol):
    """A world, seen from its exporters; called from the door's thread."""

    def look(self) -> WorldSnapshot:
        """Return what is to be seen now; the very same object until something has changed."""
        ...
