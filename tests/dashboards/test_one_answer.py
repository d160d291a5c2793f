"""A figure has one answer, whoever is asked: the table of figures over homes, windows and teams.

A demo that went on for an hour is asked in tests/runtime/test_demo.py, by every mouth in
test_every_mouth.py.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import extent, reconciliation
from dashboards.figures.query import Filters
from fallow.settings import Settings
from tests.dashboards.figure_table import (
    FIGURES,
    READ,
    TEAMS,
    WINDOWS,
    add,
    find_function,
    find_window,
    list_contradictions,
    pick,
    same,
)
from tests.reports import small
from warehouse.lake import Warehouse

Rows = dict[str, list[dict[str, Any]]]


def build_first_hour() -> Rows:
    """Return a site that Fallow has seen for an hour: nothing is analysed."""
    rows = small.rows()
    start = small.END.replace(tzinfo=None) - timedelta(hours=1)
    rows["ledger"] = [row for row in rows["ledger"] if row["bucket"] >= start]
    for name in ("node", "device"):
        rows[name] = [row | {"first_seen": start} for row in rows[name]]
    del rows["finding"]
    return rows


def build_twins() -> Rows:
    """Return two clusters with equal names of nodes, namespaces, workloads and teams."""
    rows = small.rows()
    of_one = {
        name: [row for row in listed if row["cluster"] == "alpha"] for name, listed in rows.items()
    }
    twins = {
        name: [*listed, *(row | {"cluster": "twin"} for row in listed)]
        for name, listed in of_one.items()
    }
    for row in twins["finding"]:
        if row["cluster"] == "twin":
            row["id"] = row["id"].replace("0", "f", 1)
    return twins


def build_gaps() -> Rows:
    """Return a month without data of some days and hours, of which one cluster began late."""
    rows = small.rows(days=35)
    first = min(row["bucket"] for row in rows["ledger"])
    rows["ledger"] = [
        row
        for row in rows["ledger"]
        if (row["bucket"] - first).days not in (3, 11, 12, 30)
        and row["bucket"].hour != 7
        and (row["cluster"] == "alpha" or (row["bucket"] - first).days > 20)
    ]
    return rows


BUILDERS: dict[str, Callable[[], Rows]] = {
    "first hour": build_first_hour,
    "twins": build_twins,
    "gaps": build_gaps,
}


@pytest.fixture(scope="module", params=["demo", *BUILDERS])
def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Settings, Warehouse]]:
    """Return a home's settings, and its warehouse open for reading."""
    if request.param == "demo":
        settings: Settings = request.getfixturevalue("fleet")
    else:
        folder: Path = tmp_path_factory.mktemp("figures")
        settings = small.fill(folder / "home", BUILDERS[request.param]())
    with Warehouse.open(settings) as warehouse:
        yield settings, warehouse


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("text", WINDOWS)
def test_a_figure_has_one_answer(home: tuple[Settings, Warehouse], text: str, team: str) -> None:
    settings, views = home
    assert not list_contradictions(settings, views, find_window(settings, views, text), team)


@pytest.mark.parametrize("text", [*WINDOWS, "2d"])
def test_savings_are_part_of_the_waste_and_cash(fleet: Settings, text: str) -> None:
    with Warehouse.open(fleet) as views:
        window = find_window(fleet, views, text)
        sums = reconciliation.read_reconciliation(views, window, Filters())
    assert sums is not None
    assert sums.of_waste_usd is not None
    assert sums.wasted_usd is not None
    assert 0 < sums.of_waste_usd <= sums.wasted_usd


@pytest.mark.parametrize("label", ["Paid GPU-hours", "Could be saved, GPU-hours", "At most"])
def test_teams_add_up_to_the_whole(fleet: Settings, label: str) -> None:
    with Warehouse.open(fleet) as views:
        window = find_window(fleet, views, "7d")
        teams = extent.read_names(views, window)["team"]
        function, value = find_function(FIGURES[label]), FIGURES[label].value
        whole, *parts = (
            pick(function(views, window, Filters(team=team)), value) for team in (None, *teams)
        )
    assert len(teams) > 3
    assert same(add(parts), whole)


def test_each_figure_of_the_table_has_a_function_that_gives_it() -> None:
    assert len(READ) >= 45
    assert all(callable(find_function(figure)) for figure in READ.values())
    for label, figure in FIGURES.items():
        assert figure.meaning[0].isupper(), label
        assert figure.unit, label
        assert figure.function or not figure.value, label
