"""The closed loop until actions exist: idle verdicts are applied to the world that they are of.

    world ─► rows, with quirks ─► warehouse ─► idle verdicts ─► the workload's own stop handle
      ▲                                                                        │
      └────────────────────────────────────────────────────────────────────────┘

A workload is stopped when its verdict is actionable, of the whole of it, and holds at this very
moment. The rows are those that closed doors show; nothing true enters the warehouse.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fallow.nouns import Finding
from fallow.settings import IdleSettings
from fallow.tables import Batch
from fallow.window import Window
from runtime import pipeline
from runtime.accuracy.watching import CLUSTER, Inventory
from simulator.blocks import thinned
from simulator.cast import Key
from simulator.exporters.host_spans import host_spans
from simulator.exporters.quirks import Quirks
from simulator.exporters.rows import rows
from simulator.nouns import Block
from simulator.world import World

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

SLACK = 2
"""A verdict holds now when it reaches to within so many looks of now."""
BACK = timedelta(hours=1)
"""Looks back for longer than the longest duration that a verdict asks for."""


class Applied(msgspec.Struct, frozen=True):
    """A verdict that was applied."""

    key: Key
    at_s: float
    finding: Finding


class Enforcer:
    """Watches one world and applies what is found."""

    def __init__(
        self,
        warehouse: "Warehouse",
        world: World,
        quirks: Quirks,
        settings: IdleSettings,
        *,
        look_s: float,
    ) -> None:
        from analyzers.idle import IdleAnalyzer  # noqa: PLC0415  (frames load in 0.5 s)

        self.warehouse, self.world, self.quirks = warehouse, world, quirks
        self.settings, self.look_s = settings, look_s
        self.analyzer = IdleAnalyzer(settings)
        self.applied: list[Applied] = []
        self._seen = Inventory(world)
        self._start_s = world.now_s

    def turn(self, until_s: float) -> Block:
        """Move the world, store what it showed, judge it, and stop what is idle."""
        since_s = self.world.now_s
        block = self.world.advance(until_s)
        pipeline.ingest(self.warehouse, self._rows(block, since_s, until_s))
        for found in self._judge(until_s):
            subject = found.subject
            key = (subject.workload_kind, subject.namespace, subject.workload)
            if self.world.switch_off(key):
                self.applied.append(Applied(key, until_s, found))
        return block

    def _rows(self, block: Block, since_s: float, until_s: float) -> Iterator[Batch]:
        scripts = self.world.cast.scripts
        held = [t for t in self.world.held(since_s, until_s) if t.holder.uid in scripts]
        yield from self._seen.batches(until_s)
        shown = thinned(block, self.look_s)
        shared = [t for t in held if t.share < 1]
        yield from rows(shown, self.quirks, cluster=CLUSTER, tenures=shared)
        yield from host_spans(
            held,
            scripts,
            np.arange(np.ceil(since_s / self.look_s) * self.look_s, until_s, self.look_s),
            cluster=CLUSTER,
            quirks=self.quirks,
            node_of={t.holder.uid: block.devices[t.devices[0]].node for t in held},
        )

    def _judge(self, now_s: float) -> list[Finding]:
        """Return what may be stopped now."""
        from actions.recommend import never, verbs  # noqa: PLC0415
        from warehouse.allocation import allocate  # noqa: PLC0415  (the engine loads in 0.3 s)
        from warehouse.rollup import roll_up  # noqa: PLC0415

        longest = max(self.settings.min_duration, self.settings.service_duration) + BACK
        now = datetime.fromtimestamp(now_s, UTC)
        begin = max(now - longest, datetime.fromtimestamp(self._start_s, UTC))
        least = self.settings.min_duration.total_seconds()
        if (now - begin).total_seconds() <= least:
            return []
        window = Window(begin, now)
        roll_up(self.warehouse)
        allocate(self.warehouse, window)
        fresh = now - timedelta(seconds=SLACK * self.look_s)
        return [
            f
            for f in self.analyzer.find(self.warehouse, window)
            if f.verdict == "idle"
            and f.details["actionable"]
            and f.window.end >= fresh
            and never(f.subject.workload_kind, f.subject.namespace) is None
            and f.subject.workload_kind in verbs()
        ]
