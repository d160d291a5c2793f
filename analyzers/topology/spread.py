"""Measure how far apart a job's ranks are, and how close they could have been.

A level (zone, block, rack, NVLink domain, node) is crossed if the job is in several of its blocks.
A ring of ranks waits for the slowest level that is crossed (telemetry-and-waste.md#topology).
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from analyzers.gpu_peaks import read_gpu_peaks
from analyzers.topology.rows import LevelLabel, read_level_labels

PCIE_GBS = 16.0
"""Bandwidth that GPUs of a node without NVLink share (telemetry-and-waste.md#topology)."""


class TopologyLevel(msgspec.Struct, frozen=True):
    """One level of a site, the widest with the highest rank, and a node's bandwidth across it."""

    name: str
    rank: int
    labels: tuple[str, ...]
    gbs: float


class GangNode(msgspec.Struct, frozen=True):
    """A node, its GPUs of one model, and its block on each level that it names."""

    node: str
    gpus: int
    blocks: Mapping[str, str]
    pool: str | None = None


class GangSpread(msgspec.Struct, frozen=True):
    """Blocks used and needed on each level, and the slowest level crossed; None = one node."""

    used: dict[str, int]
    needed: dict[str, int]
    level: str | None
    level_needed: str | None
    gbs: float
    gbs_needed: float

    @property
    def score(self) -> float:
        """Return its bandwidth divided by that of the closest placement of its size."""
        return self.gbs / self.gbs_needed


@cache
def read_levels() -> tuple[TopologyLevel, ...]:
    """Return the levels of `levels.csv`, the widest first."""
    by_name: dict[str, list[LevelLabel]] = defaultdict(list)
    for row in read_level_labels():
        by_name[row.level].append(row)
    levels = [
        TopologyLevel(name, rows[0].rank, tuple(r.label for r in rows), rows[0].gbs)
        for name, rows in by_name.items()
    ]
    return tuple(sorted(levels, key=lambda level: -level.rank))


def find_blocks(node: str, zone: str | None, labels: str | None) -> dict[str, str]:
    """Return a node's block on each level of its labels; narrow blocks are within wide ones."""
    node_labels = json.loads(labels) if labels else {}
    blocks: dict[str, str] = {}
    path = ""
    for level in read_levels():
        if level.name == "zone":
            name = zone
        elif level.name == "node":
            name = node
        else:
            name = next(
                (node_labels[label] for label in level.labels if node_labels.get(label)), None
            )
        if name:
            path = f"{path}/{name}"
            blocks[level.name] = path
    return blocks


def compare_spread(
    used: Sequence[GangNode], open_to: Sequence[GangNode], model: str | None
) -> GangSpread:
    """Compare a job's placement with the closest placement of its size among `open_to`.

    For each level, count the fewest blocks that hold the job: the largest ones first.
    """
    size = sum(place.gpus for place in used)
    levels = _list_common_levels([*used, *open_to])
    now = {level.name: len({p.blocks[level.name] for p in used}) for level in levels}
    need = {level.name: _count_fewest(size, level.name, open_to) for level in levels}
    # The actual placement is possible too, so the best one is at least as good.
    need = {name: min(count, now[name]) for name, count in need.items()}
    crossed = _find_slowest_crossed(levels, now)
    must = _find_slowest_crossed(levels, need)
    inside = _read_node_bandwidth(model)
    return GangSpread(
        now,
        need,
        crossed.name if crossed else None,
        must.name if must else None,
        crossed.gbs if crossed else inside,
        must.gbs if must else max(inside, crossed.gbs if crossed else 0),
    )


def _list_common_levels(places: Sequence[GangNode]) -> list[TopologyLevel]:
    """Return the levels that every place names, the widest first."""
    return [level for level in read_levels() if all(level.name in p.blocks for p in places)]


def _find_slowest_crossed(
    levels: Sequence[TopologyLevel], blocks: Mapping[str, int]
) -> TopologyLevel | None:
    """Return the widest level that has more than one block; None = one node."""
    return next((level for level in levels if blocks[level.name] > 1), None)


def _read_node_bandwidth(model: str | None) -> float:
    """Return the GB/s between GPUs of one node, in one direction."""
    peaks = read_gpu_peaks().get(model or "")
    return max((peaks.nvlink_gbs or 0) / 2 if peaks else 0, PCIE_GBS)


def _count_fewest(size: int, level: str, places: Sequence[GangNode]) -> int:
    rooms: dict[str, int] = defaultdict(int)
    for place in places:
        rooms[place.blocks[level]] += place.gpus
    count = 0
    for room in sorted(rooms.values(), reverse=True):
        if size <= 0:
            break
        size -= room
        count += 1
    return count if size <= 0 else count + 1
