"""A pod is its uid: one made again under the same name has a life of its own.

A real Prometheus, whose kube-state-metrics shows two StatefulSet pods that were made again. The
hours are known by hand: see `tests/servers/recreated.py`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from runtime.operations.ingestion.collection import drain, read_cursors
from tests.servers import prometheus as server
from tests.servers.recreated import END, START, Dialect, history, lives
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("prometheus-recreated")
LATER = END + timedelta(hours=1)
SPOKEN: list[tuple[Dialect, str, str]] = [
    ("everywhere", "a", "b"),
    ("nowhere", "a", "b"),
]
LONG = [  # the order of names, and what has the uid in some series: between the two above
    pytest.param(spoken, marks=pytest.mark.long)
    for spoken in (("everywhere", "b", "a"), ("info", "a", "b"))
]


@pytest.fixture(scope="module", params=[*SPOKEN, *LONG], ids=lambda p: f"uid-{p[0]}-{p[1]}{p[2]}")
def day(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    """Return a warehouse that collected the day hour by hour, as a service does."""
    dialect, first, second = request.param
    folder: Path = tmp_path_factory.mktemp("recreated")
    data = server.blocks(history(lives(first, second), dialect), folder / "prometheus")
    with server.serving(data) as url:
        flags = {"home": folder / "home", "cluster": "c", "prometheus.url": url}
        settings: Settings = load(environ={}, flags=flags).settings
        with Warehouse.open_in_memory(settings, clock=lambda: LATER) as warehouse:
            for window in (Window(START, START + timedelta(hours=12)), Window(START, END)):
                collector = PrometheusCollector(
                    settings.prometheus, "c", lambda: LATER, cursors=read_cursors(warehouse)
                )
                drain(warehouse, collector, window, lambda _what, _part: None)
                pipeline.account(warehouse, window)
            yield warehouse


def allocated(warehouse: Warehouse, pod: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = warehouse.query(
        'SELECT pod_uid, device, min(start) AS start, max("end") AS "end", '
        'sum(epoch("end") - epoch(start)) / 3600 AS hours, min(share) AS share, '
        "string_agg(DISTINCT attribution) AS attribution, any_value(team) AS team "
        "FROM allocation WHERE pod = $pod GROUP BY ALL ORDER BY start",
        {"pod": pod},
    ).to_pylist()
    return rows


@pytest.mark.parametrize(("pod", "first", "second"), [
    ("jupyter-alice-0", 6.1, 17.7), ("ranker-0", 20.0, 3.95),
])  # fmt: skip
def test_each_life_of_a_name_holds_its_device_for_its_own_hours(
    day: Warehouse, pod: str, first: float, second: float
) -> None:
    rows = allocated(day, pod)
    assert [r["hours"] for r in rows] == pytest.approx([first, second], abs=0.1)
    assert len({r["pod_uid"] for r in rows}) == 2
    assert rows[0]["end"] <= rows[1]["start"]


def test_nobody_is_said_to_share_a_device(day: Warehouse) -> None:
    rows = [*allocated(day, "jupyter-alice-0"), *allocated(day, "ranker-0")]
    assert {(r["share"], r["attribution"]) for r in rows} == {(1.0, "exact")}


def test_a_pod_made_again_has_its_own_moments_and_end(day: Warehouse) -> None:
    rows = day.query(
        "SELECT pod, uid, created_at, started_at, finished_at, phase FROM pod ORDER BY pod, "
        "created_at"
    ).to_pylist()
    expected = sorted(lives(), key=lambda p: (p.pod, p.begin))
    assert [r["pod"] for r in rows] == [p.pod for p in expected]
    for row, life in zip(rows, expected, strict=True):
        began: datetime = life.begin.replace(tzinfo=None)
        assert (row["created_at"], row["started_at"]) == (began, began + timedelta(seconds=2))
        assert (row["finished_at"] is not None) == life.ended
        assert row["phase"] == ("Failed" if life.ended else "Running")


def test_the_hours_of_the_idle_notebook_are_its_teams_and_are_found(day: Warehouse) -> None:
    states = day.query(
        "SELECT state, team, sum(gpu_seconds) / 3600 AS hours FROM ledger "
        "WHERE device = 'GPU-0' GROUP BY ALL"
    ).to_pylist()
    hours = {(r["state"], r["team"]): r["hours"] for r in states}
    assert hours["idle", "risk"] == pytest.approx(17.7, abs=0.3)
    assert sum(h for (state, _), h in hours.items() if state == "free") < 0.5
    window = Window(START, END)
    analyzer = analyzer_runs.load_analyzers(day.settings, ["idle"])["idle"]
    found = [f for f in analyzer.find(day, window) if "alice" in f.subject.workload]
    assert [f.verdict for f in found] == ["idle"]
    assert found[0].window.seconds / 3600 == pytest.approx(17.7, abs=0.3)
