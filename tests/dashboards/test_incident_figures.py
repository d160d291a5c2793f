"""Stored incidents as the page Health and the SRE's report show them."""

import json
from collections.abc import Iterator
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import health
from dashboards.figures.query import Filters
from dashboards.reports import sre
from dashboards.reports.report_request import ReportRequest
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.incidents import list_incidents, store_incidents
from simulator.failure_cases.cases import read_cases
from simulator.failure_cases.recording import CasePlayer
from tests.analyzers.reliability.recordings import START, WINDOW, fill
from tests.cli.test_incidents_command import StoredRows
from warehouse.coverage import WindowCoverage
from warehouse.lake import Warehouse

LENGTH = timedelta(minutes=30)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A lost node and one that was away for a moment, stored twice."""
    settings = load(environ={}, flags={"home": tmp_path_factory.mktemp("home")}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        for name in ("node lost", "short absence"):
            fill(StoredRows(warehouse), CasePlayer(read_cases()[name], START.timestamp()).play())
        for _ in range(2):
            store_incidents(warehouse, WINDOW, [], WINDOW.end)
        yield warehouse


def test_incidents_are_stored_once_with_their_evidence(stored: Warehouse) -> None:
    rows = health.read_incidents(stored, WINDOW, Filters()).to_pylist()
    assert {(r["cluster"], r["cause"], r["step"]) for r in rows} == {
        ("node lost", "node lost", "recycle the node"), ("short absence", "unknown", "hold")
    }  # fmt: skip
    assert len(rows) == 2
    [lost] = [r for r in rows if r["cluster"] == "node lost"]
    assert json.loads(lost["workloads"]) == ["ml/PyTorchJob/job0"]
    assert json.loads(lost["nodes"]) == ["n-0"]
    signs = [sign["signal"] for sign in json.loads(lost["evidence"])]
    assert {"node_not_ready", "pods_lost"} <= set(signs)
    live = list_incidents(stored, WINDOW)
    assert {i.id for i in live} == {r["id"] for r in rows}


def test_an_incident_keeps_its_id_while_the_window_slides_over_its_first_sign(
    tmp_path: Path,
) -> None:
    """Two GPUs are hot for 90 minutes; windows of 30 minutes slide over it and go on."""
    settings = load(environ={}, flags={"home": tmp_path}).settings
    case = read_cases()["straggler by a hot pair"]
    with Warehouse.open(settings, write=True) as warehouse:
        fill(StoredRows(warehouse), CasePlayer(case, START.timestamp()).play())
        (before,) = list_incidents(warehouse, WINDOW)
        assert before.end - before.start == timedelta(minutes=89, seconds=30)
        until, stored = before.start.replace(tzinfo=UTC) + timedelta(minutes=20), set()
        rows: list[dict[str, Any]] = []
        while until < WINDOW.end:
            store_incidents(warehouse, Window(until - LENGTH, until), [], until)
            rows = warehouse.query("SELECT id, start, cause FROM incident", {}).to_pylist()
            stored.add(tuple((row["id"], row["start"]) for row in rows))
            until += timedelta(minutes=10)
        assert stored == {((before.id, before.start),)}
        assert rows[0]["cause"] == before.verdict.cause == "heat"
        # A list of the last minutes has the same id, and all signs; one after it has none.
        end = before.end.replace(tzinfo=UTC)
        (listed,) = list_incidents(warehouse, Window(end - LENGTH / 2, end + LENGTH / 2))
        assert (listed.id, len(listed.signals)) == (before.id, len(before.signals))
        assert list_incidents(warehouse, Window(end + LENGTH / 2, end + LENGTH)) == []


@pytest.mark.parametrize(
    ("filters", "causes"),
    [
        (Filters(cluster="node lost"), ["node lost"]),
        (Filters(namespace="ml"), ["node lost"]),
        (Filters(namespace="other"), []),
    ],
)
def test_incidents_are_filtered_by_cluster_and_namespace(
    stored: Warehouse, filters: Filters, causes: list[str]
) -> None:
    rows = health.read_incidents(stored, WINDOW, filters).to_pylist()
    by_cause = health.read_incident_causes(stored, WINDOW, filters).to_pylist()
    assert [r["cause"] for r in rows] == causes
    assert [r["cause"] for r in by_cause] == causes


def test_a_cause_has_the_sum_of_its_known_costs(stored: Warehouse) -> None:
    at = WINDOW.start.replace(tzinfo=None)
    later = at.replace(day=at.day + 10)
    names = {
        "cluster": ["x"] * 3,
        "id": ["a", "b", "c"],
        "start": [later] * 3,
        "cause": ["heat"] * 3,
    }
    costs = {
        "usd": [Decimal("1.50"), Decimal("2.25"), None],
        "lost_gpu_hours": [1.0, None, None],
        "recovery_gpu_hours": [0.5, 2.0, None],
        "namespaces": ["[]"] * 3,
    }
    stored.replace("incident", Batch.of("incident", {**names, **costs}).rows, "cluster = 'x'")
    day = Window(later.replace(tzinfo=WINDOW.start.tzinfo), WINDOW.end.replace(day=later.day + 1))
    [row] = health.read_incident_causes(stored, day, Filters()).to_pylist()
    assert (row["incidents"], row["unknown"], row["usd"]) == (3, 1, Decimal("3.75"))
    assert (row["lost_gpu_hours"], row["recovery_gpu_hours"]) == (1.0, 2.5)


def test_the_report_of_the_sre_has_incidents_by_cause(stored: Warehouse) -> None:
    request = ReportRequest(
        stored, WINDOW, Filters(), stored.settings, WINDOW.end,
        WindowCoverage(5, 5),
    )  # fmt: skip
    document = sre.document(request)
    [section] = [s for s in document.sections if s.title == "Incidents by cause"]
    assert section.blocks
