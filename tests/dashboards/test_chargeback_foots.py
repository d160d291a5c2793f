"""A chargeback statement adds up to the cent: each row, each column, and beside `fallow spend`."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from dashboards.figures import chargeback
from fallow import money
from runtime.operations.accounting import ledger_totals
from tests.dashboards.test_figures import ALL, END, WINDOW
from warehouse.lake import Warehouse

USD = st.decimals(0, 1000, places=8) | st.just(Decimal())
ROWS = st.lists(st.tuples(USD, USD, USD), min_size=1, max_size=12)


def test_own_gpus_node_part_and_share_are_the_fully_loaded_dollars(views: Warehouse) -> None:
    rows = chargeback.read_statement(views, WINDOW, ALL).to_pylist()
    for row in rows:
        parts = [row[name].quantize(money.CENT) for name in chargeback.PARTS]
        assert sum(parts) == row["total_usd"].quantize(money.CENT), row["team"]
        assert parts == [row[name] for name in chargeback.PARTS], "they are cents"
    assert sum(row["shared_usd"] for row in rows) == 0
    spend = ledger_totals.read_total_spend(
        views, f"{WINDOW.start:%FT%TZ}/{WINDOW.end:%FT%TZ}", now=END, cluster=None, by=["team"],
        view="loaded", share_unallocated=True,
    )  # fmt: skip
    assert {row["team"]: (row["usd"], row["idle_usd"]) for row in spend.rows} == {
        row["team"]: (row["total_usd"], row["idle_usd"]) for row in rows
    }


@given(ROWS)
def test_rows_and_columns_of_cents_foot(rows: list[tuple[Decimal, ...]]) -> None:
    wholes = [usd or Decimal() for usd in money.apportion([sum(row, Decimal()) for row in rows])]
    cents = money.round_parts(rows, wholes)
    for row, whole, exact in zip(cents, wholes, rows, strict=True):
        assert sum(usd or Decimal() for usd in row) == whole
        for usd, was in zip(row, exact, strict=True):
            assert usd is not None
            assert abs(usd - was) <= 2 * money.CENT
            assert usd == 0 or was
    for exact_column, column in zip(zip(*rows, strict=True), zip(*cents, strict=True), strict=True):
        off = sum(usd or Decimal() for usd in column) - sum(exact_column)
        assert abs(off) < 2 * money.CENT
