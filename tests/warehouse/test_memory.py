"""A service of months needs the memory of its first hour: no pass leaves any behind."""

import gc
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from fallow.settings import Settings
from fallow.system.container_limits import map_large_pieces
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from warehouse.lake import MOST_SNAPSHOTS, Warehouse

START = datetime(2026, 3, 2, tzinfo=UTC)
PASS = timedelta(minutes=5)
WARM = 12
"""Passes until caches are full: imports, views, allocators."""
MOST_MIB = 0.05
"""What a pass may add after them."""


class Fleet:
    """A warehouse and its clock; each pass stores five minutes of all GPUs."""

    def __init__(self, home: Path, gpus: int) -> None:
        self.settings, self.gpus = Settings(home=home, cluster="test"), gpus
        self.now = START
        self.warehouse = Warehouse.open(self.settings, write=True, clock=lambda: self.now)
        self.reader = self.warehouse

    def store(self) -> None:
        times = [self.now.replace(tzinfo=None) + timedelta(minutes=k) for k in range(5)]
        self.now += PASS
        rows = [(at, gpu) for at in times for gpu in range(self.gpus)]
        data = {
            "cluster": ["test"] * len(rows),
            "ts": [at for at, _ in rows],
            "device": [f"GPU-{gpu:05d}" for _, gpu in rows],
            "node": [f"node-{gpu // 8}" for _, gpu in rows],
            "model": ["NVIDIA H100 80GB HBM3"] * len(rows),
            "interval_s": [60.0] * len(rows),
            "gpu_util_pct": [float((gpu * 7 + at.minute) % 100) for at, gpu in rows],
            "power_w": [float(100 + gpu % 400) for _, gpu in rows],
        }
        self.warehouse.ingest([Batch.of("sample", data)])

    def account(self) -> None:
        self.store()
        pipeline.account(self.warehouse, Window(self.now - pipeline.LEDGER_LOOKBACK, self.now))

    def commit(self) -> None:
        """Commit as often as a pass with its scrapes does."""
        for _ in range(10):
            self.store()
        self.forget_marks()

    def analyze(self) -> None:
        self.account()
        window = Window(self.now - timedelta(days=7), self.now)
        pipeline.analyze(
            self.warehouse, window, analyzer_runs.load_analyzers(self.settings, ["idle"])
        )

    def show(self) -> None:
        """Read in a reader's engine what pages read, after each commit."""
        if self.reader is self.warehouse:
            self.reader = Warehouse.open(self.settings, clock=lambda: self.now)
        for _ in range(5):
            self.store()
            for table in ("sample", "device"):
                self.reader.query(f"SELECT count(*) AS n FROM {table}")
                self.warehouse.query(f"SELECT count(*) AS n FROM {table}")
        self.forget_marks()

    def forget_marks(self) -> None:
        """Forget the devices of buckets that wait for their roll-up, as a roll-up does."""
        first = START.replace(tzinfo=None)
        self.warehouse.late.forget("test", first, first + timedelta(days=365))

    def close(self) -> None:
        self.warehouse.close()
        self.reader.close()


def read_rss_mib() -> float:
    gc.collect()
    [kib] = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


def measure_growth(work: Callable[[], None], passes: int) -> float:
    """Return MiB per pass after `WARM`: the median slope between two passes (Theil and Sen).

    What an engine holds goes when another replaces it, so that single passes lie far below.
    """
    used = []
    for _ in range(passes):
        work()
        used.append(read_rss_mib())
    later = list(enumerate(used[WARM:]))
    return median((b - a) / (n - m) for (m, a), (n, b) in combinations(later, 2))


@pytest.fixture
def build_fleet(tmp_path: Path) -> Callable[[int], Fleet]:
    return lambda gpus: Fleet(tmp_path / "home", gpus)


def read_engine_mib(warehouse: Warehouse) -> float:
    with warehouse.catalog_cursor() as cursor:
        sql = "SELECT sum(memory_usage_bytes) FROM duckdb_memory()"
        return float(cursor.execute(sql).fetchall()[0][0]) / 2**20


def test_snapshots_that_are_read_leave_little_memory_behind(
    build_fleet: Callable[[int], Fleet],
) -> None:
    fleet = build_fleet(1)
    used = []
    for _ in range(WARM):
        fleet.show()
        used.append((read_engine_mib(fleet.warehouse), read_engine_mib(fleet.reader)))
    # Views of a snapshot take 3.4 MiB, 200 MiB in all where a result is left open.
    assert max(map(max, used)) < 30, used
    fleet.close()


# Cheaper: the test before, which sees the engine's own memory only.
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("work", "gpus", "passes"),
    [
        ("account", 64, 120),
        ("account", 2_000, 60),
        ("commit", 64, 120),
        ("analyze", 64, 120),
        ("show", 64, 120),
    ],
)
def test_no_pass_leaves_memory_behind(
    build_fleet: Callable[[int], Fleet], work: str, gpus: int, passes: int
) -> None:
    map_large_pieces()  # as a service
    fleet = build_fleet(gpus)
    for _ in range(pipeline.LEDGER_LOOKBACK // PASS):  # no later pass accounts more hours
        fleet.store()
    assert measure_growth(getattr(fleet, work), passes) <= MOST_MIB
    fleet.close()


def test_readers_and_writers_go_on_while_engines_are_replaced(
    build_fleet: Callable[[int], Fleet],
) -> None:
    fleet = build_fleet(1)
    fleet.show()
    reader, writer = fleet.reader, fleet.warehouse
    engines = reader._connection, writer._connection
    with reader._reading(frozenset({"sample"})) as (cursor, _):
        for _ in range(MOST_SNAPSHOTS // 5 + 1):
            fleet.show()
        # The cursor ends on the engine, and on the snapshot, with which it began.
        assert cursor.execute("SELECT count(*) FROM sample").fetchall() == [(25,)]
    assert reader._connection is not engines[0]
    assert writer._connection is not engines[1]
    count = "SELECT count(*) AS n FROM sample"
    expected = [{"n": 25 * (MOST_SNAPSHOTS // 5 + 2)}]
    assert reader.query(count).to_pylist() == writer.query(count).to_pylist() == expected
    fleet.close()
