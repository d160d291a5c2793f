"""A cluster's bill has the same cents alone, among others, in every list and in every report."""

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.money import round_to_cents
from runtime.cli import run
from runtime.operations.accounting.ledger_totals import USD_COLUMNS, round_usd
from tests.reports import small

Fallow = Callable[..., Any]
CELLS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(("idle", "low")),
        st.none() | st.decimals(0, 1000, places=8),
    ),
    min_size=1,
    max_size=20,
)  # fmt: skip
KEYS = ("cluster", "team", "state")
Cell = tuple[str, str, str, Decimal | None]


def add_up(cells: list[Cell], *by: str) -> list[dict[str, Any]]:
    """Return rows as `fallow spend` reads them, before their dollars are rounded."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for *names, usd in cells:
        named = dict(zip(KEYS, names, strict=True))
        key = tuple(str(named[name]) for name in by)
        row = rows.setdefault(key, dict(zip(by, key, strict=True)) | dict.fromkeys(USD_COLUMNS))
        if usd is not None:
            idle = usd if named["state"] == "idle" else Decimal()
            for name, part in zip(USD_COLUMNS, (usd, idle, idle / 2), strict=True):
                row[name] = (row[name] or Decimal()) + part
    return list(rows.values())


def read(cells: list[Cell], *by: str) -> list[dict[str, Any]]:
    rows = add_up(cells, *by)
    round_usd(rows, add_up(cells, "cluster"))
    return rows


def total(rows: list[dict[str, Any]], name: str, **only: str) -> Decimal:
    same = [row for row in rows if all(row[key] == value for key, value in only.items())]
    return sum((row[name] for row in same if row[name] is not None), Decimal())


@given(CELLS)
def test_every_list_has_the_same_total_and_a_cluster_the_same_as_alone(cells: list[Cell]) -> None:
    lists = [("cluster",), ("team",), ("state",), ("cluster", "team"), ("team", "state"), KEYS]
    shown = {by: read(cells, *by) for by in lists}
    for cluster in {cell[0] for cell in cells}:
        alone = [cell for cell in cells if cell[0] == cluster]
        for by, rows in shown.items():
            for name in USD_COLUMNS:
                assert total(rows, name) == total(shown["cluster",], name), (by, name)
                if "cluster" in by:
                    bill = total(add_up(alone, "cluster"), name)
                    own = total(rows, name, cluster=cluster)
                    assert own == round_to_cents(bill) == total(read(alone, "team"), name)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Return a home whose three clusters cost 1001.004, 1002.004 and 1003.004 dollars.

    Each ends in 0.4 of a cent, 1.2 cents together: rounded once, the fleet would cost $3006.01,
    and its clusters $1001.00, $1002.00 and $1003.00.
    """
    tables = small.rows()
    hour = next(row for row in tables["ledger"] if row["state"] == "productive")
    usd = [1000 + n + Decimal("0.004") for n in (1, 2, 3)]
    tables["ledger"] = [
        hour | {"cluster": cluster, "usd": paid, "usd_gpu": paid / 2}
        for cluster, paid in zip(("alpha", "beta", "gamma"), usd, strict=True)
    ]
    for table in ("node", "device"):
        first = tables[table][0]
        tables[table] = [first | {"cluster": cluster} for cluster in ("alpha", "beta", "gamma")]
    tables["finding"] = []
    small.fill(tmp_path / "home", {name: rows for name, rows in tables.items() if rows})
    return tmp_path / "home"


def test_the_bill_of_three_clusters_is_that_of_each_in_every_list_and_report(
    three: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = f"{small.END - timedelta(days=3):%Y-%m-%d}/{small.END:%Y-%m-%d}"

    def call(*words: str) -> str:
        assert run([*words, "--window", days, "--home", str(three)]) == 0
        return capsys.readouterr().out

    shown = {
        by: json.loads(call("spend", "--by", by, "-o", "json"), parse_float=Decimal)
        for by in ("cluster", "team", "state", "workload")
    }
    assert {row["cluster"]: row["usd"] for row in shown["cluster"]["spend"]} == {
        "alpha": Decimal("1001.00"), "beta": Decimal("1002.00"), "gamma": Decimal("1003.00"),
    }  # fmt: skip
    assert {by: body["total"]["usd"] for by, body in shown.items()} == dict.fromkeys(
        shown, Decimal("3006.00")
    )
    listed = list(csv.DictReader(io.StringIO(call("spend", "--by", "cluster", "-o", "csv"))))
    assert sum(Decimal(row["usd"]) for row in listed) == Decimal("3006.00")
    analysis = json.loads(call("analyze", "idle", "-o", "json"), parse_float=Decimal)
    assert analysis["waterfall"]["bill"]["usd"] == Decimal("3006.00")
    report = call("report", "finance", "-o", "md")
    totals = [line for line in report.splitlines() if line.startswith("| all")]
    amounts = [usd for line in totals for usd in re.findall(r"\$(3,006\.\d\d)", line)]
    assert amounts == 3 * ["3,006.00"], "what was paid, waste by owner, chargeback"
