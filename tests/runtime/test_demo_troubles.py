"""Every analyzer on the demo's fleet: what is planted besides idle devices is found."""

from datetime import timedelta
from pathlib import Path

import pytest

from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments import demo, demo_plants
from runtime.experiments.truth import list_courses
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from tests.runtime.planted_troubles import list_troubles
from warehouse.lake import Warehouse


# tests/runtime/test_demo.py: what the demo plants is found; each trouble by itself:
# tests/simulator/test_planted_hangs.py, and the golden folders of the analyzers.
@pytest.mark.long
@pytest.mark.slow
def test_troubles_of_work_and_nodes_are_found_where_they_were_planted(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, cluster=demo_plants.CLUSTER)
    window = Window(demo.END - timedelta(days=5), demo.END)
    with Warehouse.open_in_memory(settings, clock=lambda: demo.END) as warehouse:
        truth, scripts, world = demo.run_fleet(warehouse, 128, window, 0, lambda *_: None)
        assert pipeline.account(warehouse, window)[1] == []
        made = analyzer_runs.run_analyzers(
            warehouse, window, analyzer_runs.load_analyzers(settings), strict=False
        )
    behaviours = {key: role.arrival.category.behaviour for key, role in world.cast.roles.items()}
    owners = {(space, kind, name): b for (kind, space, name), b in behaviours.items()}
    planted = list_troubles(world.spec, list_courses(truth, scripts), owners, made.findings)
    missed = {(t.kind, t.subject) for t in planted if not t.findings}
    assert missed == set()
    assert {t.analyzer for t in planted} == {"precision", "reliability", "sizing", "stalled"}
