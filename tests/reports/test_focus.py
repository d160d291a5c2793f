"""FOCUS files keep the specification's rules, and their dollars are the ledger's."""

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as told
from hypothesis import strategies as st
from pyarrow import parquet

from dashboards.figures import chargeback, spend
from dashboards.figures.query import Filters
from dashboards.reports import focus
from fallow.money import sum_known
from fallow.window import Window
from tests.reports.small import END, WINDOW
from warehouse.lake import Warehouse

RULES = [
    *csv.DictReader(Path(__file__).with_name("focus_rules.csv").read_text("utf-8").splitlines())
]
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


def _charges(views: Warehouse, version: str, window: Window = WINDOW) -> pa.Table:
    return focus.read_rows(views, window, Filters(), version).rows


def _cells(table: pa.Table) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(focus.encode_csv(table).decode()))]


@pytest.mark.parametrize("version", focus.VERSIONS)
def test_every_column_keeps_its_rules(views: Warehouse, version: str) -> None:
    table = _charges(views, version)
    rows, engine = _cells(table), duckdb.connect()
    engine.register("charges", table)
    broken = [
        f"{rule['column']}: {said}"
        for rule in RULES
        if version in rule["versions"].split()
        for said in _list_broken(rule, table, rows, engine)
    ]
    assert not broken


def _list_broken(
    rule: dict[str, str],
    table: pa.Table,
    rows: list[dict[str, str]],
    engine: duckdb.DuckDBPyConnection,
) -> Iterator[str]:
    """Yield what a column of FOCUS does not keep of its rules."""
    if rule["column"] not in table.column_names:
        yield "is not there"
        return
    cells = [row[rule["column"]] for row in rows]
    if rule["nulls"] == "no" and not (
        table[rule["column"]].null_count == 0 and all(cell.strip() for cell in cells)
    ):
        yield "has nulls"
    wrong = [cell for cell in cells if cell and not _is_of_type(cell, rule["type"])]
    if wrong:
        yield f"is no {rule['type']}: {wrong[0]}"
    if rule["allowed"] and (other := {*filter(None, cells)} - {*rule["allowed"].split("|")}):
        yield f"may not be {other}"
    if rule["rule"]:
        count = f"FROM charges SELECT count(*) WHERE NOT ({rule['rule']})"
        if engine.sql(count).fetchall() != [(0,)]:
            yield f"breaks {rule['rule']}"


def _is_of_type(cell: str, kind: str) -> bool:
    match kind:
        case "decimal":
            return bool(NUMBER.fullmatch(cell))
        case "moment":
            return bool(MOMENT.fullmatch(cell))
        case "json":
            return not any(isinstance(value, (dict, list)) for value in json.loads(cell).values())
    return True


@pytest.mark.parametrize("version", focus.VERSIONS)
def test_columns_are_the_specifications_first_and_ours_marked(version: str) -> None:
    names = [*focus.list_columns(version)]
    ours = [name.startswith("x_") for name in names]
    assert ours == sorted(ours)
    specified = {rule["column"] for rule in RULES if version in rule["versions"].split()}
    named = {name for name in names if not name.startswith("x_")}
    wanted = {name for name, source in focus.list_columns(version).items() if name != source}
    discounts = {name for name in named if name.startswith("CommitmentDiscount")}
    assert named - wanted - discounts == specified
    assert bool(wanted) == bool(discounts) == (version == "1.0")


@given(hours=st.integers(1, 72), ago=st.integers(0, 71), team=st.sampled_from(["vision", None]))
@told(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_charges_sum_to_the_ledger(
    views: Warehouse, hours: int, ago: int, team: str | None
) -> None:
    end = END - timedelta(hours=ago)
    window, mine = Window(end - timedelta(hours=hours), end), Filters(team=team)
    rows = focus.read_rows(views, window, mine, "1.2").rows.to_pylist()
    by_cluster = spend.read_by(views, window, mine, "cluster")["usd"].to_pylist()
    bill = sum_known(by_cluster) or Decimal()
    assert sum(r["BilledCost"] for r in rows) == sum(r["EffectiveCost"] for r in rows) == bill
    assert sum(r["x_GpuCost"] + r["x_NodeCost"] for r in rows) == bill


def test_teams_charges_are_their_statements_and_nobodys_are_overhead(views: Warehouse) -> None:
    rows = _charges(views, "1.2").to_pylist()
    lines = chargeback.read_teams(views, WINDOW, Filters()).to_pylist()
    for line in lines:
        unallocated = line["team"] == "(platform)"
        mine = [r for r in rows if r["SubAccountId"] == (None if unallocated else line["team"])]
        assert sum(r["EffectiveCost"] for r in mine) == line["usd_loaded"]
        assert {r["x_CostKind"] == "overhead" for r in mine} == {unallocated}
    idle = [r for r in rows if r["x_GpuState"] == "idle"]
    assert idle
    assert {r["x_CostKind"] for r in idle} == {"idle"}


def test_allocated_ratios_of_a_nodes_day_sum_to_one(views: Warehouse) -> None:
    sums: dict[tuple[str, str], float] = {}
    for row in _charges(views, "1.2").to_pylist():
        details = json.loads(row["x_AllocatedMethodDetails"])
        key = (row["ResourceId"], row["ChargePeriodStart"])
        sums[key] = sums.get(key, 0.0) + details["AllocatedRatio"]
    assert len(sums) == 12
    assert [*sums.values()] == pytest.approx([1.0] * 12)


def test_prices_of_terms_are_their_pricing_categories(views: Warehouse) -> None:
    rows = _charges(views, "1.2").to_pylist()
    told_of = {r["ResourceName"]: (r["PricingCategory"], r["ProviderName"]) for r in rows}
    assert told_of == {
        "a-0": ("Standard", "Amazon Web Services"),
        "a-1": ("Dynamic", "Amazon Web Services"),
        "g-0": ("Committed", "Google Cloud"),
        "cellar-0": ("Other", "Self-hosted"),
    }


def test_hours_without_a_price_are_no_charge_and_are_told(views: Warehouse) -> None:
    made = focus.read_rows(views, WINDOW, Filters(), "1.2")
    assert "3.0 GPU-hours have no price" in made.summary
    assert made.rows["EffectiveCost"].null_count == 0


def test_parquet_holds_the_same_rows_with_decimals(views: Warehouse) -> None:
    made = _charges(views, "1.2")
    read = parquet.read_table(io.BytesIO(focus.encode_parquet(made)))
    assert read.equals(made)
    kind: Any = read.schema.field("BilledCost").type
    assert pa.types.is_decimal(kind)
