"""Ten people look while the collector writes: nobody fails, nobody waits for anybody."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
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
PAUSE_S = 0.1
"""Between two writes: without one, a page has a core less to be drawn with."""
LOOK = datetime(2026, 11, 15, 23, 59)  # noqa: DTZ001  (the tables' naive UTC)


@pytest.mark.slow
# Ten viewers: as two, with more pages; that one does not wait for another shows with two too.
@pytest.mark.parametrize("viewers", [2, pytest.param(10, marks=pytest.mark.long)])
def test_viewers_and_the_collector_never_wait_for_each_other(
    browser: Browser, url: str, settings: Settings, viewers: int
) -> None:
    views = [app.list_names()[n % len(app.list_names())] for n in range(viewers)]
    with ExitStack() as stack, Warehouse.open(settings, write=True) as warehouse:
        people = [stack.enter_context(Visitor(browser, url)) for _ in views]
        collector = Collector(warehouse)
        stack.callback(collector.stop)
        collector.start()
        for visitor, view in zip(people, views, strict=True):
            visitor.set_out(
                "" if view == app.list_names()[0] else app.build_url_path(view), window="12h"
            )
        for visitor, view in zip(people, views, strict=True):
            page = visitor.arrive()
            assert page.locator("h1").all_inner_texts() == [app._import_page(view).TITLE]
            assert visitor.alerts("Error") == []
            assert "in use" not in " ".join(visitor.alerts("Warning"))
            visitor.hears_nothing()
        collector.stop()
    assert collector.failure is None
    assert collector.written >= 3


FREE = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
for _ in sys.stdin:
    try:
        other.execute("BEGIN IMMEDIATE").execute("ROLLBACK")
    except sqlite3.Error as error:
        print(error, flush=True)
    else:
        print("free", flush=True)
"""
"""Tells whether a writer without any patience could write: a reader's lock would refuse it.

A process of its own, for SQLite's locks are a process's: one that closes a file lets go of all.
"""


class Collector(threading.Thread):
    """Writes look after look; before each, checks that no reader holds what a writer needs."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(name="collector", daemon=True)
        self.warehouse = warehouse
        self.written = 0
        self.failure: BaseException | None = None
        self._over = threading.Event()
        file = self.warehouse.place.home / catalog.CATALOG_FILE
        self._asked = subprocess.Popen(
            [sys.executable, "-c", FREE, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self) -> None:
        """Write until told to stop."""
        try:
            for batch in looks():
                self._free()
                self.warehouse.ingest([batch])
                self.written += 1
                if self._over.wait(PAUSE_S):
                    return
        except BaseException as error:  # noqa: BLE001  (the test says what it was)
            self.failure = error

    def stop(self) -> None:
        """Write to the end, and no more."""
        self._over.set()
        if self.is_alive():
            self.join()
        self._asked.kill()
        self._asked.communicate()

    def _free(self) -> None:
        assert self._asked.stdin is not None
        assert self._asked.stdout is not None
        self._asked.stdin.write("free?\n")
        self._asked.stdin.flush()
        answer = self._asked.stdout.readline()
        if answer != "free\n":
            raise RuntimeError(f"a writer could not write: {answer}")


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
