"""Ten people look while the collector writes: nobody fails, nobody waits for anybody."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser

from dashboards import app
from fallow.settings import Settings
from fallow.tables import Batch
from tests.browser.visiting import Visitor
from warehouse import catalog
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
VIEWERS = 10
LOOK = datetime(2026, 11, 15, 23, 59)  # noqa: DTZ001  (the tables' naive UTC)


@pytest.mark.slow
def test_ten_viewers_and_the_collector_never_wait_for_each_other(
    browser: Browser, url: str, settings: Settings
) -> None:
    views = [app.names()[n % len(app.names())] for n in range(VIEWERS)]
    with ExitStack() as stack, Warehouse.open(settings, write=True) as warehouse:
        people = [stack.enter_context(Visitor(browser, url)) for _ in views]
        collector = Collector(warehouse)
        stack.callback(collector.stop)
        collector.start()
        for visitor, view in zip(people, views, strict=True):
            name = view.partition("_")[2].replace("_", "-")
            visitor.set_out("" if view == app.names()[0] else name, window="12h")
        for visitor, view in zip(people, views, strict=True):
            page = visitor.arrive()
            assert page.locator("h1").all_inner_texts() == [app._module(view).TITLE]
            assert visitor.alerts("Error") == []
            assert "in use" not in " ".join(visitor.alerts("Warning"))
            visitor.hears_nothing()
        collector.stop()
    assert collector.failure is None
    assert collector.written >= 3


class Collector(threading.Thread):
    """Writes look after look; before each, checks that no reader holds what a writer needs."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(name="collector", daemon=True)
        self.warehouse = warehouse
        self.written = 0
        self.failure: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> None:
        """Write until told to stop."""
        file = self.warehouse.place.home / catalog.CATALOG_FILE
        try:
            for batch in looks():
                # Without any patience: a reader's lock would refuse it at once.
                with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE").execute("ROLLBACK")
                self.warehouse.ingest([batch])
                self.written += 1
                if self._over.is_set():
                    return
        except BaseException as error:  # noqa: BLE001  (the test says what it was)
            self.failure = error

    def stop(self) -> None:
        """Write to the end, and no more."""
        self._over.set()
        if self.is_alive():
            self.join()


def looks() -> Iterator[Batch]:
    """Give one look of one collector after another, a millisecond apart."""
    ts = LOOK
    while True:
        ts += timedelta(milliseconds=1)
        row = {
            "cluster": "demo",
            "ts": ts,
            "collector": "exporters",
            "target": "one",
            "until": ts,
            "up": True,
        }
        yield Batch.of("scrape", {name: [value] for name, value in row.items()})
