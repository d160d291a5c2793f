"""Rows of a fleet of several clusters name theirs; in a fleet of one the name would say nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import Settings
from runtime.cli import run
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


@pytest.mark.parametrize("view", ["spend/By dimension", "spend/Waste by owner"])
def test_workloads_of_one_name_in_two_clusters_are_two_rows(
    view: str, two_clusters: Settings, draw: Draw
) -> None:
    def list_rows(by: str, **query: str) -> Any:
        tables = draw(view, two_clusters, window="3d", by=by, **query).dataframe
        return next(t.value for t in tables if "name" in t.value.columns)

    rows = list_rows("workload")
    assert sorted(rows[rows["name"] == WORKLOAD]["cluster"]) == ["alpha", "beta"]
    hours = "gpu_hours" if "gpu_hours" in rows else "waste_gpu_hours"
    assert rows[hours].sum() == pytest.approx(list_rows("cluster")[hours].sum())
    assert "cluster" not in list_rows("team").columns
    assert "cluster" not in list_rows("workload", cluster="beta").columns


@pytest.mark.parametrize(
    ("more", "named"), [([], True), (["--cluster", "beta"], False)], ids=["both", "one"]
)
def test_spend_by_workload_keeps_two_clusters_apart(
    more: list[str], *, named: bool, two_clusters: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    until = f"{small.WINDOW.start:%Y-%m-%d}/{small.END:%Y-%m-%d}"
    home = ["--view", "gpu", "--home", str(two_clusters.home), "-o", "json", *more]
    assert run(["spend", "--by", "workload", "--window", until, *home]) == 0
    body = json.loads(capsys.readouterr().out)
    same = [row for row in body["spend"] if row["workload"] == WORKLOAD]
    assert [row.get("cluster") for row in same] == (["alpha", "beta"] if named else [None])
    assert sum(row["usd"] for row in body["spend"]) == pytest.approx(body["total"]["usd"])
