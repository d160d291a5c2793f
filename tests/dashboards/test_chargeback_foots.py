"""A chargeback statement adds up to the cent: each row, each column, and beside `fallow spend`."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.figures import chargeback, spend
from dashboards.figures.query import Filters
from fallow import money
from runtime.operations.accounting import ledger_totals
from tests.dashboards.test_figures import ALL, END, WINDOW
from warehouse import coverage
from warehouse.lake import Warehouse

USD = st.decimals(0, 1000, places=8) | st.just(Decimal())
ROWS = st.lists(st.tuples(USD, USD), min_size=1, max_size=12)


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
def test_shares_are_cents_that_sum_to_nothing(rows: list[tuple[Decimal, Decimal]]) -> None:
    own = [Decimal(7), *(usd for usd, _ in rows)]
    shares = [Decimal(), *(share for _, share in rows)]
    shares[0] = -sum(shares, Decimal())
    own[0] = -shares[0]
    cents = money.apportion(own)
    moved = money.round_shares(own, shares, cents)
    assert sum(usd or Decimal() for usd in moved) == 0
    assert moved[0] == -(cents[0] or Decimal()), "the platform passes on every cent"
    for usd, was in zip(moved, shares, strict=True):
        assert usd is not None
        assert abs(usd - was) <= 2 * money.CENT
        assert usd == 0 or was


@pytest.mark.parametrize("text", ["7d", "month"])
def test_a_team_has_the_same_cents_in_every_statement(views: Warehouse, text: str) -> None:
    window = coverage.parse_window(text, END, END)
    rows = {row["team"]: row for row in chargeback.read_statement(views, window, ALL).to_pylist()}
    assert len(rows) > 5
    ways = {
        ("loaded", False): "usd_loaded", ("loaded", True): "total_usd",
        ("gpu", False): "usd_gpu", ("gpu", True): "total_usd_gpu",
    }  # fmt: skip
    for (view, shared), column in ways.items():
        table = ledger_totals.read_total_spend(
            views, f"{window.start:%FT%TZ}/{window.end:%FT%TZ}", now=END, cluster=None,
            by=["team"], view=view, share_unallocated=shared,
        )  # fmt: skip
        for row in table.rows:
            mine = rows[row["team"]]
            if view == "loaded" or mine["usd_node"]:  # without a node part a GPU has all the cents
                assert row["usd"] == mine[column], (row["team"], column)
    months = spend.read_team_months(views, END, dict.fromkeys(rows, Decimal(1)))
    for team, row in rows.items():
        totals = spend.read_totals(views, window, Filters(team=team))
        assert (totals.usd, totals.idle_usd) == (row["usd_loaded"], row["idle_usd"])
        assert totals.usd == sum(usd or Decimal() for usd in totals.state_usd.values())
        if text == "month":
            assert months[team].usd == row["usd_loaded"]
            assert spend.read_month(views, END, Filters(team=team)).usd == row["usd_loaded"]
