"""`fallow chargeback`, `budget` and `forecast`: the figures of `fallow spend` and of the pages."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures.anomalies import TeamBudget
from tests.demo_homes import copy_demo

Fallow = Callable[..., Any]


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bills")
    return copy_demo(tmp_path_factory, root / "home", days=1, gpus=24, seed=3)


def test_a_statement_foots_row_by_row_and_sums_to_the_bill(home: Path, fallow: Fallow) -> None:
    wanted = ("--home", home, "--window", "24h", "-o", "json")
    rows = read(fallow("chargeback", *wanted).out)["chargeback"]
    bill = read(fallow("spend", *wanted).out)["total"]["usd"]
    for row in rows:
        assert row["usd_gpu"] + row["usd_node"] == row["usd_loaded"]
        assert row["usd_loaded"] + row["shared_usd"] == row["total_usd"]
    assert sum(row["total_usd"] for row in rows) == bill
    printed = fallow("chargeback", "--home", home, "--window", "24h").out.splitlines()
    assert printed[-1].split()[0] == "total"


def test_budgets_stand_beside_what_the_forecast_says(home: Path, fallow: Fallow) -> None:
    written = read(fallow("budget", "--home", home, "-o", "json").out)["budgets"]
    whole, *teams = written
    assert (whole["team"], whole["budget"]) == ("(all)", Decimal(550_000))
    assert {row["stands"] for row in teams} <= {"over", "unknown", "within", "may be over"}
    team = teams[0]["team"]
    of_team = read(fallow("forecast", "--home", home, "--team", team, "-o", "json").out)
    of_all = read(fallow("forecast", "--home", home, "-o", "json").out)
    assert of_team["forecasts"][0]["usd"] == teams[0]["usd"]
    assert of_all["forecasts"][0]["usd"] == whole["usd"]


def test_a_month_of_which_most_hours_are_missing_is_at_least_its_dollars(
    home: Path, fallow: Fallow
) -> None:
    said = fallow("forecast", "--home", home)
    row = read(fallow("forecast", "--home", home, "-o", "json").out)["forecasts"][0]
    assert (row["at_least"], row["high"], row["low"]) == (True, None, row["forecast"])
    assert "at least $" in said.err
    of_one = read(fallow("forecast", "--home", home, "--cluster", "demo", "-o", "json").out)
    assert of_one["forecasts"][0]["budget"] is None, "the budget is of all clusters"
    assert "hours of the month lack data of a cluster" in said.err


def test_a_forecast_of_a_team_that_held_no_gpu_is_refused_with_the_teams(
    home: Path, fallow: Fallow
) -> None:
    said = fallow("forecast", "--home", home, "--team", "no-such-team")
    assert said.code == 2
    assert "no team 'no-such-team' held a GPU in this window" in said.err
    assert "hint: teams: " in said.err
    assert not said.out


def test_a_budget_of_nothing_is_over_as_soon_as_something_is_paid(
    tmp_path: Path, fallow: Fallow
) -> None:
    """A budget of 0 ended the command for all teams, and the service's analyses."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    lines = [f"{now - timedelta(minutes=m)},pod-1,99" for m in range(60, 0, -1)]
    table, settings = tmp_path / "t.csv", tmp_path / "fallow.yaml"
    table.write_text("\n".join(["ts,pod,util", *lines]))
    settings.write_text("finance: {}\n")
    place = ("--home", tmp_path / "home", "--config", settings)
    columns = ("--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s")
    assert fallow("import", "samples", table, *columns, "--rate", "2", *place).code == 0
    (paid,) = read(fallow("chargeback", *place, "-o", "json").out)["chargeback"]
    settings.write_text(
        f"finance: {{teams_usd_per_month: {{nobody: 0, '{paid['team']}': 0, ops: 5}}}}\n"
    )
    answer = fallow("budget", *place, "-o", "json")
    assert answer.code == 0, answer.err
    rows = {row["team"]: row for row in read(answer.out)["budgets"]}
    assert {row["used_pct"] for row in rows.values() if not row["budget"]} == {None}
    assert {*rows} == {"nobody", paid["team"], "ops"}
    paid_for_nothing = TeamBudget("t", Decimal(), Decimal(1), Decimal(1), Decimal(1))
    assert (paid_for_nothing.stands, paid_for_nothing.load) == ("over", Decimal("Infinity"))
    assert fallow("forecast", "--team", "", *place).code == 2, "it is not that of all teams"


@pytest.mark.parametrize(
    "words", [("spend",), ("spend", "--share-unallocated"), ("chargeback",)], ids=" ".join
)
def test_a_team_pays_what_its_row_says(home: Path, fallow: Fallow, words: tuple[str, ...]) -> None:
    wanted = (*words, "--home", home, "--window", "24h", "-o", "json")
    (noun, usd) = ("chargeback", "total_usd") if words == ("chargeback",) else ("spend", "usd")
    row = read(fallow(*wanted).out)[noun][0]
    (alone,) = read(fallow(*wanted, "--team", row["team"]).out)[noun]
    for name in ("gpu_hours", usd, "idle_usd", "busy_pct"):
        assert alone[name] == row[name], name


@pytest.mark.parametrize("by", ["team", "cluster"])
def test_the_months_of_all_parts_are_the_whole_month(home: Path, fallow: Fallow, by: str) -> None:
    (whole,) = read(fallow("forecast", "--home", home, "-o", "json").out)["forecasts"]
    rows = read(fallow("forecast", "--home", home, "--by", by, "-o", "json").out)["forecasts"]
    assert len({row[by] for row in rows}) == len(rows)
    paid = sum(row["usd"] for row in rows)
    assert paid == pytest.approx(whole["usd"], abs=Decimal("0.2"))
    refused = fallow("forecast", "--home", home, "--by", "node")
    assert (refused.code, "hint: fallow forecast --by team" in refused.err) == (2, True)
