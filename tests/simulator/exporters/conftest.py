"""A door that serves a small world, and Fallow's own scraper before it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from collectors.exporters import ExporterCollector
from fallow.settings.collectors import ExporterSettings
from fallow.tables import Batch
from fallow.window import Window
from simulator.exporters.quirks import Quirks
from simulator.exporters.server import ExporterServer
from tests.simulator.exporters import fleet

Row = dict[str, Any]
WINDOW = Window(fleet.START, fleet.START + timedelta(days=1))


class Scraped:
    """One door over a world, scraped by Fallow at the world's own moments."""

    def __init__(self, door: ExporterServer, world: fleet.World, nodes: Sequence[str]) -> None:
        self.door, self.world = door, world
        targets = [door.node_url(node) for node in nodes]
        settings = ExporterSettings.model_validate({"targets": targets})
        self.late = timedelta()
        self.collector = ExporterCollector(settings, "sim", self._clock)

    def _clock(self) -> datetime:
        return datetime.fromtimestamp(self.world.snapshot().now_s, UTC) + self.late

    def batches(self, ticks: Sequence[int] = (0,)) -> list[Batch]:
        """Return what Fallow's scraper makes of some ticks."""
        found: list[Batch] = []
        for tick in ticks:
            self.world.turn(tick)
            found += self.collector.collect(WINDOW)
        return found

    def rows(self, table: str = "sample", ticks: Sequence[int] = (0,)) -> list[Row]:
        """Return the rows of one table."""
        return [r for b in self.batches(ticks) if b.table == table for r in b.rows.to_pylist()]

    def devices(self, tick: int = 0) -> dict[str, Row]:
        """Return the samples of a tick by device."""
        return {r["device"]: r for r in self.rows(ticks=(tick,))}


@pytest.fixture
def scrape() -> Iterator[Callable[..., Scraped]]:
    """Return a maker of worlds behind a door: `scrape("quirk:rate=1", shown=block)`."""
    with ExitStack() as open_doors:

        def make(*quirks: str, seed: int = 0, **world: Any) -> Scraped:
            made = fleet.World(**world)
            door = open_doors.enter_context(ExporterServer(made, Quirks.of(quirks, seed)))
            return Scraped(door, made, [fleet.A, fleet.B, fleet.C])

        yield make
