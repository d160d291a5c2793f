"""A PostgreSQL catalog: the same warehouse, several writing processes. A real server."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from tests.servers.postgres import Server, serving
from tests.soak.proxy import Proxy
from tests.warehouse.conftest import Reading
from warehouse import maintenance, schema, tiers
from warehouse.data_files import SECOND_NAMES
from warehouse.lake import Warehouse
from warehouse.relocation import relocate_warehouse
from warehouse.rollup import roll_up
from warehouse.steps import load_step
from warehouse.verification import verify_warehouse


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def on_postgres(server: Server, tmp_path: Path) -> Settings:
    """Return settings with a database of this test's own."""
    name = f"lake{abs(hash(tmp_path)) % 10**9}"
    catalog = server.catalog(name)
    flags = {"home": tmp_path / "home", "cluster": "test", "warehouse.catalog": catalog}
    return load(environ={}, flags=flags).settings


@pytest.fixture
def proxy(server: Server) -> Proxy:
    return Proxy(server.port)


@pytest.fixture
def through_proxy(on_postgres: Settings, server: Server, proxy: Proxy) -> Settings:
    """Return the same settings with the catalog behind a proxy."""
    catalog = on_postgres.warehouse.catalog.replace(str(server.port), str(proxy.port))
    places = on_postgres.warehouse.model_copy(update={"catalog": catalog})
    return on_postgres.model_copy(update={"warehouse": places})


def look(number: int, devices: int = 20) -> Batch:
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * devices,
            "ts": [datetime(2026, 11, 20) + timedelta(minutes=number)] * devices,  # noqa: DTZ001
            "device": [f"GPU-{i}" for i in range(devices)],
            "interval_s": [60.0] * devices,
            "gpu_util_pct": [float(number)] * devices,
        },
    )


def test_rows_are_stored_once_and_every_stage_runs(on_postgres: Settings, now: datetime) -> None:
    with Warehouse.open(on_postgres, write=True, clock=lambda: now) as wh:
        assert wh.ingest([look(0), look(1)]).added == 40
        assert wh.ingest([look(1), look(2)]).duplicates == 20
        assert wh.ingest([look(100_000)]).future == 20
        roll_up(wh)
        before = wh.query("FROM sample ORDER BY ALL")
        assert maintenance.compact_warehouse(wh).merged > 0
        assert tiers.move_to_cold(wh, now + timedelta(days=30)).rows > 0
        assert wh.query("FROM sample ORDER BY ALL").equals(before)
        rows = {(r["tier"], r["table"]): r for r in maintenance.read_status(wh).to_pylist()}
        assert rows["cold", "sample"]["rows"] == 60
        assert rows["catalog", f"snapshots, schema {schema.get_current()}"]["bytes"] is None
    with Warehouse.open(on_postgres) as reader:
        assert reader.query("SELECT sum(n) AS n FROM rollup_5m")["n"].to_pylist() == [60]
        checks = list(verify_warehouse(reader))
        assert all(check.ok for check in checks)
        assert "cold sample" in {check.subject for check in checks}


def test_several_may_begin_a_new_warehouse_at_once(on_postgres: Settings) -> None:
    together = threading.Barrier(4)

    def begin(number: int) -> int:
        together.wait(timeout=60)
        with Warehouse.open(on_postgres, write=True) as wh:
            return wh.ingest([look(number)]).added

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(begin, range(4))] == [20] * 4
    with Warehouse.open(on_postgres) as reader:
        (row,) = reader.query("SELECT count(*) AS n FROM sample").to_pylist()
    assert row == {"n": 80}


def test_replaced_files_stay_for_a_day_and_go_after(on_postgres: Settings) -> None:
    ahead = timedelta()
    with Warehouse.open(on_postgres, write=True, clock=lambda: datetime.now(UTC) + ahead) as wh:
        for number in range(4):
            wh.ingest([look(number)])
        maintenance.compact_warehouse(wh)
        ahead = timedelta(hours=23, minutes=59)
        assert maintenance.compact_warehouse(wh).removed == 0
        ahead = timedelta(days=2)
        assert maintenance.compact_warehouse(wh).removed >= 4
        assert wh.query("SELECT count(*) AS n FROM sample")["n"].to_pylist() == [80]


_WRITER = """
import sys
from datetime import datetime, timedelta
from fallow.settings import Settings
from fallow.tables import Batch
from tests.servers.postgres import Server, serving
from tests.soak.proxy import Proxy
from warehouse import maintenance
from warehouse.lake import Warehouse
from warehouse.relocation import relocate_warehouse
settings, first, devices = Settings.model_validate_json(sys.argv[1]), int(sys.argv[2]), 20
with Warehouse.open(settings, write=True) as wh:
    print("open", flush=True)
    sys.stdin.readline()
    for number in range(first, first + 10):
        wh.ingest([Batch.of("sample", {
            "cluster": ["test"] * devices, "interval_s": [60.0] * devices,
            "ts": [datetime(2026, 11, 20) + timedelta(minutes=number)] * devices,
            "device": [f"GPU-{i}" for i in range(devices)],
            "gpu_util_pct": [float(number)] * devices})])
    maintenance.compact_warehouse(wh)
"""


