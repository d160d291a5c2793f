"""Alerts fire when they should; alerts, the board, docs and code name the same metrics."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.generators.reference import metrics_page
from runtime.service.metrics import metrics

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
TESTS = RULES.with_name("rules_test.yaml")
DAYS = RULES.with_name("rules_days_test.yaml")
BOARD = ROOT / "deploy" / "grafana" / "fallow.json"
RUNBOOK = ROOT / "docs" / "runbook.md"
EXPORTED = {name for one in metrics() for name in one.exported()}
LABELS = {name: set(one.labels) for one in metrics() for name in one.exported()}
SELECTED = re.compile(r"(fallow_\w+)(?:\{([^}]*)\})?")


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[tuple[str, str]]:
    board = json.loads(BOARD.read_text())
    return [(p["title"], t["expr"]) for p in board["panels"] for t in p.get("targets", ())]


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


@pytest.mark.parametrize(
    ("where", "expr"),
    [*((a["alert"], a["expr"]) for a in alerts()), *panels()],
)
def test_every_expression_names_what_we_export_by_labels_it_has(where: str, expr: str) -> None:
    named = SELECTED.findall(expr)
    assert named, where
    for name, matchers in named:
        assert name in EXPORTED, f"{where}: {name} is exported by nobody"
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert asked <= LABELS[name], f"{where}: {name} has no label {asked - LABELS[name]}"


def test_the_boards_expressions_are_promql(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, (_, expr) in enumerate(panels())]
    path = tmp_path / "board.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_every_metric_has_its_place_on_the_board() -> None:
    shown = {name for _, expr in panels() for name, _ in SELECTED.findall(expr)}
    assert {one.name for one in metrics() if not shown & set(one.exported())} == set()


def test_the_page_of_metrics_is_what_the_code_writes() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page == metrics_page(), "run: python -m runtime.generators.reference docs"
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
        assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"
        section = text.split(f"## {alert['alert']}\n")[1].split("\n## ")[0]
        assert "**What to do.**" in section
