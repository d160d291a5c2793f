"""Workers read a real server's past: the tables are those of one process, also after faults."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.prometheus.client import BudgetSpentError
from collectors.prometheus.collector import TelemetryPart
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.ingestion import telemetry_slices
from runtime.operations.ingestion.collection import build_prometheus_collector, drain, read_cursors
from runtime.operations.ingestion.telemetry_slices import read_slices
from tests.prometheus.test_backfill import RANGE, quiet
from tests.servers.misbehaving import Answer, Misbehaving
from tests.servers.prometheus import END, SILENCE
from warehouse.lake import Warehouse
from warehouse.runners.choice import open_runner
from warehouse.runners.slices import Runner, StageError

pytestmark = pytest.mark.xdist_group("prometheus")
LATER = END + timedelta(hours=2)
WHOLE = Window(SILENCE[0] - timedelta(hours=1, minutes=20), SILENCE[1] + timedelta(hours=2))
"""Its chunks of half an hour cut the silence of 46 minutes."""
CHUNK = timedelta(minutes=30)
SLICES = 9
TABLES = ("sample", "holding", "node", "pod", "pod_sample", "container_sample", "cursor", "dirty")


def make_settings(home: Path, url: str, **flags: Any) -> Settings:
    given = {"home": home, "cluster": "real", "prometheus.url": url, "prometheus.chunk": CHUNK}
    return load(environ={}, flags={**given, "prometheus.retries": 0, **flags}).settings


def backfill(settings: Settings, runner: Any = None) -> dict[str, list[dict[str, Any]]]:
    """Import the window, with workers where a runner is given; return the tables' rows."""
    with Warehouse.open(settings, write=True, clock=lambda: LATER) as warehouse:
        collector = build_prometheus_collector(settings, read_cursors(warehouse), lambda: LATER)
        before = read_slices(settings, collector, WHOLE, LATER, runner) if runner else ()
        try:
            drain(warehouse, collector, WHOLE, quiet, read_before=before)
        finally:
            stored = read_tables(warehouse)
        return stored


def read_tables(warehouse: Warehouse) -> dict[str, list[dict[str, Any]]]:
    rows = {t: warehouse.query(f'SELECT * FROM "{t}" ORDER BY ALL').to_pylist() for t in TABLES}
    scrapes = "SELECT * EXCLUDE (seconds) FROM scrape ORDER BY ALL"
    return {**rows, "scrape": warehouse.query(scrapes).to_pylist()}


@pytest.fixture(scope="module")
def by_one_process(
    prometheus_with_history: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    return backfill(make_settings(tmp_path_factory.mktemp("one"), prometheus_with_history))


def test_workers_store_what_one_process_stores(
    prometheus_with_history: str, tmp_path: Path, by_one_process: Mapping[str, Any]
) -> None:
    flags = {"warehouse.processes": 2}
    stored = backfill(make_settings(tmp_path, prometheus_with_history, **flags), open_runner)
    for table, rows in by_one_process.items():
        assert stored[table] == rows, table
    assert stored["sample"]
    gaps = [row for row in stored["scrape"] if not row["up"]]
    assert len(gaps) >= 2, "the silence lies in more than one slice"


def test_slices_are_read_by_the_workers_and_not_again(
    passing_on: Misbehaving, tmp_path: Path
) -> None:
    runner = RunnerHere()
    backfill(make_settings(tmp_path, passing_on.url), runner.open)
    assert runner.taken == SLICES
    queries = [p for _, p in passing_on.asked if RANGE.search(p.get("query", ""))]
    stretches = {(p["time"], p["query"]) for p in queries}
    assert len(stretches) == len(queries), "no stretch is asked for twice"
    assert len({p["time"] for p in queries}) == SLICES, "each slice has its own end"


def test_a_server_that_falls_silent_half_way_keeps_what_came_before(
    passing_on: Misbehaving, tmp_path: Path, by_one_process: Mapping[str, Any]
) -> None:
    real, middle = passing_on.answering, WHOLE.start + 4 * CHUNK

    def answer_early(path: str, parameters: Mapping[str, str]) -> Answer:
        late = RANGE.search(parameters.get("query", "")) and float(parameters["time"]) > (
            middle.timestamp()
        )
        return Answer(503, b"") if late else real(path, parameters)

    settings = make_settings(tmp_path, passing_on.url)
    passing_on.answering = answer_early
    with pytest.raises(TemporaryError, match="HTTP 503"):
        backfill(settings, RunnerHere().open)
    with Warehouse.open(settings) as warehouse:
        assert list(read_cursors(warehouse).values()) == [middle]
    passing_on.answering = real
    stored = backfill(settings, RunnerHere().open)
    assert stored["sample"] == by_one_process["sample"]
    assert stored["holding"] == by_one_process["holding"]


def test_the_queries_of_workers_count_for_the_budget(
    passing_on: Misbehaving, tmp_path: Path
) -> None:
    settings = make_settings(tmp_path, passing_on.url, **{"prometheus.query_budget": 60})
    with pytest.raises(BudgetSpentError):
        backfill(settings, RunnerHere().open)
    assert 60 <= len(passing_on.asked) < 60 + 4 * 25, "at most the slices that were begun"


def test_where_workers_die_this_process_goes_on(
    prometheus_with_history: str, tmp_path: Path, by_one_process: Mapping[str, Any]
) -> None:
    runner = RunnerHere(most=4)
    stored = backfill(make_settings(tmp_path, prometheus_with_history), runner.open)
    assert runner.taken == 4
    assert stored["sample"] == by_one_process["sample"]


class RunnerHere:
    """Runs slices in this process, two in a group; its workers die after `most` slices."""

    concurrency = 2

    def __init__(self, most: int = 1000) -> None:
        self.most, self.taken = most, 0

    @contextmanager
    def open(self, _settings: Settings) -> Iterator[Runner]:
        telemetry_slices._get_collector.cache_clear()
        yield self

    def map(self, task: Any, slices: Any) -> list[Any]:
        if self.taken + len(slices) > self.most:
            raise StageError("a slice failed 3 times")
        self.taken += len(slices)
        assert all(isinstance(part, TelemetryPart) for part in slices)
        return [task(part) for part in slices]

    def close(self) -> None:
        """Nothing runs."""
