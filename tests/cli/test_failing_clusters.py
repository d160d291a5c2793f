"""Rows of one cluster that make the accounting of an hour fail cost that cluster this hour."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fallow.errors import WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse import dirty
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]

START = datetime(2026, 11, 20, 8)  # noqa: DTZ001  (tables hold naive UTC)
END = START + timedelta(hours=4)
WINDOW = Window(START.replace(tzinfo=UTC), END.replace(tzinfo=UTC))
FAILING = START + timedelta(hours=2)
CLUSTERS = ("alpha", "beta", "gamma")
_HUGE = "UPDATE rollup_5m SET conflict_s = 1e30 WHERE cluster = 'beta'"
_ENDLESS = """
    INSERT INTO rollup_5m
    SELECT * REPLACE ('other' AS pod, 'infinity' AS covered_s)
    FROM rollup_5m
    WHERE device = 'GPU-beta-1'
"""
_POISONS = {
    "ledger": (_HUGE, "UPDATE rollup_5m SET conflict_s = 0"),
    "allocation": (_ENDLESS, "DELETE FROM rollup_5m WHERE pod = 'other'"),
}


def read_settings(home: Path) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "alpha"}).settings


def build_batches() -> list[Batch]:
    """Return four hours of two GPUs on a node of each cluster; one of each has a pod."""
    minutes = [START + timedelta(minutes=k) for k in range(240)]
    batches = []
    for number, cluster in enumerate(CLUSTERS):
        rows = [(ts, gpu) for ts in minutes for gpu in range(2)]
        batches.append(
            Batch.of(
                "sample",
                {
                    "cluster": [cluster] * len(rows),
                    "ts": [ts for ts, _ in rows],
                    "device": [f"GPU-{cluster}-{gpu}" for _, gpu in rows],
                    "node": [f"node-{cluster}"] * len(rows),
                    "model": ["NVIDIA H100 80GB HBM3"] * len(rows),
                    "interval_s": [60.0] * len(rows),
                    "namespace": ["ns" if gpu else "" for _, gpu in rows],
                    "pod": [f"pod-{cluster}" if gpu else "" for _, gpu in rows],
                    "gpu_util_pct": [90.0 if ts.hour % 2 == number % 2 else 0.0 for ts, _ in rows],
                    # the idle band is learned from all clusters: each has its own idle power
                    "power_w": [
                        300.0 if ts.hour % 2 == number % 2 else 100.0 + 3 * number for ts, _ in rows
                    ],
                    "mem_used_bytes": [10**10] * len(rows),
                },
            )
        )
    node = {
        "cluster": [*CLUSTERS],
        "node": [f"node-{cluster}" for cluster in CLUSTERS],
        "first_seen": [START] * 3,
        "last_seen": [END] * 3,
        "provider": ["aws"] * 3,
        "region": ["r"] * 3,
        "instance_type": ["p5"] * 3,
        "capacity_type": ["on-demand"] * 3,
        "gpu_count": [2] * 3,
    }  # fmt: skip
    return [*batches, Batch.of("node", node), *build_rates()]


def build_rates() -> list[Batch]:
    """Return the price of a node, and a commitment for two of the three nodes."""
    names = ("source", "term", "node_usd_h", "nodes")
    rows = (("market", "on-demand", "6", None), ("commitment c", "reserved", "3", 2))
    data = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    fixed = {"provider": "aws", "region": "", "zone": "", "instance_type": "p5", "gpu_model": ""}
    return [
        Batch.of(
            "rate",
            {
                **data,
                **{name: [value] * 2 for name, value in fixed.items()},
                "cluster": [""] * 2,
                "valid_from": [datetime(2020, 1, 1)] * 2,  # noqa: DTZ001
                "gpu_count": [2] * 2,
                "node_usd_h": [Decimal(row[2]) for row in rows],
                "gpu_usd_h": [Decimal(row[2]) / 2 for row in rows],
            },
        )
    ]


def open_home(home: Path) -> Warehouse:
    return Warehouse.open(read_settings(home), write=True, clock=lambda: WINDOW.end)


def change(warehouse: Warehouse, *statements: str) -> None:
    """Change rows, and mark all hours."""
    with warehouse.transaction() as cursor:
        for statement in statements:
            cursor.execute(statement)
        dirty.mark_all_hours(cursor)


def read_ledger(warehouse: Warehouse, where: str = "true") -> pa.Table:
    return warehouse.query(f"SELECT * FROM ledger WHERE {where} ORDER BY ALL")


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose hours are all accounted; tests change copies of it."""
    home = tmp_path_factory.mktemp("clusters") / "home"
    with open_home(home) as warehouse:
        warehouse.ingest(build_batches())
        assert pipeline.account(warehouse, WINDOW)[1] == []
    return home


