"""Define what a world shows at one time: all that the exporters' servers need."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from simulator.models import Block, DeviceAllocation, HostSample


class WorldSnapshot(msgspec.Struct, frozen=True):
    """A block and its current tick, the cluster's objects, and the hosts' samples."""

    block: Block
    tick: int
    objects: Mapping[str, Sequence[Mapping[str, Any]]]
    """By kind, as the API prints them."""
    hosts: Sequence[HostSample] = ()
    allocations: Sequence[DeviceAllocation] = ()
    """The allocations of shared devices; only those with a share below 1 matter."""

    @property
    def now_s(self) -> float:
        """The time, in seconds since the epoch."""
        return float(self.block.ticks[self.tick])


class SnapshotSource(Protocol):
    """A world, seen from its exporters; called from the server's thread."""

    def snapshot(self) -> WorldSnapshot:
        """Return the current snapshot; the identical object until something has changed."""
        ...
