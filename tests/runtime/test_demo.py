"""The demo: one seed, one story; it finds what was planted, acts for real, and nothing else."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from actions.journal import Journal
from dashboards.figures import queues, savings
from dashboards.figures.query import Filters
from dashboards.waste_report import Story
from fallow.demo_marker import MARKER
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.cli import run
from runtime.experiments import demo, demo_actions
from runtime.experiments.demo_cluster import restore_cluster
from runtime.operations.acting import plans
from runtime.operations.analysis.incidents import list_incidents
from runtime.rendering.finding_tables import render_story
from simulator.kube.store import ObjectStore
from tests.copies import copied
from tests.dashboards.figure_table import TEAMS, WINDOWS, find_window, list_contradictions
from warehouse.lake import Warehouse

WRITTEN = {"resourceVersion", "generation", "managedFields"}
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo-actions")]  # it acts once


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the demo's fleet is kept."""
    return tmp_path_factory.mktemp("acted") / "demo"


@pytest.fixture(scope="module")
def story(home: Path) -> Story:
    """Return the story of a small demo in which a policy acted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_actions, "APPROVED", 2)  # its budget is three actions a day
        return demo.run_demo(days=2, gpus=32, seed=1, progress=lambda _what, _part: None, home=home)


@pytest.fixture(scope="module")
def settings(home: Path, story: Story) -> Settings:
    """Return the settings of that demo."""
    del story
    return load(flags={"home": home}).settings


def test_the_demo_finds_what_was_planted_without_a_false_alarm(story: Story) -> None:
    told: dict[str, Any] = json.loads(render_story(story, "json"))
    planted = told["planted"]
    assert planted["false_alarms"] == 0
    assert planted["precision"] >= 0.99
    assert planted["recall"] >= 0.9
    assert planted["planted_gpu_hours"] > 24
    found_rate = planted["found_usd"] / planted["found_gpu_hours"]
    assert planted["planted_usd"] == pytest.approx(
        planted["planted_gpu_hours"] * found_rate, rel=0.1
    )
    _reconciled(told)
    assert told["audit_failures"] == []
    assert told["gpu_hours"] == pytest.approx(32 * 48)
    assert told["usd"] > 0
    found = {w["workload"]: w for w in told["wastes"]}
    notebooks = [w for name, w in found.items() if "notebook" in name]
    assert notebooks
    assert all(w["evidence"] == "confirmed" for w in notebooks)
    assert all(w["advice"] for w in told["wastes"])
    # What computes day and night is never said to be idle.
    assert not [name for name in found if "/pretrain-" in name]


def _reconciled(told: dict[str, Any]) -> None:
    """Hold planted, found and ledger-idle hours of a story to one another."""
    p = told["planted"]
    left = p["planted_gpu_hours"] - p["missed_gpu_hours"] + p["extra_gpu_hours"]
    assert left == pytest.approx(p["found_gpu_hours"], abs=1e-3)
    (idle,) = (s["gpu_hours"] for s in told["states"] if s["state"] == "idle")
    assert p["ledger_idle_gpu_hours"] == pytest.approx(idle, abs=1e-3)
    assert p["missed_gpu_hours"] == pytest.approx(
        p["planted_gpu_hours"] * (1 - p["recall"]), abs=0.1
    )
    claimed = p["found_gpu_hours"] - p["not_idle_gpu_hours"] + p["others_gpu_hours"]
    assert 0 <= claimed <= idle


def test_planted_found_and_idle_hours_add_up_in_one_line(story: Story) -> None:
    text = render_story(story, "table")
    # Wrapped where it is longer than the terminal.
    (line,) = re.findall(r"GPU-h: (planted .*?) = idle ([0-9,.]+)", " ".join(text.split()))
    made, beside = line[0].replace(",", "").split(" = found ")
    found, *terms = beside.partition(";")[::2]
    idle = Decimal(line[1].replace(",", ""))
    assert _sum(made) == Decimal(found)
    assert Decimal(found) + _sum(terms[0]) == idle
    assert f"found {Decimal(found):,} GPU-h" in text
    assert re.search(rf"idle .* {idle:,} GPU-h", text), "the ledger's own line"


def _sum(terms: str) -> Decimal:
    """Return what terms such as `planted 3.0 - missed 1.0 + extra 2.0` sum to."""
    parts = re.findall(r"([+-])?\s*[a-z ]+ ([0-9.]+)", terms)
    return sum((Decimal(f"{sign}{number}") for sign, number in parts), Decimal())


def test_its_home_keeps_the_fleet_to_ask_it_more(
    capsys: pytest.CaptureFixture[str], settings: Settings
) -> None:
    asked = ("--home", str(settings.home), "-o", "json")
    assert run(["analyze", "idle", *asked]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert run(["explain", found[0]["id"], *asked]) == 0
    assert json.loads(capsys.readouterr().out)["finding"]["id"] == found[0]["id"]


@pytest.fixture(scope="module")
def entries(settings: Settings) -> Iterator[list[Any]]:
    with Journal.open(plans.get_journal_path(settings), lambda: demo.END, write=False) as journal:
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


def test_its_failures_are_stored_as_incidents_as_the_service_stores_them(
    settings: Settings,
) -> None:
    window = Window(demo.END - timedelta(days=2), demo.END)
    with Warehouse.open(settings) as warehouse:
        rows = warehouse.query("SELECT * FROM incident").to_pylist()
        listed = list_incidents(warehouse, window)
    assert {row["id"] for row in rows} == {incident.id for incident in listed}
    assert rows


def test_each_action_has_the_manifest_of_its_object(settings: Settings) -> None:
    assert [path for path in (settings.home / "snapshots").rglob("*") if path.is_file()]
    assert not (settings.home / "container").exists()


# test_simulate.py: one seed prints one document, of the same worlds.
@pytest.mark.long
def test_one_seed_tells_one_story(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    words = ("--days", "1", "--gpus", "8", "--seed", "3")
    first = _play(capsys, *words)
    assert first == _play(capsys, *words)
    assert "Paid GPU-hours: used" in first
    assert "Audits ok" in first


def _play(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(["demo", "--end", "2026-11-16", *words]) == 0
    return capsys.readouterr().out


def test_quotas_are_polled_each_hour_and_stand_beside_their_use(settings: Settings) -> None:
    with Warehouse.open(settings) as warehouse:
        polls = warehouse.query(
            "SELECT kind, namespace, list(DISTINCT ts ORDER BY ts) AS ts FROM quota "
            "WHERE kind LIKE 'ElasticQuota%' GROUP BY ALL ORDER BY namespace"
        ).to_pylist()
        window = Window(demo.END - timedelta(days=2), demo.END)
        rows = queues.read_quotas(warehouse, window, Filters()).to_pylist()
    assert [row["namespace"] for row in polls] == ["team-genai", "team-search"]
    hours = {window.start.replace(tzinfo=None) + timedelta(hours=hour) for hour in range(48)}
    assert all(hours <= {*row["ts"]} for row in polls)
    nominal = {row["name"]: row["nominal"] for row in rows if row["kind"].startswith("Elastic")}
    assert nominal == {"team-genai/gpus": 40, "team-search/gpus": 12}
    used = {row["name"]: row["used"] for row in rows}
    assert used["team-genai/gpus"] > 0


# Time passes in the kept cluster.


def _run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*words, "-o", "json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out or "null")


def _copy(home: Path, to: Path) -> Path:
    copied(home, to)
    marker = to / MARKER
    marker.write_text(marker.read_text().replace(str(home), str(to)))
    return to


def _read_workloads(home: Path, *names: str) -> dict[str, tuple[Any, list[str]]]:
    """Return workloads of the kept cluster without what each write changes, and their pods."""
    with restore_cluster(home) as cluster:
        return {name: _read_workload(cluster.world.store, *name.split("/")) for name in names}


def _read_workload(
    store: ObjectStore, kind: str, namespace: str, name: str
) -> tuple[Any, list[str]]:
    found = store.get(kind, name, namespace)
    assert found is not None
    meta = {k: v for k, v in found["metadata"].items() if k not in WRITTEN}
    pods = [
        p["metadata"]["name"]
        for p in store.list("Pod", namespace)
        if p["metadata"]["name"].startswith(f"{name}-")
    ]
    return {"spec": found["spec"], "metadata": meta}, pods


def _read_saveable(home: Path) -> tuple[float, float]:
    """Return the GPU-hours of the demo's week that could be saved, or were, and those at most."""
    with Warehouse.open(Settings(home=home)) as warehouse:
        end = datetime(2026, 11, 16, tzinfo=UTC)
        window = Window(end - timedelta(days=7), end)
        stages = savings.read_stages(warehouse, window, Filters(cluster="demo"))
    hours = (stages.saveable_gpu_hours or 0.0) + stages.acted_gpu_hours
    return hours, stages.at_most_gpu_hours


