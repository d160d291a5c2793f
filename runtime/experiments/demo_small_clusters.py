"""Simulate the demo's small clusters, which have four weeks of history.

    process of its own: world ─► rows of a week, four times ─► store's thread ─► warehouse

Unusual spend, forecasts and plans of a quarter need weeks of the past, which the first cluster
lacks; what waits in one cluster fits into another. GPUs here are read each quarter of an hour:
four weeks have a sixth of the samples of the first cluster's week. `demo-east` has the inventory of
four weeks, and samples of one.
Nothing but UUIDs depends on the seed: nodes are those of `small_pools.csv`, work that of
`small_work.csv`.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fallow.models import Finding
from fallow.resources import read_table
from fallow.tables import Batch
from runtime.experiments.demo_plants import CLUSTER
from runtime.experiments.world_inventory import Inventory
from simulator.arrivals import Arrival, Category
from simulator.blocks import thin_block
from simulator.cluster.nodes import SimulatedNode
from simulator.cluster.pools import PoolSpec
from simulator.exporters.device_rows import build_rows
from simulator.exporters.host_spans import build_host_spans
from simulator.exporters.quirks import Quirks
from simulator.work.behaviours import Script
from simulator.world import Spec, World, XidEvent

DAYS = 29
"""Four weeks after the first day, at whose end the inventory is polled for the first time."""
LEAST_S = 7 * 86_400.0
"""A shorter demo has one cluster."""
SAMPLE_EVERY_S = 900.0
HOUR_S, DAY_S = 3600.0, 86_400.0
STEP_S = 7 * DAY_S
SEEDS = 1_000_003
"""From the seed of a cluster to that of the next one."""
CLUSTERS = ("demo-west", "demo-east")
XIDS = (
    ("demo-west", "t4-1", 26, 4.0, 13),
    ("demo-west", "t4-1", 26, 10.0, 31),
    ("demo-west", "t4-1", 26, 16.0, 94),
)
"""A GPU on which three jobs of a day get errors: cluster, node, day, hour, code."""


class SmallWork(msgspec.Struct, frozen=True):
    """Work of `small_work.csv`: submitted once, or on each of some days (`0-28`)."""

    cluster: str
    days: str
    hour: float
    life_h: str
    """Hours of work; empty = without end."""
    seed: int
    level: str
    """The service level that its owner states; empty = none of its own."""


def list_small_clusters() -> tuple[str, ...]:
    """Return the names of the small clusters."""
    return tuple(dict.fromkeys(row["cluster"] for row in _read_pools()))


def build_spec(cluster: str, start_s: float) -> Spec:
    """Return a cluster's nodes, work and faults from a midnight on."""
    return Spec(
        nodes=tuple(_list_nodes(cluster)),
        start_s=start_s,
        mix=(),
        fault_rate=0,
        effects=0,
        horizon_s=DAYS * DAY_S,
        xids=tuple(
            XidEvent(node, 0, start_s + day * DAY_S + hour * HOUR_S, code)
            for name, node, day, hour, code in XIDS
            if name == cluster
        ),
        submitted=tuple(_list_arrivals(cluster, start_s)),
    )


def _list_nodes(cluster: str) -> Iterator[SimulatedNode]:
    for row in _read_pools():
        if row["cluster"] == cluster:
            pool = msgspec.convert(row, PoolSpec, strict=False)
            yield from (SimulatedNode(f"{pool.name}-{n}", pool) for n in range(int(row["nodes"])))


def _list_arrivals(cluster: str, start_s: float) -> Iterator[Arrival]:
    for row in _read_work():
        work = msgspec.convert(row, SmallWork, strict=False)
        if work.cluster != cluster:
            continue
        category = msgspec.convert(row, Category, strict=False)
        if work.level:
            stated = (("fallow.dev/slo", work.level),)
            category = msgspec.structs.replace(category, annotations=stated)
        first, _, last = work.days.partition("-")
        for day in range(int(first), int(last or first) + 1):
            at_s = start_s + day * DAY_S + work.hour * HOUR_S
            life_s = float(work.life_h) * HOUR_S if work.life_h else float("inf")
            name = f"{category.category}-{day * 24 + int(work.hour)}"
            yield Arrival(at_s, category, name, work.seed + day, life_s)


def simulate_small_clusters(end: datetime, seed: int) -> list[Batch]:
    """Return all rows of the small clusters until a midnight."""
    return [
        batch
        for number, cluster in enumerate(list_small_clusters(), start=1)
        # Nodes of two clusters have the same names: their GPUs need other UUIDs.
        for batch in simulate_cluster(cluster, end.timestamp(), seed + number * SEEDS)
    ]


def simulate_cluster(cluster: str, end_s: float, seed: int) -> Iterator[Batch]:
    """Yield the rows of one small cluster until a midnight, the oldest first."""
    start_s = end_s - DAYS * DAY_S
    world = World(build_spec(cluster, start_s), seed)
    inventory, quirks = Inventory(world, cluster), Quirks.of((), seed)
    days = next(int(r["sampled_days"]) for r in _read_pools() if r["cluster"] == cluster)
    sampled_s = end_s - days * DAY_S  # its GPUs and hosts are read from then on
    while world.now_s < end_s:
        since_s = world.now_s
        step_s = DAY_S if since_s == start_s else STEP_S
        block = world.advance(min(since_s + step_s, end_s))
        scripts = dict[str, Script](world.cast.scripts)
        allocations = [
            t for t in world.list_allocations(since_s, world.now_s) if t.holder.uid in scripts
        ]
        yield from inventory.batches(world.now_s)
        if since_s < sampled_s:
            continue
        yield from build_rows(thin_block(block, SAMPLE_EVERY_S), quirks, cluster=cluster)
        yield from _read_from_disks(
            build_host_spans(
                allocations,
                scripts,
                np.arange(since_s, world.now_s, SAMPLE_EVERY_S),
                cluster=cluster,
                quirks=quirks,
                node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
            )
        )


def _read_from_disks(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Turn the input of pods that mount a claim into reads from disks; others read none."""
    for batch in batches:
        if batch.table != "pod_sample":
            yield batch
            continue
        rows = batch.rows
        on_disk = pc.match_substring_regex(rows["pod"], f"^({'|'.join(_list_on_disk())})-")
        for name, values in (
            ("fs_read_bps", pc.if_else(on_disk, rows["net_rx_bps"], 0.0)),
            ("net_rx_bps", pc.if_else(on_disk, 0.0, rows["net_rx_bps"])),
        ):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), pc.cast(values, pa.float32()))
        yield Batch("pod_sample", rows)


@cache
def _list_on_disk() -> tuple[str, ...]:
    """Return the categories whose pods mount a claim."""
    return tuple(sorted({row["category"] for row in _read_work() if row["claim"]}))


def _read_pools() -> list[dict[str, str]]:
    return read_table("runtime.experiments", "small_pools.csv")


def _read_work() -> list[dict[str, str]]:
    return read_table("runtime.experiments", "small_work.csv")


def describe_small_clusters(findings: Sequence[Finding]) -> str:
    """Return a sentence about the small clusters and their findings."""
    parts = []
    for cluster in list_small_clusters():
        gpus = sum(node.pool.gpu_count for node in _list_nodes(cluster))
        count = sum(finding.subject.cluster == cluster for finding in findings)
        parts.append(f"{cluster} ({gpus} GPUs, {count} findings)")
    return (
        f"Beside {CLUSTER}, its warehouse has {' and '.join(parts)}: fallow analyze --cluster NAME."
    )
