"""Store the rows of the demo's fleet, while the fleet lives on.

    main thread    advance the world ─► objects, hosts ─┐  ─► advance the world ...
    store's thread                                      └► devices ─► warehouse ─► rollups

The engine and the simulation each need about half of the time, and run on two cores.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from fallow.tables import Batch
from runtime.experiments.accuracy.collection import Inventory
from runtime.experiments.demo_plants import CLUSTER, add_disk_reads, hide_lost_gpu
from runtime.operations import pipeline
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
