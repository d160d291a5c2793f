"""Stored incidents as the page Health and the SRE's report show them."""

import json
from collections.abc import Iterator
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import health, incidents, timeline
from dashboards.figures.query import Filters
from dashboards.figures.timeline import TimelineSubject
from dashboards.reports import sre
from dashboards.reports.document import ReportTable
from dashboards.reports.report_request import ReportRequest
from dashboards.text import format_hours
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.analysis.incidents import list_incidents, store_incidents
from tests.analyzers.reliability.recordings import START, WINDOW, fill
from tests.cli.test_incidents_command import StoredRows
from tests.dashboards.drawing import Draw, texts
from tests.failure_cases.cases import read_cases
from tests.failure_cases.recording import CasePlayer
from warehouse.allocation import write_allocations
from warehouse.coverage import WindowCoverage
from warehouse.incidents import IncidentSign
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.rollup import roll_up

LATER = START + timedelta(days=1)

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
        _put_samples(warehouse)
        roll_up(warehouse)
        write_allocations(warehouse, WINDOW)
        write_ledger(warehouse, WINDOW)
        yield warehouse


def _put_samples(warehouse: Warehouse) -> None:
    """Store twelve minutes of a GPU whose counter of NVLink errors rises, falls and rises."""
    rows = [
        {
            "cluster": "links",
            "ts": (LATER + timedelta(minutes=minute)).replace(tzinfo=None),
            "device": "G",
            "node": "n",
            "model": "H100",
            "interval_s": 60.0,
            "source": "exporters",
            "sm_active": 0.5,
            "nvlink_crc": count,
        }
        for minute, count in enumerate((7, 7, 9, 12, 12, 12, 2, 3, 3, 3, 3, 4))
    ]
    StoredRows(warehouse).rows("sample", rows)


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


def test_what_is_unknown_of_an_incident_is_unknown_of_its_cause(stored: Warehouse) -> None:
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
        "most_lost_gpu_hours": [1.0, 4.0, 8.0],
        "recovery_gpu_hours": [0.5, 2.0, 0.0],
        "namespaces": ["[]"] * 3,
    }
    stored.replace("incident", Batch.of("incident", {**names, **costs}).rows, "cluster = 'x'")
    day = Window(later.replace(tzinfo=WINDOW.start.tzinfo), WINDOW.end.replace(day=later.day + 1))
    [row] = health.read_incident_causes(stored, day, Filters()).to_pylist()
    assert (row["incidents"], row["unknown"], row["usd"]) == (3, 2, None)
    assert (row["lost_gpu_hours"], row["recovery_gpu_hours"]) == (None, 2.5)
    assert row["most_lost_gpu_hours"] == 13
    names["most_lost_gpu_hours"] = [1.0, 4.0, None]
    stored.replace("incident", Batch.of("incident", {**costs, **names}).rows, "cluster = 'x'")
    [unbounded] = health.read_incident_causes(stored, day, Filters()).to_pylist()
    assert unbounded["most_lost_gpu_hours"] is None


def test_an_unknown_loss_has_its_bound_on_the_page_and_in_the_report(
    stored: Warehouse, draw: Draw
) -> None:
    """Four GPUs of the lost node since the start of its pods: no checkpoint was seen."""
    rows = health.read_incidents(stored, WINDOW, Filters(cluster="node lost")).to_pylist()
    [listed] = list_incidents(stored, WINDOW, "node lost")
    assert rows[0]["lost_gpu_hours"] is None
    assert listed.lost.most
    assert rows[0]["most_lost_gpu_hours"] == listed.lost.most
    bound = f"unknown, at most {format_hours(listed.lost.most)}"
    window = f"{WINDOW.start:%Y-%m-%dT%H:%M}/{WINDOW.end:%Y-%m-%dT%H:%M}"
    words = {"window": window, "cluster": "node lost"}
    shown = texts(draw("health", stored.settings, **words))
    assert any(f"Work lost by all incidents: {bound}." in text for text in shown), shown
    detail = draw("health", stored.settings, incident=rows[0]["id"], **words)
    assert [m.value for m in detail.metric if m.label == "Work lost"][-1] == bound


