"""Rows wait while PostgreSQL is away, in memory and on disk; nothing is lost, nothing doubled."""

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from fallow import tables
from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from runtime.operations.doctor.storage import check_storage
from runtime.operations.ingestion.ingest_queue import IngestQueue, QueueState
from runtime.operations.ingestion.spool import Spool, SpoolFullError
from tests.servers import postgres
from tests.warehouse.conftest import process as process  # noqa: PLC0414  (a fixture)
from warehouse.lake import Warehouse

DEVICES = 20
BYTES = 64 * 1024**2


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.serving() as made:
        yield made


@pytest.fixture
def settings(server: postgres.Server, tmp_path: Path) -> Settings:
    catalog = server.catalog(f"lake{abs(hash(tmp_path)) % 10**9}")
    flags = {"home": tmp_path / "home", "cluster": "c", "warehouse.catalog": catalog}
    return load(environ={}, flags=flags).settings


def scrape(number: int) -> list[Batch]:
    """Return one scrape's samples, and the cursor that is stored with them."""
    at = datetime(2026, 11, 20) + timedelta(minutes=number)  # noqa: DTZ001
    samples = {
        "cluster": ["c"] * DEVICES,
        "ts": [at] * DEVICES,
        "device": [f"GPU-{i}" for i in range(DEVICES)],
        "interval_s": [60.0] * DEVICES,
        "gpu_util_pct": [float(number)] * DEVICES,
    }
    cursor = {"source": ["test"], "done_until": [at]}
    return [Batch.of("sample", samples), Batch.of("cursor", cursor)]


def stored(settings: Settings) -> list[int]:
    """Return the scrapes that are stored, by their values; each has all its devices."""
    with Warehouse.open(settings) as lake:
        rows = lake.query(
            "SELECT gpu_util_pct AS number, count(*) AS n FROM sample GROUP BY ALL ORDER BY ALL"
        ).to_pylist()
    assert {row["n"] for row in rows} <= {DEVICES}
    return [int(row["number"]) for row in rows]


class Away:
    """A warehouse with its queue, whose catalog is killed and started."""

    def __init__(self, server: postgres.Server, settings: Settings) -> None:
        self.server, self.settings = server, settings
        self.states: list[QueueState] = []
        self.seconds = 0.0

    def queue(self, lake: Warehouse, spool: Spool, most_rows: int = 10_000) -> IngestQueue:
        return IngestQueue(
            lake,
            spool,
            most_rows=most_rows,
            observe=self.states.append,
            ticks=lambda: self.seconds,
        )


@pytest.fixture
def away(server: postgres.Server, settings: Settings) -> Away:
    return Away(server, settings)


def spool_of(settings: Settings, most_bytes: int = BYTES) -> Spool:
    return Spool(settings.home / "queue", most_bytes)


def test_rows_wait_in_memory_then_on_disk_and_are_stored_once_in_order(
    away: Away, settings: Settings
) -> None:
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        queue = away.queue(lake, spool, most_rows=3 * (DEVICES + 1))
        assert queue.ingest(scrape(0)).added == DEVICES + 1
        away.server.stop()
        try:
            for number in (1, 2, 3):
                assert queue.ingest(scrape(number)).added == 0
            assert (queue.state.memory_rows, queue.state.files) == (3 * (DEVICES + 1), 0)
            queue.ingest(scrape(4))
            assert (queue.state.memory_rows, queue.state.files) == (0, 4)
            assert queue.state.disk_rows == 4 * (DEVICES + 1)
            checks = [row for row in check_storage(settings) if row.check == "queue"]
            assert [row.status for row in checks] == ["warn"]
            assert "84 rows of 4 files wait" in checks[0].finding
            queue.ingest(scrape(5))
            assert queue.state.memory_rows == DEVICES + 1
        finally:
            away.server.start()
        assert stored(settings) == [0]
        # What comes next is stored after what waited.
        result = queue.ingest(scrape(6))
        assert result.rows == 6 * (DEVICES + 1)
        assert queue.state == QueueState()
        assert list(spool.folder.glob("*.arrow")) == []
    assert away.states[-1] == QueueState()
    assert stored(settings) == list(range(7))


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_that_wait_are_stored_also_when_the_clock_is_set_back_meanwhile(
    away: Away, settings: Settings, *, on_disk: bool
) -> None:
    hour = timedelta(hours=1)
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        now = datetime(2026, 11, 20, 0, 30, tzinfo=UTC)
        lake.clock = lambda: now
        queue = away.queue(lake, spool)
        away.server.stop()
        try:
            queue.ingest(scrape(29))
            assert queue.ingest(scrape(29 + 60)).future == DEVICES
            if on_disk:
                queue.close()
        finally:
            away.server.start()
        now -= hour
        queue.deliver()
    assert stored(settings) == [29]


