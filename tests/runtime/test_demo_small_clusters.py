"""The demo's small clusters by themselves: their findings come from four simulated weeks."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from dashboards.figures import spend
from dashboards.figures.query import Filters
from fallow.models import Finding
from fallow.window import Window
from runtime.experiments import demo_small_clusters as small
from runtime.experiments.demo import END
from runtime.experiments.demo_home import replace_demo_home
from runtime.experiments.demo_plants import build_settings
from runtime.experiments.demo_process import load_demo_settings
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates
from runtime.operations.analysis import analyzer_runs
from tests.runtime.demo_kinds import read_demo_kinds
from warehouse.lake import Warehouse
from warehouse.spend import read_spend

WINDOW = Window(END - timedelta(days=7), END)
PAID_PER_HOUR = {
    # g5.24xlarge, 2 reserved g5.4xlarge, 3 g4dn.4xlarge, g6.12xlarge, 2 A30 at their own price
    "demo-west": Decimal("8.144") + 2 * Decimal("1.02") + 3 * Decimal("1.204")
    + Decimal("4.6016") + 2 * Decimal("0.62"),
    "demo-east": 2 * Decimal("1.204"),
}  # fmt: skip
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Yield a warehouse with the accounted rows of the small clusters."""
    home = tmp_path_factory.mktemp("small") / "demo"
    with replace_demo_home(home, build_settings(home, WINDOW)):
        settings = load_demo_settings(home)
        with Warehouse.open_in_memory(settings, clock=lambda: END) as opened:
            for cluster in small.CLUSTERS:
                priced = settings.model_copy(update={"cluster": cluster})
                pipeline.price(opened, read_configured_rates(priced, END))
            pipeline.ingest(opened, small.simulate_small_clusters(END, 1))
            _, failures = pipeline.account(opened, WINDOW)
            assert failures == []
            yield opened


@pytest.fixture(scope="module")
def findings(warehouse: Warehouse) -> list[Finding]:
    """Return what all analyzers find in their last week."""
    analyzers = analyzer_runs.load_analyzers(warehouse.settings)
    return analyzer_runs.run_analyzers(warehouse, WINDOW, analyzers, at_once=2).findings


def test_the_kinds_that_need_a_past_or_another_cluster_are_found(findings: list[Finding]) -> None:
    found = Counter((f.analyzer, f.kind, f.subject.cluster) for f in findings)
    planted = {
        (kind.analyzer, kind.kind, kind.cluster)
        for kind in read_demo_kinds()
        if kind.cluster in PAID_PER_HOUR
    }
    assert len(planted) == 16
    assert planted - {*found} == set()


def test_their_hours_and_dollars_are_those_of_their_nodes(warehouse: Warehouse) -> None:
    rows = read_spend(warehouse, WINDOW, ["cluster"]).to_pylist()
    assert {row["cluster"]: row["gpu_hours"] for row in rows} == pytest.approx(
        {"demo-west": 15 * 168, "demo-east": 2 * 168}
    )
    usd = {row["cluster"]: float(row["usd"]) for row in rows}
    assert usd == pytest.approx({c: float(168 * h) for c, h in PAID_PER_HOUR.items()}, abs=0.01)


def test_a_period_tells_how_many_clusters_it_has(warehouse: Warehouse) -> None:
    """Overview and reports compare no period with one of fewer clusters."""
    earlier = Window(END - timedelta(days=60), END - timedelta(days=53))
    for window, cluster, count in (
        (WINDOW, None, 2),
        (WINDOW, "demo-west", 1),
        (earlier, None, 0),
    ):
        totals = spend.read_totals(warehouse, window, Filters(cluster=cluster))
        assert totals.clusters == count


def test_one_end_is_one_history() -> None:
    once, again = (
        [
            batch
            for batch in small.simulate_cluster("demo-east", END.timestamp(), 1)
            if batch.table != "scrape"  # names the temporary file of the objects
        ]
        for _ in range(2)
    )
    assert all(a.rows.equals(b.rows) for a, b in zip(once, again, strict=True))
