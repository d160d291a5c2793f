"""Say which shards of the collection run, and how many targets nobody collects."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fallow.shards import Shard
from fallow.window import format_duration
from warehouse.leases import CatalogLease, read_leases

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

PREFIX = "shard/"
LEASE_S = 30.0
"""A shard whose collector has not renewed its lease for this long is lost."""


class ShardFacts(msgspec.Struct, frozen=True):
    """What a collector writes into its lease: its shard, and the targets of every shard."""

    cluster: str
    number: int
    count: int
    targets: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the name of the shard's lease."""
        return f"{PREFIX}{self.cluster}/{self.number}"


class ShardState(msgspec.Struct, frozen=True):
    """A shard: its targets, the process that collects them, and when that one was last seen.

    `holder` and `seen` are those of the last collector; None = there was none yet.
    """

    cluster: str
    shard: Shard
    targets: int
    running: bool
    holder: str | None = None
    seen: datetime | None = None
    age_s: float | None = None

    @property
    def uncollected(self) -> int:
        """Return how many targets nobody collects."""
        return 0 if self.running else self.targets

    def describe(self) -> str:
        """Return the shard, its targets and its last collector in words."""
        targets = f"{self.targets:,} target{'s' * (self.targets != 1)}"
        if self.age_s is None:
            return f"{self.shard} ({targets}, never started)"
        return f"{self.shard} ({targets}, last seen {format_duration(self.age_s)} ago)"


def read_shards(warehouse: "Warehouse", cluster: str | None = None) -> tuple[ShardState, ...]:
    """Return every shard of the clusters that collectors have divided, lost ones too.

    A cluster whose collectors never had a lease has no rows; nor has an embedded warehouse.

    Raises:
        TemporaryError: PostgreSQL is not reachable.
    """
    leases: dict[str, list[tuple[ShardFacts, CatalogLease]]] = defaultdict(list)
    for lease in read_leases(warehouse, PREFIX):
        facts = msgspec.json.decode(lease.facts, type=ShardFacts)
        if cluster is None or facts.cluster == cluster:
            leases[facts.cluster].append((facts, lease))
    return tuple(
        state for name, rows in sorted(leases.items()) for state in _build_states(name, rows)
    )


def _build_states(
    cluster: str, leases: Sequence[tuple[ShardFacts, CatalogLease]]
) -> list[ShardState]:
    """Return the shards of the count that runs; of the last one that ran where none does."""
    newest, _ = max(leases, key=lambda pair: (pair[1].valid, pair[1].renewed_at))
    by_number = {facts.number: lease for facts, lease in leases if facts.count == newest.count}
    states = []
    for number, targets in enumerate(newest.targets, 1):
        state = ShardState(cluster, Shard(number, newest.count), targets, running=False)
        if (lease := by_number.get(number)) is not None:
            state = msgspec.structs.replace(
                state,
                running=lease.valid,
                holder=lease.holder,
                seen=lease.renewed_at,
                age_s=max(lease.age_s, 0.0),
            )
        states.append(state)
    return states