def test_old_rows_do_not_stay_in_memory_and_a_stop_moves_the_rest_to_disk(
    away: Away, settings: Settings
) -> None:
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        queue = away.queue(lake, spool)
        away.server.stop()
        try:
            queue.ingest(scrape(0))
            away.seconds += 61
            queue.deliver()
            assert (queue.state.memory_rows, queue.state.files) == (0, 1)
            queue.ingest(scrape(1))
            queue.close()
            assert (queue.state.memory_rows, queue.state.files) == (0, 2)
        finally:
            away.server.start()
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        assert away.queue(lake, spool).deliver().rows == 2 * (DEVICES + 1)
    assert stored(settings) == [0, 1]


_CHILD = """
import os, signal, sys
from pathlib import Path
from fallow.settings import Settings
from runtime.operations.ingestion.ingest_queue import IngestQueue
from runtime.operations.ingestion.spool import Spool
from tests.runtime.test_ingest_queue import scrape
from warehouse.lake import Warehouse
settings, task = Settings.model_validate_json(sys.argv[1]), sys.argv[2]
with Warehouse.open(settings, write=True) as lake, Spool(settings.home / "queue", 2**26) as spool:
    queue = IngestQueue(lake, spool, most_rows=0)
    if task == "keep":
        print("open", flush=True)
        sys.stdin.readline()
        for number in range(4):
            queue.ingest(scrape(number))
            print(f"acknowledged {number}", flush=True)
        sys.stdin.readline()
    spool.remove = lambda file: os.kill(os.getpid(), signal.SIGKILL)
    queue.deliver()
"""


def test_a_kill_before_and_during_delivery_loses_and_doubles_nothing(
    away: Away, settings: Settings, process: Callable[..., subprocess.Popen[str]]
) -> None:
    first = process(_CHILD, settings.model_dump_json(), "keep")
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline() == "open\n"
    away.server.stop()
    try:
        first.stdin.write("go\n")
        first.stdin.flush()
        assert [first.stdout.readline() for _ in range(4)] == [
            f"acknowledged {number}\n" for number in range(4)
        ]
        os.kill(first.pid, signal.SIGKILL)
        first.communicate(timeout=60)
    finally:
        away.server.start()
    assert stored(settings) == []
    # The second dies between the commit and the end of the files.
    second = process(_CHILD, settings.model_dump_json(), "deliver")
    second.communicate(timeout=60)
    assert second.returncode == -signal.SIGKILL
    assert stored(settings) == [0, 1, 2, 3]
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        assert len(spool.files) == 4
        result = away.queue(lake, spool).deliver()
        assert (result.added, result.duplicates > 0) == (0, True)
        assert spool.files == ()
    assert stored(settings) == [0, 1, 2, 3]


