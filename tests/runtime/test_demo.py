"""The demo: one seed, one story; it finds what was planted and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.cli import run


def _play(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(["demo", *words]) == 0
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


def test_a_named_home_keeps_the_fleet_to_ask_it_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = ("--home", str(tmp_path / "demo"))
    _play(capsys, "--days", "1", "--gpus", "8", *home)
    asked = ("--cluster", "demo", *home, "-o", "json")
    assert run(["analyze", "idle", *asked]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert run(["explain", found[0]["id"], *asked]) == 0
    assert json.loads(capsys.readouterr().out)["finding"]["id"] == found[0]["id"]
    # Synthetic rows never mix with others.
    assert run(["demo", "--days", "1", "--gpus", "8", *home]) == 2
    assert "not empty" in capsys.readouterr().err


def test_one_seed_tells_one_story(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--days", "1", "--gpus", "8", "--seed", "3")
    first = _play(capsys, *words)
    assert first == _play(capsys, *words)
    assert "What grows" in first
    assert "Audits ok" in first
