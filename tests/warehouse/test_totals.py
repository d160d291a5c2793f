"""The ledger's totals per hour and day follow its rows, whoever writes them in whatever order."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from fallow.settings import Settings
from fallow.tables import Batch
from warehouse import audits, totals
from warehouse.lake import Warehouse
from warehouse.steps import load_step

START = datetime(2026, 11, 20, 22)  # noqa: DTZ001  (tables hold naive UTC)
HOUR = timedelta(hours=1)
HOURS = 6
ROW = st.fixed_dictionaries(
    {
        "hour": st.integers(0, HOURS - 1),
        "device": st.sampled_from(["a", "b"]),
        "state": st.sampled_from(["idle", "productive"]),
        "namespace": st.sampled_from(["", "red", "blue"]),
        "team": st.sampled_from([None, "x"]),
        "gpu_seconds": st.sampled_from([3600.0, 0.1, 1234.56789]),
        "usd": st.none() | st.decimals("0.00000001", "9.99999999", places=8),
        "effective": st.none() | st.sampled_from([0.0, 0.25, 1.0]),
    }
)
WRITES = st.lists(
    st.tuples(st.integers(0, HOURS - 1), st.integers(1, HOURS), st.lists(ROW, max_size=6)),
    min_size=1,
    max_size=4,
)


def ledger_batch(rows: list[dict[str, Any]]) -> Batch:
    columns = [
        {
            **{name: value for name, value in row.items() if name != "hour"},
            "cluster": "c",
            "bucket": START + row["hour"] * HOUR,
            "workload_kind": "Job" if row["namespace"] else "",
            "workload": "train" if row["namespace"] else "",
            "usd_gpu": row["usd"],
            "priced": row["usd"] is not None,
            "price_as_of": START if row["usd"] is not None else None,
        }
        for row in rows
    ]
    names = {name for row in columns for name in row}
    return Batch.of("ledger", {name: [row[name] for row in columns] for name in names})


def write_hours(warehouse: Warehouse, start: int, length: int, rows: list[dict[str, Any]]) -> None:
    """Replace the ledger's rows of some hours."""
    span = {"since": START + start * HOUR, "until": START + (start + length) * HOUR}
    rows = [row for row in rows if start <= row["hour"] < start + length]
    where = "bucket >= $since AND bucket < $until"
    warehouse.replace("ledger", ledger_batch(rows).rows, where, span)


def read_totals(warehouse: Warehouse, table: str) -> list[tuple[Any, ...]]:
    return sort_rows(warehouse.query(f"FROM {table}").to_pylist())


def sum_ledger(warehouse: Warehouse, table: str) -> list[tuple[Any, ...]]:
    """Run the definition of a table of totals over the whole ledger."""
    ever = {"since": START - timedelta(days=2), "until": START + timedelta(days=9)}
    return sort_rows(warehouse.query(load_step(f"totals/{table}"), ever).to_pylist())


def sort_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows in an order of their own; sums of floats depend on theirs in the last digit."""
    plain = [
        tuple(round(v, 6) if isinstance(v, float) else v for _, v in sorted(row.items()))
        for row in rows
    ]
    return sorted(plain, key=repr)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Return a warehouse that all examples write."""
    settings = Settings(home=tmp_path_factory.mktemp("totals") / "home")
    with Warehouse.open(settings, write=True) as opened:
        yield opened


@tries(max_examples=12, deadline=None)
@given(writes=WRITES)
def test_hours_that_are_written_again_in_any_order_leave_the_totals_equal_to_the_ledger(
    warehouse: Warehouse, writes: list[tuple[int, int, list[dict[str, Any]]]]
) -> None:
    for start, length, rows in writes:
        write_hours(warehouse, start, length, rows)
    for table in totals.PERIODS:
        assert read_totals(warehouse, table) == sum_ledger(warehouse, table)
    assert "ledger_totals" not in {f.audit for f in audits.run_audits(warehouse)}


def test_derived_rows_of_the_ledger_have_totals_too(warehouse: Warehouse) -> None:
    row = {"hour": 1, "device": "a", "state": "idle", "namespace": "red", "team": "x"}
    row |= {"gpu_seconds": 3600.0, "usd": Decimal(1), "effective": 0.5}
    write_hours(warehouse, 0, HOURS, [row, row | {"hour": 3}])
    later = (
        "SELECT cluster, 'a' AS device, bucket + INTERVAL 1 HOUR AS bucket, state, namespace, "
        "'Job' AS workload_kind, 'train' AS workload, gpu_seconds, usd * 2 AS usd FROM ledger_1h"
    )
    warehouse.derive("ledger", later, "true", {})
    assert len(read_totals(warehouse, "ledger_1h")) == 2
    assert len(read_totals(warehouse, "ledger_1d")) == 1, "both hours are of the 21st now"
    for table in totals.PERIODS:
        assert read_totals(warehouse, table) == sum_ledger(warehouse, table)


def test_a_home_without_totals_gets_them_when_it_is_upgraded(settings: Settings) -> None:
    row = {"hour": 1, "device": "a", "state": "idle", "namespace": "red", "team": "x"}
    row |= {"gpu_seconds": 3600.0, "usd": Decimal(1), "effective": 0.5}
    with Warehouse.open(settings, write=True) as warehouse:
        write_hours(warehouse, 0, HOURS, [row, row | {"hour": 3}])
        with warehouse.transaction() as cursor:
            for table in totals.PERIODS:
                cursor.execute(f'DROP TABLE "{table}"')
    steps = Warehouse.list_upgrade_steps(settings)
    assert {(step.kind, step.name) for step in steps} == {("table", t) for t in totals.PERIODS}
    with Warehouse.open(settings, write=True) as warehouse:
        for table in totals.PERIODS:
            assert read_totals(warehouse, table)
            assert read_totals(warehouse, table) == sum_ledger(warehouse, table)