def test_two_processes_write_the_same_looks_at_once_and_a_third_reads(
    on_postgres: Settings,
    process: Callable[..., subprocess.Popen[str]],
    reading: Reading,
) -> None:
    with Warehouse.open(on_postgres, write=True) as wh:
        wh.ingest([look(0)])
    question = "SELECT count(*) % 20 AS rest FROM sample"
    with reading(on_postgres, question) as seen:
        # Both store looks 5 to 9: at once, and only once.
        writers = [process(_WRITER, on_postgres.model_dump_json(), first) for first in (0, 5)]
        assert [w.stdout and w.stdout.readline() for w in writers] == ["open\n"] * 2
        for writer in writers:
            writer.communicate("go\n", timeout=120)
        assert [writer.returncode for writer in writers] == [0, 0]
    assert seen[0]["errors"] == []
    assert seen[0]["answers"] == [[{"rest": 0}]]
    with Warehouse.open(on_postgres) as wh:
        rows = wh.query("SELECT ts, count(*) AS n FROM sample GROUP BY ts")
    assert rows["n"].to_pylist() == [20] * 15


def test_a_server_that_is_away_is_temporary_and_nothing_is_lost(
    server: Server, on_postgres: Settings
) -> None:
    with Warehouse.open(on_postgres, write=True) as wh:
        wh.ingest([look(0)])
        server.stop()
        try:
            with pytest.raises(TemporaryError, match="cannot be reached"):
                wh.ingest([look(1)])
            with pytest.raises(TemporaryError, match="cannot be reached"):
                Warehouse.open(on_postgres)
        finally:
            server.start()
    with Warehouse.open(on_postgres, write=True) as wh:
        assert wh.ingest([look(0), look(1)]).duplicates == 20


@pytest.mark.parametrize(
    "where",
    [
        "dbname=nowhere host=127.0.0.1 port={port} user=fallow password=secret",
        "dbname=nowhere host=127.0.0.1 port={port} user=fallow password='secret one'",
        "postgresql://fallow:secret@127.0.0.1:{port}/nowhere",
    ],
)
def test_a_refused_connection_is_told_without_its_password(
    server: Server, on_postgres: Settings, where: str
) -> None:
    catalog = f"postgres:{where.format(port=server.port)}"
    wrong = on_postgres.warehouse.model_copy(update={"catalog": catalog})
    with pytest.raises(WarehouseError, match="refuses the catalog connection") as caught:
        Warehouse.open(on_postgres.model_copy(update={"warehouse": wrong}), write=True)
    assert "secret" not in str(caught.value)


def test_data_in_another_folder_is_relocated_by_the_command_only(
    on_postgres: Settings, now: datetime, tmp_path: Path
) -> None:
    with Warehouse.open(on_postgres, write=True, clock=lambda: now) as wh:
        wh.ingest([look(0)])
    moved = on_postgres.model_copy(update={"home": tmp_path / "elsewhere"})
    on_postgres.home.rename(moved.home)
    # Another process may still have the old settings: opening changes nothing.
    with pytest.raises(WarehouseError, match="belongs to another folder") as refusal:
        Warehouse.open(moved)
    assert "fallow warehouse relocate" in str(refusal.value.hint)
    assert [part.part for part in relocate_warehouse(moved)] == ["data"]
    with Warehouse.open(moved) as wh:
        assert wh.query("SELECT count(*) AS n FROM sample")["n"].to_pylist() == [20]


def test_a_commit_whose_answer_is_lost_keeps_its_files(
    through_proxy: Settings, proxy: Proxy, now: datetime
) -> None:
    with Warehouse.open(through_proxy, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(0)])
        proxy.lose_answer(b"COMMIT")
        with pytest.raises(TemporaryError, match="the catalog cannot be reached"):
            warehouse.ingest([look(1)])
        assert proxy.has_lost_answer
        # PostgreSQL has the commit: its file is read, and its rows are not stored again.
        assert all(check.ok for check in verify_warehouse(warehouse))
        assert warehouse.ingest([look(1), look(2)]).added == 20
        assert warehouse.query("SELECT count(*) AS n FROM sample").to_pylist() == [{"n": 60}]
    assert list((through_proxy.home / "data" / SECOND_NAMES).iterdir()) == []


def test_files_of_a_commit_that_failed_go_with_the_next_one(
    through_proxy: Settings, proxy: Proxy, now: datetime
) -> None:
    data = through_proxy.home / "data"
    with Warehouse.open(through_proxy, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(0)])
        with ExitStack() as stack:
            cursor = stack.enter_context(warehouse.transaction())
            cursor.execute("INSERT INTO sample BY NAME SELECT 'test' AS cluster, 'GPU-9' AS device")
            proxy.close_port()
            with pytest.raises(TemporaryError, match="the catalog cannot be reached"):
                stack.close()
        assert len(list((data / SECOND_NAMES).iterdir())) == 1
    proxy.open_port()
    with Warehouse.open(through_proxy, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(1)])
        with warehouse.snapshot() as cursor:
            rows = cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
        assert {str(data / path) for path, _, _ in rows} == {
            str(path) for path in data.rglob("*.parquet*")
        }