def test_new_errors_are_the_rises_of_a_counter_and_what_was_not_sampled_is_unknown(
    stored: Warehouse,
) -> None:
    sign = IncidentSign("nvlink", LATER, None, "errors", "sample")
    incident = incidents.IncidentDetail(
        "i", "links", LATER, LATER, "nvlink", "hold", "why", (), (), ("G",), 1.0, None, None, None,
        None, (sign,),
    )  # fmt: skip
    assert incident.window == Window(LATER - timedelta(hours=1), LATER + timedelta(hours=1))
    rows = incidents.read_signals(stored, incident).to_pylist()
    assert len(rows) == 24, "two hours of five minutes"
    seen = [row for row in rows if row["gpus"]]
    # 7 to 12 in the first five minutes; a counter that falls was reset, and then rises by 1 and 1.
    assert [row["nvlink_crc"] for row in seen] == [5, 1, 1]
    assert [row["at"].minute for row in seen] == [0, 5, 10]
    assert all(row["named_activity_pct"] == pytest.approx(50) for row in seen)
    unknown = ("pcie_replay", "ecc_dbe", "power_w", "received_mb_s", "nvlink_gb_s")
    assert {name for name in unknown if any(row[name] is not None for row in rows)} == set()
    assert all(row["gpus"] is None for row in rows if row not in seen)


def test_a_lost_node_has_its_signals_around_it(stored: Warehouse) -> None:
    [row] = health.read_incidents(stored, WINDOW, Filters(cluster="node lost")).to_pylist()
    incident = incidents.decode_incident(row)
    assert (incident.workloads, incident.nodes) == (("ml/PyTorchJob/job0",), ("n-0",))
    rows = incidents.read_signals(stored, incident).to_pylist()
    assert incident.window.start <= incident.start - incidents.AROUND
    assert rows[0]["gpus"] == incident.gpus
    kinds = [row["kind"] for row in incidents.read_happened(stored, incident).to_pylist()]
    assert "Node NodeNotReady" in kinds


def test_the_timeline_of_job_and_node_names_the_incident_and_no_other(stored: Warehouse) -> None:
    [row] = health.read_incidents(stored, WINDOW, Filters(cluster="node lost")).to_pylist()
    named = {"workload": "ml/PyTorchJob/job0"}, {"node": "n-0"}
    for subject, cluster, expected in (
        (named[0], "node lost", [row["id"]]),
        (named[1], "node lost", [row["id"]]),
        (named[0], "short absence", []),
        ({"workload": "ml/PyTorchJob/other"}, "node lost", []),
        ({"node": "n-1"}, "node lost", []),
    ):
        events = timeline.read_events(
            stored, WINDOW, Filters(cluster=cluster), TimelineSubject(**subject)
        ).to_pylist()
        assert [e["incident"] for e in events if e["incident"]] == expected, (subject, cluster)
        assert {e["kind"] for e in events if e["incident"]} == ({"incident"} if expected else set())


def test_pages_link_an_incident_and_draw_its_signals(stored: Warehouse, draw: Draw) -> None:
    window = f"{WINDOW.start:%Y-%m-%dT%H:%M}/{WINDOW.end:%Y-%m-%dT%H:%M}"
    [row] = health.read_incidents(stored, WINDOW, Filters(cluster="node lost")).to_pylist()
    words = {"window": window, "cluster": "node lost"}
    job = draw("timeline", stored.settings, workload="ml/PyTorchJob/job0", **words)
    [named] = [text for text in texts(job) if "1 incident" in text]
    assert f"incident={row['id']}" in named
    assert "](health?" in named
    detail = draw("health", stored.settings, incident=row["id"], **words)
    said = texts(detail)
    assert any("recycle the node" in text for text in said)
    assert any("](timeline?" in text and "job0" in text for text in said)
    drawn = [chart.proto.alt for chart in detail.get("vega_lite_chart")]
    assert len([alt for alt in drawn if "around the incident" in alt]) >= 4, drawn
    assert not detail.exception


def test_the_report_of_the_sre_has_incidents_by_cause(stored: Warehouse) -> None:
    request = ReportRequest(
        stored, WINDOW, Filters(), stored.settings, WINDOW.end,
        WindowCoverage(5, 5),
    )  # fmt: skip
    document = sre.document(request)
    [section] = [s for s in document.sections if s.title == "Incidents by cause"]
    assert isinstance(section.blocks[0], ReportTable)
    assert "most_lost_gpu_hours" in [column.name for column in section.blocks[0].columns]