@pytest.mark.parametrize(("poison", "cure"), _POISONS.values(), ids=_POISONS)
def test_a_cluster_with_rows_that_fail_is_left_out_until_they_can_be_read(
    fallow: Fallow, accounted: Path, tmp_path: Path, poison: str, cure: str
) -> None:
    home = shutil.copytree(accounted, tmp_path / "home")
    others = "cluster <> 'beta'"
    with open_home(home) as warehouse:
        whole, expected = read_ledger(warehouse), read_ledger(warehouse, others)
        change(warehouse, f"{poison} AND bucket = '{FAILING}'", "UPDATE ledger SET state = 'old'")
        assert pipeline.account(warehouse, WINDOW)[1] == []
        assert read_ledger(warehouse, others).equals(expected)
        old = warehouse.query("SELECT DISTINCT cluster, bucket FROM ledger WHERE state = 'old'")
        assert old.to_pylist() == [{"cluster": "beta", "bucket": FAILING}]
    ran = fallow("warehouse", "verify", "--home", home, "-o", "json")
    checks = {row["check"]: row for row in json.loads(ran.out)["checks"]}
    assert (
        "1 hour not accounted yet: 2026-11-20 10:00 to 2026-11-20 11:00 of beta"
        in (checks["hours"]["detail"])
    )
    assert checks["audit ledger_capacity"]["status"] == "ok"
    ran = fallow("doctor", "--home", home, "-o", "json")
    finding = next(
        row for row in json.loads(ran.out)["checks"] if row["check"] == "rejected ledger"
    )
    assert "beta/2026-11-20 10:00" in finding["finding"]
    with open_home(home) as warehouse:
        change(warehouse, cure)
        pipeline.account(warehouse, WINDOW)
        assert warehouse.query("FROM unposted").num_rows == 0
        assert read_ledger(warehouse).equals(whole)
    ran = fallow("doctor", "--home", home, "-o", "json")
    assert "rejected ledger" not in {row["check"] for row in json.loads(ran.out)["checks"]}