def test_at_the_bound_the_oldest_stay_and_the_newest_are_refused(
    away: Away, settings: Settings
) -> None:
    with Warehouse.open(settings, write=True) as lake, spool_of(settings, 8_000) as spool:
        queue = away.queue(lake, spool, most_rows=0)
        away.server.stop()
        try:
            last = 0
            while queue.state.disk_bytes < 6_000:
                queue.ingest(scrape(last))
                last += 1
            with pytest.raises(SpoolFullError, match=r"would exceed warehouse\.queue_bytes"):
                queue.ingest(scrape(last))
        finally:
            away.server.start()
        state = queue.state
        assert (state.files, state.refused) == (last, DEVICES + 1)
        assert state.disk_bytes <= 8_000
        assert last > 1
        # A full queue is delivered first when the catalog is back.
        queue.ingest(scrape(last + 1))
    assert stored(settings) == [*range(last), last + 1]


def test_a_damaged_file_is_kept_aside_and_the_others_are_stored(
    away: Away, settings: Settings
) -> None:
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        queue = away.queue(lake, spool)
        for number in range(3):
            queue.keep(scrape(number), on_disk=True)
        middle = spool.files[1].path
        middle.write_bytes(middle.read_bytes()[:400])
        (spool.folder / "00000000000000000009.partial").write_bytes(b"cut")
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        away.queue(lake, spool).deliver()
        names = {path.name for path in spool.folder.iterdir()}
        assert names == {"lock", middle.with_suffix(".damaged").name}
    checks = [row for row in check_storage(settings) if row.check == "queue"]
    assert [row.status for row in checks] == ["bad"]
    assert stored(settings) == [0, 2]


def test_rows_that_the_warehouse_refuses_hold_no_others_back(
    away: Away, settings: Settings
) -> None:
    refused = [Batch.of("policy", {"cluster": ["c"], "policy": ["p"]})]
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        queue = away.queue(lake, spool)
        with pytest.raises(WarehouseError, match="is derived"):
            queue.ingest(refused)
        queue.keep(scrape(0), on_disk=True)
        queue.keep(refused, on_disk=True)
        queue.keep(scrape(1), on_disk=True)
        queue.keep(refused)
        queue.ingest(scrape(2))
        assert queue.state == QueueState()
        assert len(list(spool.folder.glob("*.damaged"))) == 2
    assert stored(settings) == [0, 1, 2]


def test_rows_are_kept_on_disk_while_the_catalog_hangs(away: Away, settings: Settings) -> None:
    with Warehouse.open(settings, write=True) as lake, spool_of(settings) as spool:
        queue = away.queue(lake, spool)
        queue.ingest(scrape(0))
        with away.server.hanging():
            writer = threading.Thread(target=queue.ingest, args=(scrape(1),), daemon=True)
            writer.start()
            queue.keep(scrape(2), on_disk=True)
            assert len(spool.files) == 1
            assert writer.is_alive()
        writer.join(60)
        queue.deliver()
    assert stored(settings) == [0, 1, 2]


def test_a_second_process_does_not_share_the_folder(settings: Settings) -> None:
    with (
        spool_of(settings),
        pytest.raises(TemporaryError, match="another process collects into"),
        spool_of(settings),
    ):
        raise AssertionError


def test_a_scrape_of_10_000_devices_takes_less_than_5_mb(tmp_path: Path) -> None:
    """The figure of docs/service.md: every measured column has a random value."""
    count, values = 10_000, random.Random(1)
    measured = [
        column.name for column in tables.list_columns("sample")
        if column.type in ("f32", "f64") and column.unit and not column.key
    ][:30]  # fmt: skip
    sample = {
        "cluster": ["c"] * count,
        "ts": [datetime(2026, 11, 20)] * count,  # noqa: DTZ001
        "device": [f"GPU-{UUID(int=values.getrandbits(128))}" for _ in range(count)],
        "interval_s": [30.0] * count,
        **{name: [values.random() for _ in range(count)] for name in measured},
    }
    with Spool(tmp_path / "queue", BYTES) as spool:
        spool.write([Batch.of("sample", sample)])
        assert 1e6 < spool.files[0].size < 5e6
        (read,) = spool.read(spool.files[0])
        assert read.rows.equals(Batch.of("sample", sample).rows)
