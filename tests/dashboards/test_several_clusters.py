"""Rows of a fleet of several clusters name theirs; in a fleet of one the name would say nothing."""

from pathlib import Path

import pytest

from fallow.settings import Settings
from tests.dashboards.drawing import Draw, texts
from tests.reports import small

WORKLOAD = "ns-vision/Job/job-vision"


@pytest.fixture
def two_clusters(tmp_path: Path) -> Settings:
    """Return a fleet in which a workload of one name has a finding in each of two clusters."""
    tables = small.rows()
    found = tables["finding"][0]
    tables["finding"] = [
        found | {"cluster": cluster, "id": f"{n:012x}"}
        for n, cluster in enumerate(("alpha", "beta"))
    ]
    return small.fill(tmp_path / "home", tables)


@pytest.mark.parametrize(
    ("view", "query"),
    [("findings", {}), ("mine/Workloads", {"owner": "vision"}), ("unit_cost/Runs", {})],
)
def test_rows_name_their_cluster_unless_the_filter_does(
    view: str, query: dict[str, str], two_clusters: Settings, draw: Draw
) -> None:
    rows = draw(view, two_clusters, window="3d", **query).dataframe[0].value
    same = rows[rows["workload"] == WORKLOAD]
    assert sorted(same["cluster"]) == ["alpha", "beta"]
    filtered = draw(view, two_clusters, window="3d", cluster="beta", **query).dataframe[0].value
    assert "cluster" not in filtered.columns


def test_a_step_of_the_overview_and_an_open_finding_name_their_cluster(
    two_clusters: Settings, draw: Draw
) -> None:
    def list_steps(**query: str) -> list[str]:
        page = draw("overview", two_clusters, window="3d", **query)
        return [text for text in texts(page) if "suspend" in text]

    assert [
        [name for name in ("alpha", "beta") if f"cluster \u2068{name}\u2069" in step]
        for step in list_steps()
    ] == [["alpha"], ["beta"]]
    assert [step for step in list_steps(cluster="beta") if "cluster" not in step]
    whole = " ".join(texts(draw("findings", two_clusters, window="3d", finding=f"{1:012x}")))
    assert "cluster \u2068beta\u2069" in whole
