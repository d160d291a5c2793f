"""One bill, whoever says it: demo, spend, analyze, page figures, reports and FOCUS, to the cent."""

import csv
import io
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import spend as figures
from dashboards.figures.query import Filters
from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments.demo import END
from runtime.operations.accounting import ledger_totals
from runtime.rendering.tables import render
from tests.demo_homes import STORY, copy_demo
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
BY = ("state", "team", "workload", "node")


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def digits(text: str, name: str) -> int:
    """Return the most decimals of a field of a JSON text."""
    found = re.findall(rf'"{name}": -?[0-9.eE+-]+', text)
    assert found
    assert not [one for one in found if "e" in one.lower().partition(":")[2]]
    return max(len(one.partition(".")[2]) for one in found)


def test_every_surface_says_the_same_bill_to_the_cent_and_its_parts_sum_to_it(
    fallow: Fallow, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = copy_demo(tmp_path_factory, tmp_path / "home", days=1, gpus=24, seed=3)
    story = read((home / STORY).read_text())
    wanted = ("--home", home, "--window", "24h")
    window = Window.last(END - END.replace(day=END.day - 1), now=END)
    with Warehouse.open(Settings(home=home)) as warehouse:
        bill = figures.read_totals(warehouse, window, Filters()).usd
        sql = "SELECT sum(usd) AS usd FROM ledger WHERE bucket >= $since AND bucket < $until"
        [paid] = warehouse.query(sql, window.bounds())["usd"].to_pylist()
    assert bill == paid.quantize(Decimal("0.01"))
    assert bill != paid, "the bill has parts of a cent"
    assert story["usd"] == sum(s["usd"] for s in story["states"] if s["usd"]) == bill
    for by in BY:
        text = fallow("spend", *wanted, "--by", by, "-o", "json").out
        body = read(text)
        assert body["total"]["usd"] == sum(row["usd"] for row in body["spend"] if row["usd"])
        assert body["total"]["usd"] == bill
        assert digits(text, "usd") == digits(text, "idle_usd") == 2
        assert digits(text, "gpu_hours") <= 6
        listed = csv.DictReader(io.StringIO(fallow("spend", *wanted, "--by", by, "-o", "csv").out))
        assert sum(Decimal(row["usd"] or 0) for row in listed) == bill
    by_state = {
        row["state"]: row["usd"]
        for row in read(fallow("spend", *wanted, "--by", "state", "-o", "json").out)["spend"]
    }
    assert by_state == {s["state"]: s["usd"] for s in story["states"]}
    text = fallow("analyze", "idle", *wanted, "-o", "json").out
    fall = read(text)["waterfall"]
    assert fall["bill"]["usd"] == bill
    assert sum(s["marginal"]["usd"] or 0 for s in fall["steps"]) == fall["saved"]["usd"]
    assert sum(s["usd"] or 0 for s in fall["by_saving"].values()) == fall["saved"]["usd"]
    assert digits(text, "usd") == 2
    charges = fallow("report", "finance", *wanted, "-o", "focus").out
    costs = [Decimal(row["BilledCost"]) for row in csv.DictReader(io.StringIO(charges))]
    focus = sum(costs, Decimal())
    assert focus.quantize(Decimal("0.01")) == bill
    report = fallow("report", "finance", *wanted, "-o", "md").out
    assert f"${bill:,.2f}" in report


def test_money_and_hours_of_json_and_csv_have_no_noise() -> None:
    rows = [{"gpu_hours": 896.0000000000003, "usd": Decimal("0E-8"), "rate_usd_h": 2.123456789}]
    result = render(rows, "json", noun="spend")
    assert "896.0," in result
    assert '"usd": 0.00' in result
    assert "2.123457" in result
    assert render(rows, "csv", noun="spend").splitlines()[1] == "896.0,0.00,2.123457"
    assert "896.0000000000003" in render(rows, "json", noun="rows"), "a query's rows are kept"


def test_an_owner_of_advice_that_saves_more_than_it_paid_is_named() -> None:
    paid = {"team": "a", "usd": Decimal(5), "saves_usd": Decimal(5)}
    above = {"team": "(platform)", "usd": Decimal(5), "saves_usd": Decimal("5.01")}
    unknown = {"team": "b", "usd": None, "saves_usd": None}
    assert not ledger_totals._write_owner_notes([paid, unknown], ["team"])
    (note,) = ledger_totals._write_owner_notes([paid, above, unknown], ["team"])
    assert note.startswith("(platform) saves more than it paid")
