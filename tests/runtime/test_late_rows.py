"""Rows that come late reach the ledger, however old they are and whatever died in between."""

from datetime import UTC, datetime, timedelta

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.ingestion.import_stores import OpenStore
from runtime.operations.ingestion.imports import Importer
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LAST = Window(NOW - timedelta(hours=2), NOW)


def looks(begin: datetime, minutes: int, util: float) -> Batch:
    naive = begin.replace(tzinfo=None)
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * minutes,
            "ts": [naive + timedelta(minutes=i) for i in range(minutes)],
            "device": ["GPU-1"] * minutes,
            "interval_s": [60.0] * minutes,
            "gpu_util_pct": [util] * minutes,
        },
    )


def posted(warehouse: Warehouse) -> dict[tuple[datetime, str], float]:
    rows = warehouse.query("SELECT bucket, state, sum(seconds) AS s FROM ledger GROUP BY ALL")
    return {(r["bucket"], r["state"]): round(r["s"]) for r in rows.to_pylist()}


def test_late_rows_are_posted_though_their_hour_is_long_over(settings: Settings) -> None:
    early = NOW - timedelta(days=10)
    hour = early.replace(tzinfo=None)
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
        pipeline.ingest(
            warehouse, [looks(early, 60, 90.0), looks(NOW - timedelta(hours=1), 60, 90.0)]
        )
        pipeline.account(warehouse, LAST)
        books = posted(warehouse)
        assert books[hour, "productive"] == 3600
        # Half an hour that nobody had looked at comes in a week later.
        gap = early + timedelta(hours=2)
        pipeline.ingest(warehouse, [looks(gap, 30, 90.0)])
        assert pipeline.account(warehouse, LAST)[1] == []
        late = posted(warehouse)
        assert late[gap.replace(tzinfo=None), "productive"] == pytest.approx(1800, abs=30)
        assert late.items() >= {k: v for k, v in books.items() if k[0] == hour}.items()


def test_a_death_between_rollup_and_ledger_leaves_the_hours_owed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = NOW - timedelta(days=3)

    def dies(*_: object) -> int:
        raise KeyboardInterrupt

    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
        pipeline.ingest(warehouse, [looks(early, 60, 90.0)])
        with monkeypatch.context() as patched:
            patched.setattr(pipeline, "write_ledger_stage", dies)
            with pytest.raises(KeyboardInterrupt):
                pipeline.account(warehouse, LAST)
        assert posted(warehouse) == {}
        pipeline.account(warehouse, LAST)
        assert posted(warehouse)[early.replace(tzinfo=None), "productive"] == 3600
        assert warehouse.query("FROM unposted").num_rows == 0


def test_an_inventory_that_comes_after_the_telemetry_names_the_owner(settings: Settings) -> None:
    hour = NOW - timedelta(hours=5)
    seen = looks(hour, 60, 90.0)
    named = {"namespace": ["team-a"] * 60, "pod": ["train-0"] * 60}
    rows = {**seen.rows.to_pydict(), **named}
    pods = Batch.of(
        "pod",
        {
            "cluster": ["test"],
            "uid": ["u1"],
            "namespace": ["team-a"],
            "pod": ["train-0"],
            "workload_kind": ["PyTorchJob"],
            "workload": ["train"],
            "phase": ["Running"],
            "started_at": [(hour - timedelta(hours=1)).replace(tzinfo=None)],
            "first_seen": [(hour - timedelta(hours=1)).replace(tzinfo=None)],
            "last_seen": [NOW.replace(tzinfo=None)],
        },
    )
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
        importer = Importer(settings, NOW)
        importer.import_into(OpenStore(warehouse), [Batch.of("sample", rows)])
        before = warehouse.query("SELECT DISTINCT workload_kind FROM ledger").to_pylist()
        importer.import_into(OpenStore(warehouse), [pods])
        after = warehouse.query(
            "SELECT workload_kind, workload, sum(gpu_seconds) AS s FROM ledger GROUP BY ALL"
        ).to_pylist()
    assert {"workload_kind": "PyTorchJob"} not in before
    assert {"workload_kind": "PyTorchJob", "workload": "train", "s": 3600.0} in after
