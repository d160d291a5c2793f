"""Rows of a fleet of several clusters name theirs; in a fleet of one the name would say nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from actions.plan import ActionPlan, RefusedCase
from fallow.action_models import Reason
from fallow.settings import Settings
from runtime.cli import run
from runtime.operations.acting.plan_rows import OWN_CLUSTER, plan_rows
from runtime.rendering.tables import render
from tests.dashboards.drawing import Draw, texts
from tests.reports import small
from warehouse.lake import Warehouse

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


@pytest.fixture
def equal_names(tmp_path: Path) -> Settings:
    """Return two clusters whose nodes, pools, namespaces and workloads have equal names."""
    tables = small.rows()
    for table, rows in tables.items():
        first = [row for row in rows if row["cluster"] == "alpha"]
        tables[table] = [
            row | {"cluster": cluster} | ({"id": f"{n:011x}{cluster[0]}"} if "id" in row else {})
            for cluster in ("alpha", "beta")
            for n, row in enumerate(first)
        ]
    return small.fill(tmp_path / "home", tables)


@pytest.mark.parametrize(
    ("view", "by"),
    [
        ("spend/By dimension", "pool"),
        ("spend/By dimension", "namespace"),
        ("spend/Waste by owner", "pool"),
        ("spend/Waste by owner", "namespace"),
        ("unit_cost/Productive GPU-hour", "pool"),
        ("unit_cost/Productive GPU-hour", "namespace"),
    ],
)
def test_pools_and_namespaces_of_one_name_in_two_clusters_are_two_rows(
    view: str, by: str, equal_names: Settings, draw: Draw
) -> None:
    def list_rows(**query: str) -> Any:
        tables = draw(view, equal_names, window="3d", by=by, **query).dataframe
        rows = next(t.value for t in tables if "name" in t.value.columns)
        return rows[rows["name"] != "total"]

    rows, alone = list_rows(), list_rows(cluster="beta")
    assert len(rows) == 2 * len(alone)
    assert set(rows.groupby("name")["cluster"].nunique()) == {2}
    assert "cluster" not in alone.columns
    hours = "gpu_hours" if "gpu_hours" in rows else "waste_gpu_hours"
    assert rows[hours].sum() == pytest.approx(2 * alone[hours].sum())


@pytest.mark.parametrize("by", ["pool", "namespace", "node"])
def test_spend_keeps_equal_names_of_two_clusters_apart(
    by: str, equal_names: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    until = f"{small.WINDOW.start:%Y-%m-%d}/{small.END:%Y-%m-%d}"
    home = ["--view", "gpu", "--window", until, "--home", str(equal_names.home), "-o", "json"]
    shown = {}
    for cluster in ([], ["--cluster", "beta"]):
        assert run(["spend", "--by", by, *home, *cluster]) == 0
        shown[len(cluster)] = json.loads(capsys.readouterr().out)["spend"]
    names = sorted((row[by], row["cluster"]) for row in shown[0])
    assert names == sorted((row[by], c) for row in shown[2] for c in ("alpha", "beta"))
    assert all("cluster" not in row for row in shown[2])


def test_a_table_on_a_narrow_terminal_keeps_the_cluster_of_equal_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [
        {"workload": "Job/ns/equal", "gpus": 8.0, "why": "no_fit", "hours": 1.5, "cluster": name}
        for name in ("alpha", "beta")
    ]
    assert [line.split()[-1] for line in render(rows, "table", noun="queue").splitlines()[1:3]] == [
        "alpha",
        "beta",
    ]
    assert "CLUSTER" not in render(rows[:1], "table", noun="queue")


@pytest.mark.parametrize("stopped", [("alpha",), ("alpha", "beta")])
def test_the_page_of_the_plan_names_the_cluster_in_which_nothing_is_done(
    stopped: tuple[str, ...], equal_names: Settings, draw: Draw
) -> None:
    with Warehouse.open(equal_names, write=True) as warehouse:
        for cluster in ("alpha", "beta"):
            subject = (cluster, "Job", "ns-vision", "job-vision")
            refused = RefusedCase("f", subject, "p", (Reason("evidence", "it is too little"),))
            aborted = {c: Reason("max-resources", f"too many in {c}") for c in stopped}
            settings = equal_names.model_copy(update={"cluster": cluster})
            rows = plan_rows(settings, ActionPlan((), (refused,), aborted), (), small.END)
            warehouse.replace("plan", rows.rows, OWN_CLUSTER, {"cluster": cluster})
    page = draw("actions/Plan", equal_names, window="3d")
    assert sorted(page.dataframe[0].value["cluster"]) == ["alpha", "beta"]
    warnings = [str(warning.value) for warning in page.warning]
    assert [c for c in ("alpha", "beta") if any(f"too many in {c}" in w for w in warnings)] == [
        *stopped
    ]
    assert all("in cluster" in warning for warning in warnings if "too many" in warning)


@pytest.mark.parametrize("view", ["spend/By dimension", "spend/Waste by owner"])
def test_workloads_of_one_name_in_two_clusters_are_two_rows(
    view: str, two_clusters: Settings, draw: Draw
) -> None:
    def list_rows(by: str, **query: str) -> Any:
        tables = draw(view, two_clusters, window="3d", by=by, **query).dataframe
        rows = next(t.value for t in tables if "name" in t.value.columns)
        return rows[rows["name"] != "total"]

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
