"""The demo: one seed, one story; it finds what was planted and nothing else."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime.cli import run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every demo a data folder of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def _play(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(["demo", "--end", "2026-11-16", *words]) == 0
    return capsys.readouterr().out


def test_the_demo_finds_what_was_planted_without_a_false_alarm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: dict[str, Any] = json.loads(_play(capsys, "--days", "2", "--gpus", "32", "-o", "json"))
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


def test_planted_found_and_idle_hours_add_up_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = _play(capsys, "--days", "1", "--gpus", "16")
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


def test_a_named_home_keeps_the_fleet_to_ask_it_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = ("--home", str(tmp_path / "demo"))
    _play(capsys, "--days", "1", "--gpus", "8", *home)
    asked = (*home, "-o", "json")
    assert run(["analyze", "idle", *asked]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert run(["explain", found[0]["id"], *asked]) == 0
    assert json.loads(capsys.readouterr().out)["finding"]["id"] == found[0]["id"]


# test_simulate.py: one seed prints one document, of the same worlds.
@pytest.mark.long
def test_one_seed_tells_one_story(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--days", "1", "--gpus", "8", "--seed", "3")
    first = _play(capsys, *words)
    assert first == _play(capsys, *words)
    assert "Paid GPU-hours: used" in first
    assert "Audits ok" in first
