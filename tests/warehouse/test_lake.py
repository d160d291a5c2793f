"""The warehouse as its callers see it."""

from datetime import datetime, timedelta
from unittest.mock import Mock

import duckdb
import pytest

from fallow.errors import UsageError, WarehouseError
from fallow.settings import Settings
from fallow.tables import Batch
from warehouse import schema
from warehouse.lake import Warehouse
from warehouse.views import ViewSchemas
from warehouse.views.tiers import TierState


def samples(now: datetime, n: int = 4, **more: object) -> Batch:
    data = {
        "cluster": ["test"] * n,
        "ts": [now.replace(tzinfo=None)] * n,
        "device": [f"GPU-{i}" for i in range(n)],
        "interval_s": [30.0] * n,
        "gpu_util_pct": [None, *[float(i) for i in range(1, n)]],
    }
    return Batch.of("sample", {**data, **more})


@pytest.mark.parametrize("write", [True, False])
def test_who_opens_a_warehouse_reads_the_columns_of_its_tables_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, write: bool
) -> None:
    Warehouse.open(settings, write=True).close()
    read = Mock(wraps=schema._read_columns)
    monkeypatch.setattr(schema, "_read_columns", read)
    Warehouse.open(settings, write=write).close()
    assert read.call_count == 1


def test_what_is_ingested_is_seen_by_another_reader(settings: Settings, now: datetime) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as writer:
        done = writer.ingest([samples(now)])
        assert (done.rows, done.added, done.duplicates, done.future) == (4, 4, 0, 0)
        again = writer.ingest([samples(now)])
        assert (again.rows, again.added, again.duplicates, again.future) == (4, 0, 4, 0)
    with Warehouse.open(settings) as reader:
        rows = reader.query("SELECT device, gpu_util_pct FROM sample ORDER BY device")
        assert rows.column("gpu_util_pct").to_pylist() == [None, 1.0, 2.0, 3.0]
        assert reader.query("FROM dirty").num_rows == 1


def test_upserts(settings: Settings, now: datetime) -> None:
    naive = now.replace(tzinfo=None)
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        one = Batch.of(
            "node",
            {
                "cluster": ["c"],
                "node": ["n"],
                "zone": ["z"],
                "first_seen": [naive],
                "last_seen": [naive],
            },
        )
        two = Batch.of(
            "node",
            {
                "cluster": ["c"],
                "node": ["n"],
                "region": ["r"],
                "first_seen": [naive + timedelta(1)],
                "last_seen": [naive + timedelta(1)],
            },
        )
        assert wh.ingest([one, two]).added == 1
        assert wh.ingest([one, two]).added == 0
        assert wh.query("SELECT zone, region FROM node").to_pylist() == [
            {"zone": "z", "region": "r"}
        ]
        wh.replace("finding", Batch.of("finding", {"id": ["x"]}).rows, "true")
        wh.replace("finding", Batch.of("finding", {"id": ["y"]}).rows, "id = $id", {"id": "x"})
        assert wh.query("select id from finding").to_pylist() == [{"id": "y"}]


def test_refuse(settings: Settings) -> None:
    with pytest.raises(WarehouseError, match="no warehouse"):
        Warehouse.open(settings)
    with Warehouse.open(settings, write=True) as wh, pytest.raises(UsageError):
        wh.query("DELETE FROM sample")


@pytest.mark.parametrize("makes", ["all", "those of a query"])
def test_views_that_another_reader_makes_meanwhile_are_seen(
    settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch, makes: str
) -> None:
    """Its transaction began before them: it begins anew instead of failing."""
    sample, scrapes = ViewSchemas._state, []

    def beside_another(
        self: ViewSchemas, cursor: duckdb.DuckDBPyConnection
    ) -> tuple[TierState, frozenset[str]]:
        state = sample(self, cursor)
        scrapes.append(state)
        if len(scrapes) == 1:
            if makes == "all":
                self.ready()
            else:
                warehouse.query("FROM node")
        return state

    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        monkeypatch.setattr(ViewSchemas, "_state", beside_another)
        assert warehouse.query("SELECT count(*) AS n FROM node")["n"].to_pylist() == [0]
    assert len(scrapes) > 2


def test_a_table_that_never_had_a_row_is_planned_without_it_until_it_has_one(
    settings: Settings, now: datetime
) -> None:
    plan = "EXPLAIN SELECT count(*) FROM sample"
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        bare = wh.query("FROM sample")
        assert bare.num_rows == 0
        wh._views.ready()
        with wh.snapshot() as cursor:
            wh._views.use(cursor)
            assert "EMPTY_RESULT" in str(cursor.execute(plan).fetchall())
        wh.ingest([samples(now)])
        full = wh.query("FROM sample")
        assert full.num_rows == 4
        assert full.schema == bare.schema
        wh.replace("sample", full.slice(0, 0))
        assert wh.query("FROM sample").num_rows == 0


def test_rows_that_the_catalog_keeps_itself_are_seen(settings: Settings, now: datetime) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        assert wh.query("FROM watermark").num_rows == 0
        with wh.transaction() as cursor:
            cursor.execute("INSERT INTO watermark VALUES ('a', TIMESTAMP '2026-11-20')")
        assert wh.query("FROM watermark").num_rows == 1
