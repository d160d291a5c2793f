"""What a person at a terminal meets: help, width, exit codes, what goes where."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.settings import Settings
from runtime.cli.app import build_whole
from runtime.cli.spend import BY, complete_by
from runtime.operations.doctor import checks
from runtime.rendering import tables
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
GROUPS = ("baseline", "config", "import", "plugins", "policy", "schedule", "warehouse")
READING = (
    ("spend", "-o", "json"),
    ("analyze", "-o", "json"),
    ("report", "finance"),
)


@pytest.fixture
def empty_home(tmp_path: Path) -> Path:
    """Return a home whose warehouse has tables and no rows."""
    home = tmp_path / "empty"
    Warehouse.open(Settings(home=home), write=True).close()
    return home


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_a_group_alone_prints_its_help(fallow: Fallow, group: str) -> None:
    ran = fallow(*filter(None, [group]))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: fallow {group}".rstrip())
    assert ("Commands:" if group else "Policies and actions:") in ran.out


def test_the_groups_are_all_of_them() -> None:
    groups = {name for name, found in build_whole().commands.items() if hasattr(found, "commands")}
    assert groups == set(GROUPS)


@pytest.mark.parametrize("words", [(), ("spend",), ("policy",), ("policy", "check"), ("baseline",)])
def test_h_is_help_everywhere(fallow: Fallow, words: tuple[str, ...]) -> None:
    short, long = fallow(*words, "-h"), fallow(*words, "--help")
    assert (short.code, short.out) == (0, long.out)
    assert short.out.startswith("Usage: fallow")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("te", ["team"]),
        ("", list(BY)),
        ("team,m", ["team,model"]),
        ("team,", [f"team,{name}" for name in BY if name != "team"]),
        ("colour", []),
    ],
)
def test_by_completes_each_of_its_names(typed: str, offered: list[str]) -> None:
    assert complete_by(typed) == offered


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_without_a_warehouse_the_exit_code_is_one(
    fallow: Fallow, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ran = fallow(*words, "--home", str(tmp_path / "none"))
    assert (ran.code, ran.out) == (1, "")
    assert "there is no warehouse at" in ran.err
    assert "fallow collect --once" in ran.err


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_in_an_empty_warehouse_the_exit_code_is_zero_and_stderr_says_why(
    fallow: Fallow, empty_home: Path, words: tuple[str, ...]
) -> None:
    ran = fallow(*words, "--home", str(empty_home))
    assert ran.code == 0
    assert "no telemetry" in ran.err or "nothing" in ran.err
    if "json" in words:
        assert [rows for rows in json.loads(ran.out).values() if isinstance(rows, list)] == [[]]
    else:
        assert ran.out == ""


def test_a_catalog_of_another_program_is_refused_and_not_written(
    fallow: Fallow, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with sqlite3.connect(home / "catalog.sqlite") as file:
        file.execute("CREATE TABLE photo (name TEXT)")
    file.close()
    before = (home / "catalog.sqlite").read_bytes()
    for words in (("spend",), ("collect", "--once", "--source", "nvml")):
        ran = fallow(*words, "--home", str(home))
        assert (ran.code, ran.out) == (2, "")
        assert "has tables of another program" in ran.err
    assert (home / "catalog.sqlite").read_bytes() == before


def test_a_table_without_rows_is_a_line_on_stderr(fallow: Fallow, empty_home: Path) -> None:
    ran = fallow("warehouse", "query", "SELECT * FROM finding", "--home", str(empty_home))
    assert (ran.code, ran.out, ran.err) == (0, "", "nothing\n")


WIDTHS = st.dictionaries(
    st.sampled_from(["id", "workload", "why", "usd", "team", "do", "gpu_hours"]),
    st.integers(1, 200),
    min_size=1,
)


@given(WIDTHS, st.integers(20, 200), st.sampled_from(["findings", "plan", "rows"]))
def test_a_table_fits_its_line_and_cuts_only_texts(
    widths: dict[str, int], limit: int, noun: str
) -> None:
    shown = tables.fit_columns(widths, noun, limit, {"usd", "gpu_hours"})
    first = next(iter(widths))
    assert list(shown) == [name for name in widths if name in shown]
    assert first in shown
    total = sum(shown.values()) + tables.GAP * (len(shown) - 1)
    assert total <= max(limit, shown[first])
    assert all(width == widths[name] or name in {"why", "do"} for name, width in shown.items())
    assert all(width >= min(widths[name], tables.SHORT) for name, width in shown.items())
    if sum(widths.values()) + tables.GAP * (len(widths) - 1) <= limit:
        assert shown == widths


def test_on_eighty_columns_the_most_important_columns_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {
        "id": "c0de4462e406", "impact": "high", "analyzer": "reliability", "kind": "slow_gpu",
        "evidence": "confirmed", "namespace": "team-genai", "workload": "PyTorchJob/pretrain-1",
        "team": "genai", "gpu_hours": 452.13, "usd": 3110.68, "saves_usd": 3110.68,
        "do": "move work off slow GPUs and tell the provider about each of them",
    }  # fmt: skip
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = tables.render([row], "table", noun="findings")
    assert all(name.upper() in whole for name in row), "in a pipe nothing is left out"
    monkeypatch.setenv("COLUMNS", "80")
    text = tables.render([row], "table", noun="findings")
    assert max(map(len, text.splitlines())) <= 80
    head, line, note = text.splitlines()
    assert head.split() == ["ID", "KIND", "WORKLOAD", "SAVES_USD", "DO"]
    assert "c0de4462e406" in line
    assert "PyTorchJob/pretrain-1" in line
    assert note == "(7 more columns: -o csv)"


def test_doctor_prints_a_next_step_whole_in_80_columns(
    fallow: Fallow, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = fallow("doctor", "--home", empty_home)
    rows = json.loads(fallow("doctor", "--home", empty_home, "-o", "json").out)["checks"]
    (step,) = (row["next_step"] for row in rows if row["check"] == "sources")
    assert len(step) > 40
    assert step in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("noun", "row", "shown"),
    [
        ("incidents",
         {"start": "2026-11-22 09:36:40", "cause": "spot reclaim", "step": "restart elsewhere",
          "nodes": "h100-spot-0", "workloads": "PyTorchJob/team-genai/pretrain-1", "why": "w" * 40,
          "id": "a" * 12, "cluster": "demo", "usd": 1715.81},
         ["start", "cause", "step", "id", "nodes"]),
        ("plan",
         {"": "~", "step": "notify", "ruling": "allow", "cluster": "demo",
          "workload": "PyTorchJob/team-genai/pretrain-1", "since": "2026-11-09 00:00",
          "do": "make its kernels larger", "policy": "observe-all", "gpus": 4.0,
          "usd_per_day": 1113.84, "gpu_hours_per_day": 187.25, "why": "w" * 40, "id": "a" * 12},
         ["workload", "do", "usd_per_day"]),
        ("queue",
         {"workload": "PyTorchJob/team-speech/straggling-17", "gpus": 16.0, "hours": 64.8,
          "gpu_hours": 1036.8, "waiting_cost": 7887.12, "why": "no_fit",
          "blocked_by": "Deployment/team-data/night-1, RayCluster/team-speech/kept-5",
          "way_in": "none was found"},
         ["workload", "gpus", "hours", "waiting_cost", "why"]),
        ("steps",
         {"action": None, "policy": "reclaim-idle", "finding": "f" * 12,
          "workload": "RayCluster/team-speech/kept-8", "do": "suspend", "step": "notify",
          "result": "would notify", "gpus": 4.0, "usd_per_day": 1061.88, "why": "w" * 40},
         ["action", "workload", "do", "step", "result"]),
    ],
)  # fmt: skip
def test_in_80_columns_a_table_has_what_its_reader_needs(
    noun: str, row: dict[str, Any], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    head = tables.render([row], "table", noun=noun).splitlines()[0].lower().split()
    assert [name for name in shown if name not in head] == []


def test_a_text_that_does_not_fit_its_line_stands_whole_below_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [
        {"check": "home", "status": "ok", "finding": "all is well", "next_step": ""},
        {"check": "GPUs", "status": "warn", "finding": "word " * 20, "next_step": "look again"},
    ]
    lines = tables.render(rows, "table", noun="checks").splitlines()
    assert lines[1] == "home   ok      all is well"
    assert lines[2] == "GPUs   warn"
    assert " ".join(" ".join(lines[3:]).split()) == f"finding: {'word ' * 20}next step: look again"
    assert lines[0].split() == ["CHECK", "STATUS", "FINDING"]
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize(("second", "expected"), [("web", True), ("api", False)])
def test_the_cluster_is_required_only_where_two_clusters_have_a_name(
    second: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    rows = [
        {"": "~", "cluster": "east", "workload": "web", "do": "stop it", "usd_per_day": 1.0},
        {"": "~", "cluster": "west", "workload": second, "do": "stop it", "usd_per_day": 1.0},
    ]
    assert "CLUSTER" in tables.render(rows, "table", noun="plan")
    monkeypatch.setenv("COLUMNS", "40")
    assert ("CLUSTER" in tables.render(rows, "table", noun="plan")) is expected


def test_the_doctor_folds_what_analyzers_withhold_into_one_row() -> None:
    names = ("sources", "withheld by spot", "withheld by idle", "withheld by spot", "home")
    rows = [{"check": n, "status": "warn", "finding": n, "next_step": ""} for n in names]
    folded = checks.fold_withheld(rows)
    assert [row["check"] for row in folded] == ["sources", "withheld", "home"]
    assert folded[1]["finding"].endswith("spot 2, idle 1")


def test_what_spend_is_by_is_shown_before_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = dict.fromkeys(("share_pct", "usd", "idle_gpu_hours", "idle_usd", "saves_usd"), 1.0)
    row = {"workload": "team-genai/PyTorchJob/pretrain-1", "state": "startup"} | figures
    monkeypatch.setenv("COLUMNS", "60")
    head = tables.render([row], "table", noun="spend").splitlines()[0].split()
    assert head == ["WORKLOAD", "STATE", "USD", "IDLE_USD"]
