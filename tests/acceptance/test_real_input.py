"""The issue's acceptance on real input, through the command line as people type it."""

import json
import os
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from runtime.cli import run
from runtime.cli.options import CommandRun

Data = Callable[[str], Path]
HOURS = 14
"""So long before now a past is read; eval ended ten hours ago."""
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


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.usefixtures("home")
def test_gentd26_has_its_idle_hours_in_410_cases_of_75_pods(
    shared_data: Data, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the published rule does not know: startups, and zeros among active readings.
    monkeypatch.setenv("FALLOW_LEDGER__STARTUP", "1s")
    monkeypatch.setenv("FALLOW_IDLE__STARTUP_GRACE", "1s")
    monkeypatch.setenv("FALLOW_LEDGER__IDLE_STRETCH", "15m")
    columns = "workload=container_ip,ts=ts,gpu_util_pct=gpu_duty_cycle_pct"
    columns += ",mem_used_bytes=gpu_memory_used_bytes"
    imported = ["import", "samples", str(shared_data(GENTD26)), "--columns", columns]
    imported += ["--interval", "57s", "--cluster", "gentd26", "--rate", "1.861", "-o", "json"]
    assert run(imported) == 0
    first = json.loads(capsys.readouterr().out)["import"][0]
    assert first["devices"] == 80
    assert run(["analyze", "idle", *PLAIN_RULE, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "fallow.findings/v1"
    found = document["findings"]
    # The published rule counts from the first to the last sample; a finding holds only time that is
    # idle in the ledger, in its steps of five minutes (the judge alone: test_idle_real_trace).
    # Where no sample is missing between two windows, the one between them shows work.
    assert len(found) == 410
    assert len({f["subject"]["workload"] for f in found}) == 75
    hours = sum(f["gpu_hours"] for f in found)
    assert hours == pytest.approx(443.35, abs=0.01), "of 456.79 by the published rule"
    assert {f["evidence"] for f in found} == {"suspected"}
    assert sum(f["usd"] for f in found) == pytest.approx(hours * 1.861, rel=0.001)

    # Running it again changes nothing, and --fail-on-findings says so to a pipeline.
    assert run(imported) == 0
    again = json.loads(capsys.readouterr().out)["import"][0]
    assert again["added"] == 0
    assert run(["analyze", "idle", *PLAIN_RULE, "-o", "json", "--fail-on-findings"]) == 4
    assert json.loads(capsys.readouterr().out) == document

    # Any finding can be explained, and its arithmetic closes.
    assert run(["explain", found[0]["id"], "-o", "json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["finding"]["id"] == found[0]["id"]
    assert "SELECT" in explained["queries"][0]["sql"]
    assert "1.861" in explained["arithmetic"]

    # The 3,998 looks with memory but no duty cycle are unknown, and the books balance.
    assert run(["spend", "--by", "state", "-o", "json"]) == 0
    answer = capsys.readouterr()
    spent = json.loads(answer.out)
    hours_by_state = {row["state"]: row["gpu_hours"] for row in spent["spend"]}
    assert hours_by_state["unknown"] > 0
    assert spent["total"]["gpu_hours"] == pytest.approx(sum(hours_by_state.values()))
    assert "does not add up" not in answer.err


@pytest.mark.real_data
@pytest.mark.usefixtures("home")
def test_openb_is_counted_as_its_readme_counts_it(
    shared_data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = shared_data("openb/openb_node_list_all_node.csv")
    pods = shared_data("openb/openb_pod_list_default.csv")
    words = ["import", "openb", "--nodes", str(nodes), "--pods", str(pods), "-o", "json"]
    assert run([*words, "--cluster", "openb"]) == 0
    answer = capsys.readouterr()
    counts = {row["what"]: row["count"] for row in json.loads(answer.out)["inventory"]}
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


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch, now: datetime) -> datetime:
    """Make every command's now the end of the history."""
    monkeypatch.setattr(CommandRun, "now", lambda _: now)
    return now


@pytest.mark.slow
@pytest.mark.xdist_group("prometheus")
@pytest.mark.usefixtures("home", "then")
def test_scan_of_a_real_prometheus_tells_idle_from_unknown_from_free(
    prometheus_with_history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scan", "--prometheus", prometheus_with_history, "--since", f"{HOURS}h"]
    assert run([*words, "-o", "json"]) == 0
    story = json.loads(capsys.readouterr().out)
    assert story["schema"] == "fallow.story/v1"
    # GPU 4 is the notebook's, MIG instance 5 jupyter-bob's; instance 8 is one of infer's three.
    found = {(w["workload"], w["kind"]): w for w in story["wastes"]}
    assert {key: w["evidence"] for key, w in found.items()} == {
        ("team-risk/jupyter-alice", "idle_notebook"): "confirmed",
        ("team-risk/jupyter-bob", "idle_workload"): "confirmed",
        ("team-nlp/infer", "over_allocated_ranks"): "suspected",
    }
    hours = {key[0]: w["gpu_hours"] for key, w in found.items()}
    heard = HOURS  # the silence of the H100 node was earlier: tests/prometheus/test_backfill.py
    assert hours["team-risk/jupyter-alice"] == pytest.approx(heard, rel=0.005)
    assert hours["team-risk/jupyter-bob"] == pytest.approx(HOURS * 2 / 7, rel=0.005)
    assert hours["team-nlp/infer"] == pytest.approx(HOURS / 7, rel=0.005)
    # GPU 6: profiling says 0, GPU_UTIL 100 at 589 W. Neither idle nor productive.
    unjudged = {u["workload"]: u for u in story["unjudged"]}
    assert unjudged["team-vision/sweep"]["why"] == "signals contradict each other"
    assert unjudged["team-vision/sweep"]["gpu_hours"] == pytest.approx(HOURS, rel=0.005)
    # GPU 7, five instances of one slice, and instance 14 since eval ended.
    states = {s["state"]: s["gpu_hours"] for s in story["states"]}
    assert states["free"] == pytest.approx(heard + HOURS * 5 / 7 + 10 / 7, rel=0.005)
    assert states["idle"] == pytest.approx(sum(hours.values()), rel=0.005)
    assert sum(states.values()) == pytest.approx(story["gpus"] * HOURS, rel=0.005)
    assert story["gpu_hours"] == pytest.approx(sum(states.values()))
    assert sum(Decimal(str(s["usd"])) for s in story["states"]) == Decimal(str(story["usd"]))
    assert story["audit_failures"] == []
    # The other analyzers were asked too, and what they save is none of the hours above.
    assert not {o["analyzer"] for o in story["others"]} & {"idle"}
    assert sum(o["gpu_hours"] for o in story["others"]) <= story["gpu_hours"]
    assert not (Path(os.environ["FALLOW_HOME"])).exists()  # nothing was kept


@pytest.mark.slow
@pytest.mark.xdist_group("prometheus")
@pytest.mark.usefixtures("home", "then")
def test_an_imported_prometheus_is_judged_and_priced_like_any_other_source(
    prometheus_with_history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["import", "prometheus", "--url", prometheus_with_history, "--since", "3h"]
    assert run([*words, "--step", "60s", "-o", "json"]) == 0
    done = json.loads(capsys.readouterr().out)["import"][0]
    assert (done["devices"], done["audits"]) == (19, "ok")

    assert run(["analyze", "idle", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    alice = [f for f in found if f["subject"]["workload"] == "jupyter-alice"]
    assert {f["evidence"] for f in alice} == {"confirmed"}
    assert {f["subject"]["workload_kind"] for f in alice} == {"Notebook"}
    assert {f["subject"]["team"] for f in alice} == {"risk"}
    assert not [f for f in found if f["subject"]["workload"] in {"sweep", "llm-pretrain", "eval"}]
    assert run(["explain", alice[0]["id"]]) == 0
    assert "jupyter-alice" in capsys.readouterr().out

    assert run(["spend", "--by", "workload", "-o", "json"]) == 0
    spent = json.loads(capsys.readouterr().out)
    assert sum(row["gpu_hours"] for row in spent["spend"]) == pytest.approx(
        spent["total"]["gpu_hours"]
    )
    assert run([*words, "--step", "60s", "-o", "json"]) == 0
    again = json.loads(capsys.readouterr().out)["import"][0]
    assert again["added"] == 0
