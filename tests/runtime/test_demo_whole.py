"""The demo by default: what README quotes, what its pages show, what its analyzers find."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard is an extra: fallow[dashboards]")

from streamlit.testing.v1 import AppTest

from dashboards import active_settings, app
from fallow import plugins
from fallow.settings import Settings, load
from runtime.cli import run
from runtime.experiments import demo
from tests.runtime.demo_kinds import read_demo_kinds
from warehouse.lake import Warehouse

# Minutes of one core. test_demo.py covers a smaller one in `make test`.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("demo-whole")]
ROOT = Path(__file__).parents[2]
SHOWS = ("metric", "dataframe", "vega_lite_chart", "table")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Settings]:
    """Return what the demo prints, and its settings."""
    folder = tmp_path_factory.mktemp("whole")
    capture = pytest.MonkeyPatch()
    capture.setenv("XDG_DATA_HOME", str(folder))
    written: list[str] = []
    capture.setattr(
        "runtime.rendering.finding_tables.write_text", lambda text, **_: written.append(text)
    )
    assert run(["demo", "--end", f"{demo.END:%Y-%m-%d}"]) == 0
    capture.undo()
    return "".join(written), load(flags={"home": folder / "fallow-demo"}).settings


def test_readme_quotes_the_demo(printed: tuple[str, Settings]) -> None:
    (block,) = re.findall(
        r"```\n(Fallow: cluster demo\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    rest = printed[0]
    for line in block.splitlines():
        if line.strip() in ("", "..."):
            continue
        assert f"\n{line}\n" in f"\n{rest}", (
            f"README has a line that the demo does not print: {line}"
        )
        rest = rest.partition(f"{line}\n")[2]


def test_every_analyzer_ran_and_every_planted_kind_is_found(
    printed: tuple[str, Settings],
) -> None:
    settings = printed[1]
    with Warehouse.open(settings) as warehouse:
        runs = warehouse.query("SELECT * FROM plugin_run WHERE kind = 'analyzer'").to_pylist()
        rows = warehouse.query("SELECT analyzer, kind, cluster FROM finding").to_pylist()
    assert {row["plugin"] for row in runs} == {*plugins.find_installed("analyzers")}
    assert not [row for row in runs if row["result"] == "failed"]
    kinds = Counter((row["analyzer"], row["kind"], row["cluster"]) for row in rows)
    planted = {(k.analyzer, k.kind, k.cluster) for k in read_demo_kinds() if not k.absent}
    assert planted - {*kinds} == set()
    assert {kind.analyzer for kind in read_demo_kinds()} == {*plugins.find_installed("analyzers")}


def test_the_what_if_of_the_readme_is_trusted(
    printed: tuple[str, Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    words = ["what-if", "--pool", "H100=64", "--cluster", "demo", "-o", "json"]
    assert run([*words, "--home", str(printed[1].home)]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["trust"] == "trusted"


def test_its_failures_are_incidents_with_causes_and_lost_work(
    printed: tuple[str, Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    with Warehouse.open(printed[1]) as warehouse:
        stored = warehouse.query("SELECT * FROM incident").to_pylist()
    capsys.readouterr()
    assert run(["incidents", "--home", str(printed[1].home), "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["incidents"]
    assert {row["id"] for row in listed} == {row["id"] for row in stored}
    assert {"spot reclaim", "node lost", "heat"} <= {row["cause"] for row in listed}
    assert sum(row["lost_gpu_hours"] or 0.0 for row in listed) > 1


def test_its_plan_drains_the_sick_node(
    printed: tuple[str, Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    """The API was polled each hour: the node's state is known, and its drain is announced."""
    capsys.readouterr()
    assert run(["plan", "--home", str(printed[1].home), "-o", "json"]) == 0
    (decision,) = (
        d
        for d in json.loads(capsys.readouterr().out)["decisions"]
        if d["policy"] == "recycle-sick-nodes"
    )
    assert (decision["verb"], decision["step"], decision["ruling"]) == (
        "recycle node", "notify", "allow"
    )  # fmt: skip
    assert "coverage" not in {reason["gate"] for reason in decision["reasons"]}


def test_nothing_is_called_idle_that_works(printed: tuple[str, Settings]) -> None:
    assert ", 0 false alarms" in printed[0]


@pytest.mark.parametrize("view", app.list_names())
def test_no_page_opens_empty(view: str, printed: tuple[str, Settings]) -> None:
    active_settings.use_settings(printed[1])
    text = f"from dashboards.app import draw_page\ndraw_page({view!r})"
    page = AppTest.from_string(text, default_timeout=600)
    if view == "mine":  # it asks whose
        page.query_params["team"] = "vision"
    page.run()
    assert not page.exception
    assert any(page.get(kind) for kind in SHOWS), [info.value for info in page.info]
