"""The issue's acceptance on real input, through the command line as people type it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.cli import run

Data = Callable[[str], Path]
GENTD26 = "gentd26/gpu_dev_pods_0-7.parquet"
PLAIN_RULE = [
    *("--threshold", "0.01", "--min-duration", "30m", "--max-gap", "171s"),
    *("--exit-threshold", "0.01", "--exit-samples", "1"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.real_data
@pytest.mark.usefixtures("home")
def test_gentd26_has_415_idle_windows_in_75_pods(
    shared_data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "workload=container_ip,ts=ts,gpu_util_pct=gpu_duty_cycle_pct"
    columns += ",mem_used_bytes=gpu_memory_used_bytes"
    imported = ["import", "samples", str(shared_data(GENTD26)), "--columns", columns]
    imported += ["--interval", "57s", "--cluster", "gentd26", "--rate", "1.861", "-o", "json"]
    assert run(imported) == 0
    first = json.loads(capsys.readouterr().out)["import"][0]
    assert first["devices"] == 80
    assert run(["analyze", "idle", *PLAIN_RULE, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "fallow.findings/v1"
    found = told["findings"]
    assert len(found) == 415
    assert len({f["subject"]["workload"] for f in found}) == 75
    hours = sum(f["gpu_hours"] for f in found)
    assert hours == pytest.approx(456.79, rel=0.005)
    assert {f["evidence"] for f in found} == {"suspected"}
    assert sum(f["usd"] for f in found) == pytest.approx(hours * 1.861, rel=0.001)

    # Running it again changes nothing, and --fail-on-findings says so to a pipeline.
    assert run(imported) == 0
    again = json.loads(capsys.readouterr().out)["import"][0]
    assert again["added"] == 0
    assert run(["analyze", "idle", *PLAIN_RULE, "-o", "json", "--fail-on-findings"]) == 4
    assert json.loads(capsys.readouterr().out) == told

    # Any finding can be explained, and its arithmetic closes.
    assert run(["explain", found[0]["id"], "-o", "json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["finding"]["id"] == found[0]["id"]
    assert "SELECT" in explained["queries"][0]["sql"]
    assert "1.861" in explained["arithmetic"]

    # The 3,998 looks with memory but no duty cycle are unknown, and the books balance.
    assert run(["spend", "--by", "state", "-o", "json"]) == 0
    said = capsys.readouterr()
    spent = json.loads(said.out)
    hours_by_state = {row["state"]: row["gpu_hours"] for row in spent["spend"]}
    assert hours_by_state["unknown"] > 0
    assert spent["total"]["gpu_hours"] == pytest.approx(sum(hours_by_state.values()))
    assert "AUDIT FAILED" not in said.err


@pytest.mark.real_data
@pytest.mark.usefixtures("home")
def test_openb_is_counted_as_its_readme_counts_it(
    shared_data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = shared_data("openb/openb_node_list_all_node.csv")
    pods = shared_data("openb/openb_pod_list_default.csv")
    words = ["import", "openb", "--nodes", str(nodes), "--pods", str(pods), "-o", "json"]
    assert run([*words, "--cluster", "openb"]) == 0
    said = capsys.readouterr()
    counts = {row["what"]: row["count"] for row in json.loads(said.out)["inventory"]}
    assert counts["nodes"] == 1523
    assert counts["nodes with GPUs"] == 1213
    assert counts["GPUs"] == 6212
    assert counts["pods"] == 8152
    assert counts["pods asking for no GPU"] == 1088
    assert counts["pods sharing a GPU"] == 3078
    assert [counts[f"pods asking for {n} GPUs"] for n in (1, 2, 4, 8)] == [3911, 16, 15, 44]
    assert counts["pods pending"] == 897
    assert counts["GPUs the pending ask for"] == pytest.approx(601.87)


@pytest.mark.real_data
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "name",
    [
        "dcgm_exporter_readme_blank_sentinel.prom",
        "k80_unallocated_eks.prom",
        "t4_k3s_hami_workshop_2026.prom",
    ],
)
def test_real_expositions_parse(
    shared_data: Data, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(["import", "exposition", str(shared_data(f"dcgm/{name}")), "-o", "json"]) == 0
    done = json.loads(capsys.readouterr().out)["import"][0]
    assert done["devices"] >= 1
    assert done["audits"] == "ok"


@pytest.mark.usefixtures("home")
def test_scan_of_a_real_prometheus_tells_idle_from_unknown_from_free(
    prometheus_with_history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scan", "--prometheus", prometheus_with_history, "--since", "7d"]
    assert run([*words, "-o", "json"]) == 0
    story = json.loads(capsys.readouterr().out)
    assert story["schema"] == "fallow.story/v1"
    found = {w["workload"]: w for w in story["wastes"]}
    assert found["team-risk/jupyter-alice"]["evidence"] == "confirmed"
    assert not [name for name in found if "sweep-17" in name]
    unjudged = [u["workload"] for u in story["unjudged"]]
    assert any("sweep-17" in name for name in unjudged)
    free = {s["state"]: s["gpu_hours"] for s in story["states"]}["free"]
    assert free > 0
    assert story["audit_failures"] == []
    assert run([*words]) == 0
    assert "jupyter-alice" in capsys.readouterr().out
    assert run([*words, "-o", "md"]) == 0
    assert "| state |" in capsys.readouterr().out
