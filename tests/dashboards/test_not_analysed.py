"""An empty list says why: none found, not analysed, or cannot be judged."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from dashboards.figures import analysis_runs, analyzer_findings
from dashboards.figures.query import Filters
from fallow import plugin_runs
from fallow.plugin_runs import PluginRun, Result
from fallow.plugins import find_installed
from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments import demo
from tests.dashboards.drawing import DAYS, Draw, texts
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

WINDOW = Window(demo.END - timedelta(days=DAYS), demo.END)
EARLIER = Window(WINDOW.start - timedelta(days=9), WINDOW.start)
ONE = ("fragmentation",)


def test_the_demo_runs_every_analyzer_and_pages_hold_what_they_find(views: Warehouse) -> None:
    ran = [run for run in analysis_runs.read_runs(views) if run.touches(WINDOW)]
    assert [run.plugin for run in ran] == [*find_installed("analyzers")]
    assert not [run for run in ran if run.result == "failed"]
    # No hardware fails in these days of the demo; in its whole week Health lists slow_gpu.
    for name in ("fragmentation", "sizing", "spot"):
        assert analyzer_findings.list_findings(views, WINDOW, Filters(), name), (
            f"{name} said that none was found"
        )
    assert analyzer_findings.list_findings(views, WINDOW, Filters(), "precision")


@pytest.fixture
def lake(settings: Settings) -> Iterator[Warehouse]:
    """Return an empty warehouse."""
    with Warehouse.open(settings, write=True) as warehouse:
        yield warehouse


def keep(warehouse: Warehouse, result: Result, reason: str = "", window: Window = WINDOW) -> None:
    runs = [PluginRun("analyzer", "fragmentation", result, reason)]
    warehouse.ingest([plugin_runs.to_batch(runs, cluster="test", at=window.end, window=window)])


def test_none_found_not_analysed_and_cannot_be_judged_differ(lake: Warehouse) -> None:
    none = "No fragmentation was found."
    absent = analysis_runs.explain_absence(lake, WINDOW, ONE)
    assert absent.summary == "Not analysed."
    assert "fragmentation did not run over this window" in absent.sentence(none)
    assert "`fallow analyze fragmentation`" in absent.sentence(none)

    keep(lake, "done", window=EARLIER)
    assert analysis_runs.explain_absence(lake, WINDOW, ONE).summary == "Not analysed.", (
        "it judged another window"
    )

    keep(lake, "withheld", "no inventory of nodes")
    absent = analysis_runs.explain_absence(lake, WINDOW, ONE)
    assert absent.summary == "Cannot be judged."
    assert "fragmentation (no inventory of nodes)" in absent.sentence(none)

    keep(lake, "failed", "it failed (ZeroDivisionError: division by zero)")
    assert analysis_runs.explain_absence(lake, WINDOW, ONE).summary == "Cannot be judged."

    late = Window(WINDOW.start, WINDOW.end + timedelta(hours=1))
    keep(lake, "done", window=late)
    assert analysis_runs.explain_absence(lake, WINDOW, ONE).sentence(none) == none

    some = analysis_runs.explain_absence(lake, WINDOW, ("fragmentation", "idle"))
    assert some.sentence(none).startswith(f"{none} Not analysed: idle did not run")


def test_a_page_over_data_that_nobody_analysed_does_not_say_none(
    hostile: Settings, draw: Draw
) -> None:
    text = " ".join(texts(draw("health", hostile)))
    assert "Not analysed" in text
    assert "No sick board" not in text
