"""Jobs on several nodes: the location of their ranks, and the free capacity at their start."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from analyzers.topology.rows import GangPlacement, read_allocated, read_locations
from analyzers.topology.spread import GangNode, GangSpread, compare_spread, find_blocks
from analyzers.workload_rows import Owner
from capacity.workload_kinds import list_gang_kinds
from fallow.protocols import Views

MICRO = 1_000_000


class PlacedGang(msgspec.Struct, frozen=True):
    """A job on several nodes: its rows by node, its spread, and the smallest possible spread."""

    number: int
    rows: tuple[GangPlacement, ...]
    lies: GangSpread
    then: GangSpread | None = None
    """Compared with the free capacity at its start."""

    @property
    def owner(self) -> Owner:
        """Return the key of its workload."""
        return self.rows[0].owner

    @property
    def hours(self) -> float:
        """Return the GPU-hours on its nodes since its last pod started."""
        return sum(row.hours for row in self.rows)


def read_nodes(views: Views) -> dict[tuple[str, str | None], dict[str, GangNode]]:
    """Return the nodes of each cluster and model."""
    by_model: dict[tuple[str, str | None], dict[str, GangNode]] = {}
    for row in read_locations(views):
        where = find_blocks(row.node, row.zone, row.labels)
        place = GangNode(row.node, row.gpus, where, row.pool)
        by_model.setdefault((row.cluster, row.model), {})[row.node] = place
    return by_model


def find_used_nodes(
    rows: Sequence[GangPlacement], places: Mapping[str, GangNode]
) -> list[GangNode]:
    """Return the nodes that a job's rows name, with the GPUs that it holds of them."""
    return [msgspec.structs.replace(places[row.node], gpus=row.gpus) for row in rows]


def select_pool_nodes(used: Sequence[GangNode], places: Mapping[str, GangNode]) -> list[GangNode]:
    """Return the nodes of the pools of a job: it may be restricted to them."""
    pools = {place.pool for place in used}
    return [place for place in places.values() if place.pool in pools]


def compare_gangs(
    views: Views,
    gangs: list[PlacedGang],
    site: Mapping[tuple[str, str | None], Mapping[str, GangNode]],
) -> Iterator[PlacedGang]:
    """Compare each job with the free capacity at its start, its own GPUs included."""
    if not gangs:
        return
    starts = [
        {
            "gang": gang.number, "cluster": gang.rows[0].cluster,
            "model": gang.rows[0].model, "started_at": convert_to_us(gang.rows[0].started_at),
        }
        for gang in gangs
    ]  # fmt: skip
    allocated: dict[int, dict[str, int]] = {}
    for row in read_allocated(views, starts):
        allocated.setdefault(row.gang, {})[row.node] = row.gpus
    for gang in gangs:
        places = site[gang.rows[0].cluster, gang.rows[0].model]
        on_nodes = allocated.get(gang.number, {})
        used = find_used_nodes(gang.rows, places)
        own = {place.node: place.gpus for place in used}
        free = [
            msgspec.structs.replace(
                place,
                gpus=max(
                    own.get(place.node, 0),
                    place.gpus - on_nodes.get(place.node, 0) + own.get(place.node, 0),
                ),
            )
            for place in select_pool_nodes(used, places)
        ]
        then = compare_spread(used, free, gang.rows[0].model)
        yield msgspec.structs.replace(gang, then=then)


def convert_to_us(time: datetime) -> int:
    """Return a naive time in UTC as microseconds since 1970."""
    return round(time.replace(tzinfo=UTC).timestamp() * MICRO)


def list_rank_kinds() -> list[str]:
    """Return the kinds whose pods are ranks of one job, and a service whose pods are."""
    return [*list_gang_kinds(), "LeaderWorkerSet"]
