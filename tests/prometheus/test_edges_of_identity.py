"""Every GPU-hour at the edges of identity: whose node, whose board, whose hours.

A real Prometheus (`tests/servers/edges_world.py`), whose GPU-hours are known by hand.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from runtime.operations.doctor import nodes, unknown_names
from runtime.operations.ingestion.collection import drain, read_cursors
from tests.servers import prometheus as server
from tests.servers.edges_world import BOARDS, END, EXPORTER_ADDRESS, HOURS, START, TRUTH, history
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("prometheus-edges")
LATER = END + timedelta(hours=1)
WINDOW = Window(START, END)


@contextmanager
def collected(folder: Path, text: str) -> Iterator[Warehouse]:
    """Yield a warehouse that collected the day in two passes, as a service does."""
    data = server.blocks(text, folder / "prometheus")
    with server.serving(data) as url:
        flags = {"home": folder / "home", "cluster": "c", "prometheus.url": url}
        settings: Settings = load(environ={}, flags=flags).settings
        with Warehouse.open_in_memory(settings, clock=lambda: LATER) as warehouse:
            for window in (Window(START, START + timedelta(hours=4)), WINDOW):
                collector = PrometheusCollector(
                    settings.prometheus, "c", lambda: LATER, cursors=read_cursors(warehouse)
                )
                drain(warehouse, collector, window, lambda _what, _part: None)
                pipeline.account(warehouse, window)
            yield warehouse


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with collected(tmp_path_factory.mktemp("edges"), history()) as warehouse:
        yield warehouse


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Return the same site where nothing tells whose address the exporter's is."""
    with collected(tmp_path_factory.mktemp("nameless"), history(resolvable=False)) as warehouse:
        yield warehouse


def hours(warehouse: Warehouse) -> dict[tuple[str, str], float]:
    """Return the ledger's GPU-hours by node and state, more than a minute each."""
    rows = warehouse.query(
        "SELECT node, state, sum(gpu_seconds) / 3600 AS h FROM ledger"
        " WHERE bucket >= $since AND bucket < $until GROUP BY ALL",
        WINDOW.bounds(),
    ).to_pylist()
    return {(r["node"], r["state"]): r["h"] for r in rows if r["h"] > 1 / 60}


def test_every_gpu_hour_is_its_nodes_and_its_states(site: Warehouse) -> None:
    found = hours(site)
    for (node, state), expected in TRUTH.items():
        assert found.get((node, state), 0) == pytest.approx(expected, abs=0.35), (node, found)
    assert sum(found.values()) == pytest.approx(sum(BOARDS.values()) * HOURS, abs=0.5)
    (row,) = nodes.check_nodes(site, END)
    assert (row.check, "without telemetry" in row.finding) == ("unseen GPUs", True)
    assert {node for node, _ in found} == set(BOARDS)


def test_devices_of_an_address_nobody_knows_are_counted_once_and_named(
    nameless: Warehouse,
) -> None:
    found = hours(nameless)
    assert found[EXPORTER_ADDRESS, "free"] == pytest.approx(64, abs=0.35)
    assert ("npu-a", "unknown") not in found
    assert sum(found.values()) == pytest.approx(sum(BOARDS.values()) * HOURS, abs=0.5)
    rows = unknown_names.check_unknown_names(nameless, END, None)
    row = next(r for r in rows if r.check == "unresolved nodes")
    assert (row.status, f"{EXPORTER_ADDRESS} (0 pods, 0 nodes, 8 GPUs, c)" in row.finding) == (
        "warn",
        True,
    )


def test_a_node_that_shows_fewer_boards_than_it_has_is_a_finding(site: Warehouse) -> None:
    analyzer = analyzer_runs.load_analyzers(site.settings, ["reliability"])["reliability"]
    found = {f.subject.workload: f for f in analyzer.find(site, WINDOW) if f.kind == "missing_gpu"}
    assert {node: f.evidence for node, f in found.items()} == {
        "lost-a": "confirmed",
        "lost-b": "suspected",
    }
    assert [f.gpu_hours for f in found.values()] == pytest.approx([8, 8], abs=0.1)
    lost, unseen = (found[node].recommendations[0].claims for node in ("lost-a", "lost-b"))
    assert [(c.state, round(c.gpu_hours)) for c in lost] == [("unavailable", 8)]
    assert unseen == ()