def _assert_one_answer(home: Path) -> None:
    settings = load(flags={"home": home}).settings
    with Warehouse.open(settings) as warehouse:
        for text, team in product(WINDOWS, TEAMS):
            window = find_window(settings, warehouse, text)
            assert not list_contradictions(settings, warehouse, window, team), (text, team)


def test_a_person_approves_a_stop_an_hour_passes_it_is_done_and_its_undo_gives_all_back(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = _copy(settings.home, tmp_path / "demo")
    option = ("--home", str(home))
    waiting = _run(capsys, "actions", *option)["waiting"]
    requests = [row for row in waiting if row["do"] == "stop"]
    workloads = _read_workloads(home, *(r["workload"] for r in requests))
    for request in requests:
        assert run(["approve", request["action"], "--by", "kim", *option]) == 0
    judged = _read_saveable(home)
    steps = _run(capsys, "demo", "--continue", "1h", *option)["steps"]
    assert _read_saveable(home) == pytest.approx(judged), "a turn ends no finding of the week"
    _assert_one_answer(home)
    (step,) = (row for row in steps if row["result"] == "acted")
    before, pods = workloads[step["workload"]]
    assert pods
    actions = {row["action"]: row for row in _run(capsys, "actions", *option)["actions"]}
    action = actions[step["action"]]
    assert (action["result"], action["at"][:16]) == ("done", "2026-11-16T00:05")
    assert action["freed_gpus"] > 0
    during, gone = _read_workloads(home, step["workload"])[step["workload"]]
    assert (during != before, gone) == (True, [])

    assert run(["undo", step["action"], "--by", "ann", *option]) == 0
    assert _read_workloads(home, step["workload"])[step["workload"]][0] == before
    assert run(["undo", step["action"], "--by", "ann", *option]) == 3
    assert "undone" in capsys.readouterr().err
    _run(capsys, "demo", "--continue", "1h", *option)
    assert _read_workloads(home, step["workload"])[step["workload"]] == (before, pods)
    (saving,) = (
        row
        for row in _run(capsys, "saved", "--by", "action", "--since", "1d", *option)["savings"]
        if row["action"] == step["action"]
    )
    assert 0 < saving["gpu_hours"] <= 55 / 60 * action["freed_gpus"]


def _read_end(home: Path) -> tuple[Any, ...]:
    """Return what is kept of a continued demo: its world, its samples and its journal.

    Its objects differ in the Lease: each run takes it once.
    """
    last = json.loads((home / "world.jsonl").read_bytes().splitlines()[-1])
    del last["digest"]
    with Warehouse.open(load(flags={"home": home}).settings) as warehouse:
        (rows,) = warehouse.query(
            "SELECT count(*) AS n, count(DISTINCT ts) AS t, sum(energy_mj) AS e, "
            "(SELECT count(*) FROM pod_sample) AS p FROM sample WHERE ts >= $since",
            {"since": demo.END},
        ).to_pylist()
    path = plans.get_journal_path(load(flags={"home": home}).settings)
    with Journal.open(path, lambda: demo.END, write=False) as journal:
        written = [(e.at, e.kind, e.key) for e in journal.entries() if e.at >= demo.END]
    return last, rows, written


KILLED = """
import os, signal
from runtime.cli import main
from runtime.experiments.demo_actions import ActingFleet
ActingFleet.take_unstored = lambda _fleet: os.kill(os.getpid(), signal.SIGKILL)
main()
"""
"""The fleet has lived on, and nothing of it is stored yet."""


# tests/simulator/test_restore.py: a world that was killed goes on.
@pytest.mark.long
def test_three_hours_are_three_single_hours_also_where_one_was_killed(
    settings: Settings, tmp_path: Path
) -> None:
    once, thrice = (_copy(settings.home, tmp_path / name) for name in ("once", "thrice"))
    assert run(["demo", "--continue", "3h", "--home", str(once)]) == 0
    assert run(["demo", "--continue", "1h", "--home", str(thrice)]) == 0
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "demo", "--continue", "1h", "--home", str(thrice)],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert run(["demo", "--continue", "1h", "--home", str(thrice)]) == 0
    assert _read_end(thrice) == _read_end(once)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--continue", "30m"), "legal: 1h to 24h, whole hours"),
        (("--continue", "2d"), "legal: 1h to 24h, whole hours"),
        (("--continue", "soon"), "is not a duration"),
        (("--continue", "1h", "--seed", "2"), "leave --days, --gpus, --seed and --end out"),
        (("--continue", "1h", "--home", "empty"), "fallow demo --home empty"),
    ],
)
def test_what_cannot_go_on_is_refused(
    words: tuple[str, ...],
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert run(["demo", *words]) == 2
    assert answer in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
