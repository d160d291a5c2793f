"""Few rows are stored by an engine of one thread; every reader sees the same rows."""

from datetime import UTC, datetime, timedelta

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up
from warehouse.small_engine import FIRST
from warehouse.verification import verify_warehouse

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
COUNT = "SELECT count(*) AS n FROM sample"


def choose_threads(settings: Settings, threads: int) -> Settings:
    wanted = settings.warehouse.model_copy(update={"threads": threads})
    return settings.model_copy(update={"warehouse": wanted})


def build_samples(minute: int, device: str = "GPU-0") -> Batch:
    ts = START + timedelta(minutes=minute)
    return Batch.of(
        "sample",
        {"cluster": ["test"], "ts": [ts], "device": [device], "interval_s": [60.0]},
    )


def list_threads(warehouse: Warehouse) -> list[int]:
    """Return the threads of each of a few small transactions, and of a large one."""
    threads = []
    for is_small in (*[True] * (FIRST + 2), False):
        with warehouse.transaction(is_small=is_small) as cursor:
            row = cursor.execute("SELECT current_setting('threads')").fetchone()
            threads.append(row[0] if row else 0)
    return threads


def test_small_transactions_have_one_thread_once_there_are_several(settings: Settings) -> None:
    with Warehouse.open(choose_threads(settings, 2), write=True) as warehouse:
        assert list_threads(warehouse) == [*[2] * FIRST, 1, 1, 2]


def test_tables_in_memory_have_one_engine(settings: Settings) -> None:
    with Warehouse.open_in_memory(choose_threads(settings, 2)) as warehouse:
        assert list_threads(warehouse) == [2] * (FIRST + 3)


@pytest.mark.slow  # to verify starts a process, which test-fast does not
def test_both_engines_see_what_the_other_has_stored(settings: Settings) -> None:
    with Warehouse.open(choose_threads(settings, 2), write=True, clock=lambda: NOW) as warehouse:
        for minute in range(2 * FIRST + 2):
            assert warehouse.ingest([build_samples(minute)]).added == 1
            assert warehouse.query(COUNT).to_pylist() == [{"n": minute + 1}]
            assert warehouse.ingest([build_samples(minute)]).duplicates == 1
            roll_up(warehouse)
        for table in ("rollup_5m", "dirty"):
            with warehouse.transaction(is_small=True) as small:
                small_rows = small.execute(f"FROM {table} ORDER BY ALL").fetchall()
            with warehouse.transaction() as large:
                assert large.execute(f"FROM {table} ORDER BY ALL").fetchall() == small_rows
        with warehouse.transaction() as cursor:
            cursor.execute("DELETE FROM sample")
        assert warehouse.ingest([build_samples(0)]).added == 1
        assert warehouse.query(COUNT).to_pylist() == [{"n": 1}]
    with Warehouse.open(settings) as reader:
        assert reader.query(COUNT).to_pylist() == [{"n": 1}]
        assert [check for check in verify_warehouse(reader) if not check.ok] == []


def delete_and_stop(warehouse: Warehouse) -> None:
    with warehouse.transaction(is_small=True) as cursor:
        cursor.execute("DELETE FROM schema_version")
        raise ValueError("stop")


def test_a_small_transaction_that_fails_leaves_nothing(settings: Settings) -> None:
    with Warehouse.open(choose_threads(settings, 2), write=True, clock=lambda: NOW) as warehouse:
        list_threads(warehouse)
        with pytest.raises(ValueError, match="stop"):
            delete_and_stop(warehouse)
        assert warehouse.query("SELECT count(*) AS n FROM schema_version")["n"][0].as_py() > 0
        assert warehouse.ingest([build_samples(0)]).added == 1
