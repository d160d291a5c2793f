"""Store the rows of the demo's fleet, while the fleet lives on.

    main thread    advance the world ─► objects, hosts ─┐  ─► advance the world ...
    store's thread   rows of the small clusters ──►     └► devices ─► warehouse ─► rollups

The engine and the simulation each need about half of the time, and run on two cores.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fallow.tables import Batch
from runtime.experiments.demo_plants import (
    CLUSTER,
    HOUR_S,
    add_disk_reads,
    build_namespace_quotas,
    hide_lost_gpu,
)
from runtime.experiments.world_inventory import Inventory
from runtime.operations.accounting import pipeline
from simulator.blocks import thin_block
from simulator.exporters.device_rows import build_rows
from simulator.exporters.host_spans import build_host_spans
from simulator.exporters.quirks import Quirks
from simulator.models import Block
from simulator.work.behaviours import Script
from simulator.world import World
from warehouse.rollup import roll_up

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

SAMPLE_EVERY_S = 300.0
"""Scrape interval: a week of 128 GPUs at 5 minutes is 3 million values, some seconds of work."""


class PolledInventory(Inventory):
    """The demo's inventory: the API is polled each hour, and quotas change with each poll.

    Nodes are watched: a GPU that fails is missing in what its node can allocate from then on.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world, CLUSTER, [*build_namespace_quotas()])
        self._world, self._polled_s = world, world.now_s

    def batches(self, now_s: float) -> Iterator[Batch]:
        """Yield the objects as `Inventory.batches`; quotas and polls for each hour since then."""
        since_s = self._polled_s
        first, last = (math.ceil(at_s / HOUR_S) for at_s in (self._polled_s, now_s))
        polls = [*(hour * HOUR_S for hour in range(first, last)), now_s]
        self._polled_s = now_s
        for batch in super().batches(now_s):
            if batch.table in {"quota", "scrape"}:
                build = self._build_quota if batch.table == "quota" else _build_scrape
                rows = [build(row, at_s) for row in batch.rows.to_pylist() for at_s in polls]
                yield Batch(batch.table, pa.Table.from_pylist(rows, batch.rows.schema))
                continue
            if batch.table == "node":
                yield from self._list_failing(batch, since_s, now_s)
            yield batch

    def _list_failing(self, batch: Batch, since_s: float, now_s: float) -> Iterator[Batch]:
        """Yield nodes as they were observed when a GPU of theirs failed, and when it was back."""
        nodes = {row["node"]: row for row in batch.rows.to_pylist()}
        for fault in self._world.spec.planted:
            for at_s, failed in ((fault.at_s, 1), (fault.until_s, 0)):
                if fault.index is None or not since_s <= at_s < now_s:
                    continue
                node = nodes[fault.node]
                node |= {
                    "last_seen": _convert_seconds(at_s),
                    "gpu_allocatable": node["gpu_count"] - failed,
                }
                yield Batch("node", pa.Table.from_pylist([node], batch.rows.schema))

    def _build_quota(self, row: dict[str, Any], at_s: float) -> dict[str, Any]:
        """Return a quota as it was at a time; a namespace's with what its pods used then."""
        used = row["used"]
        if row["kind"].startswith(("ElasticQuota", "ResourceQuota")):
            used = float(
                sum(
                    sum(self._world.devices[device].weight == 1 for device in t.devices)
                    for t in self._world.cluster.allocations
                    if t.holder.namespace == row["namespace"]
                    and t.start_s <= at_s < t.end_s
                    and t.share == 1
                )
            )
        return {**row, "ts": _convert_seconds(at_s), "used": used}


def _build_scrape(row: dict[str, Any], at_s: float) -> dict[str, Any]:
    """Return a poll of the API as it was at a time."""
    return {**row, "ts": _convert_seconds(at_s), "until": _convert_seconds(at_s)}


def _convert_seconds(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)


class FleetStore:
    """Stores and rolls up rows, one step of the world after the other, in a thread of its own."""

    def __init__(
        self,
        warehouse: "Warehouse",
        world: World,
        quirks: Quirks,
        inventory: Inventory,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._warehouse, self._world, self._quirks = warehouse, world, quirks
        self._inventory, self._pool = inventory, pool
        self._last: Future[None] | None = None

    def add(self, block: Block, since_s: float, scripts: Mapping[str, Script]) -> None:
        """Store what the world did since a time, as soon as the step before is stored."""
        allocations = [
            t
            for t in self._world.list_allocations(since_s, self._world.now_s)
            if t.holder.uid in scripts
        ]
        # What depends on the world's state is read here: the world goes on meanwhile.
        rows = [
            *self._inventory.batches(self._world.now_s),
            *add_disk_reads(
                build_host_spans(
                    allocations,
                    scripts,
                    np.arange(
                        np.ceil(since_s / SAMPLE_EVERY_S) * SAMPLE_EVERY_S,
                        self._world.now_s,
                        SAMPLE_EVERY_S,
                    ),
                    cluster=CLUSTER,
                    quirks=self._quirks,
                    node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
                ),
            ),
        ]
        thinned = thin_block(block, SAMPLE_EVERY_S)
        shared = [t for t in allocations if t.share < 1]
        samples = build_rows(thinned, self._quirks, cluster=CLUSTER, allocations=shared)
        self.wait()
        self._last = self._pool.submit(self._store, rows, hide_lost_gpu(self._world, samples))

    def add_later(self, rows: "Future[list[Batch]]") -> None:
        """Store rows of other clusters as soon as they are known."""
        self.wait()
        self._last = self._pool.submit(lambda: self._store(rows.result()))

    def wait(self) -> None:
        """Wait until all rows are stored.

        Raises: as `Warehouse.ingest`.
        """
        if self._last is not None:
            self._last.result()

    def _store(self, *rows: Iterable[Batch]) -> None:
        pipeline.ingest(self._warehouse, *rows)
        roll_up(self._warehouse)


@contextmanager
def open_fleet_store(
    warehouse: "Warehouse", world: World, quirks: Quirks, inventory: Inventory
) -> Iterator[FleetStore]:
    """Yield a store whose thread ends with the block."""
    with ThreadPoolExecutor(1, thread_name_prefix="store") as pool:
        yield FleetStore(warehouse, world, quirks, inventory, pool)
