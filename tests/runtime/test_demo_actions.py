"""The demo's actions: real ones, through journal, executors and the API of the simulated fleet."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from actions.journal import Journal
from fallow.settings import Settings, load
from runtime.cli import run
from runtime.experiments import demo
from runtime.operations import plans
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo-actions")]  # it acts once


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a small demo in which a policy acted."""
    home = tmp_path_factory.mktemp("acted") / "demo"
    demo.run_demo(days=2, gpus=24, seed=1, progress=lambda _what, _part: None, home=home)
    return load(flags={"home": home}).settings


@pytest.fixture(scope="module")
def entries(settings: Settings) -> Iterator[list[Any]]:
    with Journal.open(plans.journal_path(settings), lambda: demo.END, write=False) as journal:
        assert journal.verify([]) is None
        yield journal.entries()


def test_actions_are_notified_approved_done_undone_and_proved_by_a_back_test(
    entries: list[Any],
) -> None:
    kinds = Counter(entry.kind for entry in entries)
    assert kinds["notified"] > 2
    assert kinds["approval-requested"] > kinds["approved"] > 1
    assert kinds["backtested"] == 1
    assert kinds["undo-sent"] == kinds["reversed"] == 1
    assert kinds["approved"] >= kinds["intent"] == kinds["sent"] > 1
    assert {entry.actor for entry in entries if entry.kind == "approved"} == {"admin"}


def test_one_action_was_undone_by_its_owner_and_the_others_are_verified_savings(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(settings.home))
    assert run(["actions", *home, "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    results = Counter(row["result"] for row in body["actions"])
    assert results["undone"] == 1
    assert results["done"] >= 1
    assert set(results) == {"done", "undone"}
    assert body["waiting"]
    with Warehouse.open(settings) as warehouse:
        (row,) = warehouse.query("SELECT sum(gpu_hours) AS h FROM saving").to_pylist()
        (plan,) = warehouse.query("SELECT count(*) AS n FROM plan").to_pylist()
    assert row["h"] > 5
    assert plan["n"] > 5
    assert run(["actions", "--verify", *home]) == 0


def test_each_action_has_the_manifest_of_its_object(settings: Settings) -> None:
    assert [path for path in (settings.home / "snapshots").rglob("*") if path.is_file()]
    assert not (settings.home / "container").exists()