def test_an_hour_that_is_accounted_cluster_by_cluster_has_the_same_rows(
    accounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shutil.copytree(accounted, tmp_path / "home")
    starts = list[datetime]()

    def fail_together(step: Callable[..., Any], seen: Warehouse, part: Window) -> None:
        failing = FAILING.replace(tzinfo=UTC)
        if seen is seen.whole and part.start <= failing < part.end:
            raise WarehouseError("a row cannot be read")
        starts.append(part.start)
        step(seen, part)

    for stage in ("write_allocations", "write_ledger_stage"):
        step = partial(fail_together, getattr(pipeline, stage))
        monkeypatch.setattr(pipeline, stage, step)
    with open_home(home) as warehouse:
        expected = read_ledger(warehouse)
        # Two of three nodes are paid by the commitment: (2 x 1.50 + 3.00) / 3 per GPU-hour.
        assert float(sum(expected["usd"].to_pylist())) == pytest.approx(6 * 4 * 2, abs=0.01)
        signals = f"SELECT * FROM signal WHERE bucket < '{END}' ORDER BY ALL"
        before = warehouse.query(signals)
        with warehouse.transaction() as cursor:
            for table in ("ledger", "signal", "allocation"):
                cursor.execute(f"DELETE FROM {table}")
            dirty.mark_hours(cursor, START, END)
        assert pipeline.account(warehouse, WINDOW)[1] == []
        assert len(starts) == 2 * (len(CLUSTERS) + 2)
        assert read_ledger(warehouse).equals(expected)
        assert warehouse.query(signals).equals(before)
        assert warehouse.query("FROM unposted").num_rows == 0
        passed = warehouse.query("FROM audit WHERE period = '1h' AND failed = ''")
        assert {START + timedelta(hours=k) for k in range(4)} <= {*passed["bucket"].to_pylist()}


def test_samples_that_cannot_be_rolled_up_cost_their_cluster_alone(
    fallow: Fallow, accounted: Path, tmp_path: Path
) -> None:
    home = shutil.copytree(accounted, tmp_path / "home")
    with open_home(home) as warehouse:
        expected = read_ledger(warehouse)
        hour = f"ts >= '{FAILING}' AND ts < '{FAILING + timedelta(hours=1)}'"
        change(
            warehouse,
            f"UPDATE sample SET interval_s = 'nan' WHERE \"cluster\" = 'beta' AND ts = '{FAILING}'",
            'INSERT INTO dirty BY NAME SELECT DISTINCT "cluster",'
            f" time_bucket(INTERVAL 5 MINUTE, ts) AS bucket FROM sample WHERE {hour}",
            "UPDATE ledger SET state = 'old'",
        )
        assert pipeline.account(warehouse, WINDOW)[1] == []
        assert read_ledger(warehouse).equals(expected)
        waiting = warehouse.query("SELECT DISTINCT cluster, date_trunc('hour', bucket) FROM dirty")
        assert [[*row.values()] for row in waiting.to_pylist()] == [["beta", FAILING]]
    ran = fallow("warehouse", "query", "SELECT kind, namespace, name FROM rejection", "-o", "json",
                 "--home", home)  # fmt: skip
    assert json.loads(ran.out)["rows"] == [
        {"kind": "rollup_5m", "namespace": "beta", "name": "2026-11-20 10:00"}
    ]


def test_a_damaged_file_of_a_cluster_costs_that_cluster_alone(
    accounted: Path, tmp_path: Path
) -> None:
    home = shutil.copytree(accounted, tmp_path / "home")
    others = "cluster <> 'beta'"
    with open_home(home) as warehouse:
        expected = read_ledger(warehouse, others)
        change(warehouse, "UPDATE ledger SET state = 'old'")
    for path in (home / "data" / "main" / "rollup_5m").rglob("*.parquet"):
        if pq.read_table(path)["cluster"].unique().to_pylist() == ["beta"]:
            data = path.read_bytes()
            path.write_bytes(data[:50] + bytes(len(data) - 450) + data[-400:])
    with open_home(home) as warehouse:
        assert pipeline.account(warehouse, WINDOW)[1] == []
        assert read_ledger(warehouse, others).equals(expected)
        marked = warehouse.query("SELECT cluster FROM unposted")["cluster"].to_pylist()
        assert marked == ["beta"] * 4


def test_an_impossible_count_of_a_node_costs_its_cluster_alone(
    accounted: Path, tmp_path: Path
) -> None:
    start = FAILING.replace(tzinfo=UTC)
    hour = Window(start, start + timedelta(hours=1))

    def account(warehouse: Warehouse, gpus: int) -> list[str]:
        with warehouse.transaction() as cursor:
            cursor.execute(f"UPDATE era SET gpu_count = {gpus} WHERE \"cluster\" = 'beta'")
            dirty.mark_hours(cursor, FAILING, FAILING + timedelta(hours=1))
        assert pipeline.account(warehouse, hour)[1] == []
        marked: list[str] = warehouse.query("SELECT cluster FROM unposted")["cluster"].to_pylist()
        return marked

    with open_home(shutil.copytree(accounted, tmp_path / "home")) as warehouse:
        expected = read_ledger(warehouse)
        assert account(warehouse, 2**31 - 1) == ["beta"]
        assert read_ledger(warehouse).equals(expected)
        assert account(warehouse, 2) == []
        assert read_ledger(warehouse).equals(expected)
