"""`fallow chargeback`, `budget` and `forecast`: the figures of `fallow spend` and of the pages."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

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
    assert "hours of the month lack data of a cluster" in said.err


def test_a_forecast_of_a_team_that_held_no_gpu_is_refused_with_the_teams(
    home: Path, fallow: Fallow
) -> None:
    said = fallow("forecast", "--home", home, "--team", "no-such-team")
    assert said.code == 2
    assert "no team 'no-such-team' held a GPU in this window" in said.err
    assert "hint: teams: " in said.err
    assert not said.out
