"""Tables of a few files are read without asking the catalog for them, and nothing differs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fallow.settings import Settings
from fallow.tables import Batch, list_columns
from warehouse.lake import Warehouse
from warehouse.maintenance import compact_warehouse
from warehouse.rollup import roll_up
from warehouse.views import direct

START = datetime(2026, 11, 20, 6)  # noqa: DTZ001  (tables hold naive UTC)
COMMITS = 8
SUM = "SELECT count(*) AS n, sum(gpu_util_pct) AS s FROM sample"


def build_samples(minute: int, devices: tuple[str, ...] = ("a", "b")) -> Batch:
    count = len(devices)
    return Batch.of(
        "sample",
        {
            "cluster": ["c"] * count,
            "ts": [START + timedelta(minutes=minute)] * count,
            "device": list(devices),
            "node": ["n"] * count,
            "vendor": ["nvidia"] * count,
            "model": ["NVIDIA H100 80GB HBM3"] * count,
            "interval_s": [60.0] * count,
            "namespace": ["team"] * count,
            "gpu_util_pct": [float(minute)] * count,
        },
    )


@pytest.fixture
def warehouse(settings: Settings, now: datetime) -> Iterator[Warehouse]:
    with Warehouse.open(settings, write=True, clock=lambda: now + timedelta(days=60)) as opened:
        opened.ingest([build_samples(0), build_samples(1)])
        roll_up(opened)
        yield opened


def query_twice(warehouse: Warehouse, sql: str, **parameters: Any) -> None:
    """Query as often as a snapshot asks the lake; one query later a small table is copied."""
    for _ in range(2):
        warehouse.query(sql, parameters)


def query_again(warehouse: Warehouse, sql: str, **parameters: Any) -> pa.Table:
    """Return the rows of the last of three queries: the first two of a snapshot ask the lake."""
    query_twice(warehouse, sql, **parameters)
    return warehouse.query(sql, parameters)


def list_direct(warehouse: Warehouse) -> frozenset[str]:
    return frozenset(warehouse._views._direct._current.files)


def list_copied(warehouse: Warehouse) -> set[str]:
    views = warehouse._views._direct._current.views
    return {name for name, kind in views.items() if kind == "copy"}


def query_often(warehouse: Warehouse, sql: str) -> pa.Table:
    """Return the rows of the last of so many queries that a table of few rows is copied."""
    for _ in range(5):
        warehouse.query(sql)
    return warehouse.query(sql)


def delete_device(warehouse: Warehouse, device: str) -> None:
    with warehouse.transaction() as cursor:
        cursor.execute(f"DELETE FROM sample WHERE device = '{device}'")


def read_log(warehouse: Warehouse, sql: str) -> list[str]:
    """Return the statements that the engine runs for one query, its own to the catalog too."""
    connection = warehouse._connection
    connection.execute("CALL enable_logging('QueryLog')")
    warehouse.query(sql)
    connection.execute("CALL disable_logging()")
    return [str(row[-1]) for row in connection.execute("FROM duckdb_logs").fetchall()]


def test_a_query_of_a_known_snapshot_asks_the_catalog_only_for_the_snapshot(
    warehouse: Warehouse,
) -> None:
    query_twice(warehouse, SUM)
    texts = read_log(warehouse, SUM)
    assert any("FROM sample" in text for text in texts)
    assert any("max(snapshot_id)" in text for text in texts)
    assert not [text for text in texts if "ducklake_data_file" in text]


def test_a_text_that_is_new_is_direct_as_well(warehouse: Warehouse) -> None:
    query_twice(warehouse, SUM)
    texts = read_log(warehouse, "SELECT min(sample.ts) AS first_and_only FROM sample")
    assert any("max(snapshot_id)" in text for text in texts)
    assert not [text for text in texts if "ducklake_data_file" in text]


def test_the_rows_and_columns_of_every_table_are_those_of_the_lake(warehouse: Warehouse) -> None:
    query_again(warehouse, SUM)
    direct = list_direct(warehouse)
    assert {"sample", "rollup_5m", "rollup_1h", "device", "node", "ledger"} <= direct
    for name in sorted(direct):
        sql = f"SELECT * FROM {name}"
        rows = warehouse.query(sql)
        with warehouse.snapshot() as cursor:
            expected = cursor.execute(f"FROM lake.main.{name}").to_arrow_table()
        assert rows.schema == expected.schema, name
        assert rows.to_pylist() == expected.to_pylist(), name


def test_the_rows_of_a_commit_are_seen_by_the_next_query_of_every_reader(
    warehouse: Warehouse, settings: Settings
) -> None:
    with Warehouse.open(settings) as reader:
        assert query_again(reader, SUM).to_pylist() == [{"n": 4, "s": 2.0}]
        assert "sample" in list_direct(reader)
        for minute in range(2, 5):
            warehouse.ingest([build_samples(minute)])
            for each in (warehouse, reader, reader, reader):
                assert each.query(SUM)["n"].to_pylist() == [2 * (minute + 1)]


def test_a_table_with_deleted_rows_is_read_from_the_lake(warehouse: Warehouse) -> None:
    query_again(warehouse, SUM)
    assert "sample" in list_direct(warehouse)
    with warehouse.transaction() as cursor:
        cursor.execute("DELETE FROM sample WHERE device = 'a'")
    assert query_again(warehouse, SUM)["n"].to_pylist() == [2]
    assert "sample" not in list_direct(warehouse)
    assert "node" in list_direct(warehouse)


def test_a_table_of_many_files_is_read_from_the_lake(warehouse: Warehouse) -> None:
    for minute in range(2, 14):
        warehouse.ingest([build_samples(minute)])
    assert query_again(warehouse, SUM)["n"].to_pylist() == [28]
    assert "sample" not in list_direct(warehouse)


def test_files_older_than_a_column_are_read_from_the_lake(warehouse: Warehouse) -> None:
    with warehouse.transaction() as cursor:
        cursor.execute("ALTER TABLE sample DROP COLUMN vendor")
        cursor.execute("ALTER TABLE sample ADD COLUMN vendor VARCHAR")
    assert query_again(warehouse, "SELECT vendor FROM sample")["vendor"].null_count == 4
    assert "sample" not in list_direct(warehouse)


def test_what_shows_the_tables_shows_all_of_them(warehouse: Warehouse) -> None:
    with warehouse.transaction() as cursor:
        cursor.execute("DELETE FROM sample WHERE device = 'a'")
    query_again(warehouse, SUM)
    query_again(warehouse, "SELECT count(*) FROM node")
    assert "sample" in query_again(warehouse, "SHOW TABLES")["name"].to_pylist()


def test_a_table_that_was_updated_has_its_own_columns_only(warehouse: Warehouse) -> None:
    for minute in (30, 60):
        warehouse.ingest([build_samples(minute)])
        roll_up(warehouse)
    compact_warehouse(warehouse)
    rows = query_again(warehouse, "FROM device")
    assert "device" in list_direct(warehouse)
    assert rows.column_names == [c.name for c in list_columns("device")]


def test_a_table_of_few_rows_that_is_read_again_is_copied_with_its_rows_and_columns(
    warehouse: Warehouse,
) -> None:
    delete_device(warehouse, "a")
    roll_up(warehouse)
    for name in ("sample", "rollup_5m", "rollup_1h", "device", "address"):
        sql = f"SELECT * FROM {name}"
        rows = query_often(warehouse, sql)
        with warehouse.snapshot() as cursor:
            expected = cursor.execute(f"FROM lake.main.{name}").to_arrow_table()
        assert rows.schema == expected.schema, name
        assert rows.to_pylist() == expected.to_pylist(), name
    assert list_copied(warehouse) == {"sample", "rollup_5m", "rollup_1h", "device"}
    query_often(warehouse, SUM)
    assert not [t for t in read_log(warehouse, SUM) if "ducklake_data_file" in t]


def test_a_copy_serves_until_a_commit_changes_its_table(
    warehouse: Warehouse, settings: Settings
) -> None:
    with Warehouse.open(settings) as reader:
        assert query_often(reader, SUM)["n"].to_pylist() == [4]
        copy = reader._views._direct._copies._small["sample"].copy
        assert copy
        warehouse.ingest(
            [Batch.of("node", {"cluster": ["c"], "node": ["n"], "last_seen": [START]})]
        )
        assert query_often(reader, SUM)["n"].to_pylist() == [4]
        assert reader._views._direct._copies._small["sample"].copy == copy
        delete_device(warehouse, "a")  # no new data file: the rows that are deleted have one
        assert reader.query(SUM)["n"].to_pylist() == [2]
        assert query_often(reader, SUM)["n"].to_pylist() == [2]
        warehouse.ingest([build_samples(2)])
        assert reader.query(SUM)["n"].to_pylist() == [4]
        assert query_often(reader, SUM)["n"].to_pylist() == [4]
        assert reader._views._direct._copies._small["sample"].copy != copy
        memory = "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'copies'"
        assert reader._connection.execute(memory).fetchone() == (1,)


@pytest.mark.parametrize(("most", "copied"), [(4 * 51, True), (4 * 51 - 1, False)])
def test_a_table_of_many_values_is_not_copied(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, most: int, *, copied: bool
) -> None:
    assert len(list_columns("sample")) == 51
    monkeypatch.setattr(direct, "MOST_VALUES", most)
    query_often(warehouse, SUM)
    assert ("sample" in list_copied(warehouse)) is copied


def test_a_query_sees_one_snapshot_of_copies_and_of_the_lakes_tables_and_the_newest(
    warehouse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit changes a row of both tables: no query may see one change only, or an old one."""
    monkeypatch.setattr(direct, "MOST_VALUES", 100)  # `cursor` has 2 columns, `sample` 51
    both = (
        "SELECT max(gpu_util_pct)::BIGINT AS lake, (SELECT max(source)::BIGINT FROM cursor) AS copy"
        " FROM sample"
    )
    committed, mixed = [0], 0

    def commit(number: int) -> None:
        with warehouse.transaction() as cursor:
            cursor.execute("DELETE FROM cursor")
            cursor.execute(f"INSERT INTO cursor VALUES ('{number}', NULL)")
            cursor.execute(f"UPDATE sample SET gpu_util_pct = {number} WHERE device = 'a'")
        committed[0] = number

    def read(views: Warehouse) -> None:
        while committed[0] < COMMITS:
            least = committed[0]
            (row,) = views.query(both).to_pylist()
            assert row["lake"] == row["copy"] >= least

    commit(1)
    with Warehouse.open(settings) as reader, ThreadPoolExecutor(2) as pool:
        readings = [pool.submit(read, each) for each in (warehouse, reader)]
        for number in range(2, COMMITS + 1):
            (row,) = query_often(warehouse, both).to_pylist()
            assert row == {"lake": number - 1, "copy": number - 1}
            kinds = warehouse._views._direct._current.views
            mixed += (kinds.get("cursor"), kinds.get("sample")) == ("copy", "lake")
            commit(number)
        for reading in readings:
            reading.result()
    assert mixed
