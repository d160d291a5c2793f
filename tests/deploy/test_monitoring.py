"""Alerts fire when they should; alerts, the board, docs and code name the same metrics."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fallow.resources import read_table
from runtime.service.metrics import list_metrics
from tools.reference import render_metrics

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
TESTS = RULES.with_name("rules_test.yaml")
DAYS = RULES.with_name("rules_days_test.yaml")
BOARD = ROOT / "deploy" / "grafana" / "fallow.json"
RUNBOOK = ROOT / "docs" / "runbook.md"
EXPORTED = {name for one in list_metrics() for name in one.exported()}
LABELS = {name: set(one.labels) for one in list_metrics() for name in one.exported()}
SELECTED = re.compile(r"(fallow_\w+)(?:\{([^}]*)\})?")
DCGM = re.compile(r"\bDCGM_\w+")
COLLECTED = {row["metric"] for row in read_table("collectors", "metrics.csv")}
ON_GPUS = "What the GPUs do"


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[tuple[str, str]]:
    document = json.loads(BOARD.read_text())
    return [(p["title"], t["expr"]) for p in document["panels"] for t in p.get("targets", ())]


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here (Debian: apt-get install prometheus)")
    return subprocess.run(
        [found, *map(str, words)], capture_output=True, text=True, check=False, cwd=RULES.parent
    )


def test_each_alert_fires_when_it_should_and_no_other() -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr + checked.stdout
    ran = promtool("test", "rules", TESTS, DAYS)
    assert ran.returncode == 0, ran.stderr + ran.stdout


# test_each_alert_fires_when_it_should_and_no_other: this one breaks each alert and sees it fail.
@pytest.mark.long
def test_the_tests_of_alerts_can_fail(tmp_path: Path) -> None:
    scenarios = TESTS.read_text() + DAYS.read_text()
    for alert in alerts():
        name = alert["alert"]
        assert f'alertname="{name}"' in scenarios, f"no scenario lets {name} fire"
    dull = RULES.read_text().replace("fallow_up == 0", "fallow_up == 2")
    (tmp_path / "rules.yaml").write_text(dull)
    shutil.copy(TESTS, tmp_path)
    ran = promtool("test", "rules", tmp_path / TESTS.name)
    assert ran.returncode != 0
    assert "FallowCollectorDown" in ran.stdout + ran.stderr


def test_every_expression_names_what_we_export_by_labels_it_has() -> None:
    for where, expr in (*((a["alert"], a["expr"]) for a in alerts()), *panels()):
        named, of_dcgm = SELECTED.findall(expr), set(DCGM.findall(expr))
        assert named or of_dcgm, where
        assert of_dcgm <= COLLECTED, f"{where}: no collector knows {of_dcgm - COLLECTED}"
        for name, matchers in named:
            assert name in EXPORTED, f"{where}: {name} is exported by nobody"
            wanted = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert wanted <= LABELS[name], f"{where}: {name} has no label {wanted - LABELS[name]}"


def test_the_boards_expressions_are_promql(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, (_, expr) in enumerate(panels())]
    path = tmp_path / "board.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_utilisation_power_temperature_and_nvlink_stand_beside_cost() -> None:
    document = json.loads(BOARD.read_text())["panels"]
    rows = [p["title"] for p in document if p["type"] == "row"]
    assert rows[:2] == ["What the fleet is paid for", ON_GPUS]
    begin = next(n for n, p in enumerate(document) if p["title"] == ON_GPUS)
    shown = document[begin + 1 : begin + 5]
    assert [p["title"].split(",")[0] for p in shown] == [
        "Utilisation", "Power", "Temperature", "NVLink traffic"
    ]  # fmt: skip
    assert all(DCGM.search(t["expr"]) for p in shown for t in p["targets"])


def test_no_panel_lies_over_another() -> None:
    document = json.loads(BOARD.read_text())["panels"]
    assert len({p["id"] for p in document}) == len(document)
    cells = [
        (x, y)
        for at in (p["gridPos"] for p in document)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert max(x for x, _ in cells) < 24
    assert len(cells) == len({*cells})


def test_a_gpu_with_mig_instances_counts_once_and_one_without_profiling_is_shown(
    tmp_path: Path,
) -> None:
    exprs = dict(panels())
    gpu = 'DCGM_FI_{}{{UUID="{}",modelName="H100",GPU_I_ID="{}"}}'
    values = {
        gpu.format("DEV_POWER_USAGE", "a", "1"): "300",
        gpu.format("DEV_POWER_USAGE", "a", "2"): "300",
        gpu.format("DEV_POWER_USAGE", "b", ""): "100",
        gpu.format("PROF_GR_ENGINE_ACTIVE", "a", ""): "0.5",
        gpu.format("DEV_GPU_UTIL", "a", ""): "90",
        gpu.format("DEV_GPU_UTIL", "b", ""): "20",
    }
    power, used = (next(exprs[t] for t in exprs if t.startswith(w)) for w in ("Power", "Utilis"))
    cases = [
        {"expr": e, "eval_time": "0", "exp_samples": [{"labels": '{modelName="H100"}', "value": v}]}
        for e, v in ((power, 400), (used, 0.35))
    ]
    series = [{"series": name, "values": value} for name, value in values.items()]
    path = tmp_path / "test.yaml"
    path.write_text(
        yaml.safe_dump({"tests": [{"input_series": series, "promql_expr_test": cases}]})
    )
    ran = promtool("test", "rules", path)
    assert ran.returncode == 0, ran.stderr + ran.stdout


def test_every_metric_has_its_place_on_the_board() -> None:
    shown = {name for _, expr in panels() for name, _ in SELECTED.findall(expr)}
    assert {one.name for one in list_metrics() if not shown & set(one.exported())} == set()


def test_the_page_of_metrics_is_what_the_code_writes() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page == render_metrics(), "run: python -m tools.reference docs"
    for name in EXPORTED:
        assert (
            f"`{name.removesuffix('_bucket').removesuffix('_count').removesuffix('_sum')}`" in page
        )


def test_the_runbook_has_every_alert_and_says_what_to_do() -> None:
    text = RUNBOOK.read_text()
    headings = re.findall(r"^## (Fallow\w+)$", text, re.MULTILINE)
    names = [alert["alert"] for alert in alerts()]
    assert headings == names
    for alert in alerts():
        assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"
        section = text.split(f"## {alert['alert']}\n")[1].split("\n## ")[0]
        severity, _, action = section.strip().partition(" ")
        assert severity == f"**{alert['labels']['severity'].capitalize()}.**"
        assert len(action.split()) > 3


def test_each_alert_has_a_name_of_its_own_and_one_section_of_the_runbook() -> None:
    names = [alert["alert"] for alert in alerts()]
    sections = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(set(names))
    assert sorted(sections) == sorted(names)
    anchors = [alert["annotations"]["runbook_url"] for alert in alerts()]
    assert anchors == [f"docs/runbook.md#{name.lower()}" for name in names]
