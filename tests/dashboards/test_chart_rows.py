"""Rows of charts and tables reach the browser as they are, without being checked one by one."""

import json
from decimal import Decimal
from typing import Any

import altair as alt
import pyarrow as pa
import pytest

from dashboards import charts, maps, page
from dashboards.figures import inbox
from dashboards.views import capacity_fragmentation
from fallow.texts import spell_out

ROWS = [
    {
        "cluster": "c", "pool": f"p{n // 40}", "node": f"n{n // 8}", "gpus": 1.0, "usd_h": 2.5,
        "state": "idle" if n % 3 else "free", "workload": "a/Job/b", "device": f"GPU-{n}",
    }
    for n in range(3_000)
]  # fmt: skip


def test_a_chart_has_the_same_document_as_with_rows_that_altair_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ROWS[:200]
    drawn = maps.draw_cells(rows, roles=(("device", "device"),)).to_dict()
    quick = charts.build_values

    def build_checked(records: Any) -> alt.InlineData:
        return alt.InlineData(values=[*quick(records)["values"]])

    monkeypatch.setattr(maps, "build_values", build_checked)
    checked = maps.draw_cells(rows, roles=(("device", "device"),)).to_dict()
    assert json.dumps(drawn) == json.dumps(checked)
    assert len(next(data for data in drawn["datasets"].values() if len(data) > 10)) == len(rows)


@pytest.mark.parametrize(
    "texts",
    [["a", "~ !", None, ""], ["a\u202eb", "x", None], ["tab\there"], ["x\x7fy"], ["é"], [], [None]],
)
def test_names_of_a_table_are_spelled_out_where_one_of_them_has_to_be(
    texts: list[str | None],
) -> None:
    column = pa.chunked_array([pa.array(texts, pa.string())])
    formatted = page._format_column(column, page.name("name")).to_pylist()
    assert formatted == [spell_out(text or "") for text in texts]


def test_states_of_one_colour_are_one_cell_of_a_node() -> None:
    row = {
        "cluster": "c", "pool": "p", "node": "n", "device": None, "state": "allocated",
        "gpus": 2.0, "usd_h": 4.0, "workload": "a/Job/b",
    }  # fmt: skip
    other = {**row, "gpus": 1.5, "usd_h": 3.0, "workload": "a/Job/c"}
    free = {**row, "state": "free", "workload": "(platform)"}
    merged = capacity_fragmentation._merge_states([row, other, free])
    assert merged == [{**row, "gpus": 3.5, "usd_h": 7.0, "workload": None}, free]
    (unpriced,) = capacity_fragmentation._merge_states([row, {**row, "usd_h": None}])
    assert (unpriced["usd_h"], unpriced["workload"]) == (None, "a/Job/b")
    devices = [{**row, "device": "GPU-1"}, {**row, "device": "GPU-2"}]
    assert capacity_fragmentation._merge_states(devices) == devices


def test_the_steps_of_the_overview_are_those_that_save_most() -> None:
    usd = {
        "a": ("5", "1"),
        "b": ("4",),
        "c": ("3", "2"),
        "d": (None,),
        "e": ("2",),
        "f": ("1",),
        "g": ("0.5",),
    }
    rows = [
        {
            "cluster": "c",
            "workload": name,
            "usd": None if amount is None else Decimal(amount),
            "gpu_hours": 1.0,
            "id": name,
            "analyzer": "spot",
            "verb": f"move {name}",
            "kind": "k",
            "team": name,
            "evidence": "confirmed",
        }
        for name, amounts in reversed(usd.items())
        for amount in amounts
    ]
    chosen = [(row["workload"], row["usd"]) for row in inbox.choose_steps(rows, 6)]
    assert chosen == [("a", 6), ("c", 5), ("b", 4), ("e", 2), ("f", 1), ("g", Decimal("0.5"))]
    unpriced = inbox.choose_steps([row for row in rows if row["usd"] is None], 6)
    assert [row["workload"] for row in unpriced] == ["d"], "hours are saved there too"


def test_all_idle_workloads_of_a_cluster_are_one_step_and_other_steps_go_by_their_verb() -> None:
    def row(number: int, analyzer: str, verb: str, usd: int, **more: str) -> dict[str, object]:
        names = {"cluster": "c", "workload": f"w{number}", "team": "red", "kind": "k"} | more
        names["evidence"] = "suspected" if number == 2 else "confirmed"
        return {
            **names, "analyzer": analyzer, "verb": verb, "usd": usd, "gpu_hours": 1.0,
            "id": f"{number}",
        }  # fmt: skip

    rows = [
        row(1, "idle", "notify owner", 3),
        row(2, "idle", "scale to zero", 4, team="blue"),
        row(3, "idle", "scale to zero", 2, cluster="other"),
        row(4, "quota", "pack", 1, workload="NodePool/a", team="(platform)"),
        row(6, "quota", "pack", 1, workload="NodePool/b", team="(platform)"),
        row(5, "quota", "lend", 5),
    ]
    steps = inbox.choose_steps(rows, 5)
    assert [(s["workload"], s["verb"], s["team"], s["usd"], s["evidence"]) for s in steps] == [
        ("2 idle workloads to free", "scale to zero, notify owner", None, 7, "partly suspected"),
        ("w5", "lend", "red", 5, "confirmed"),
        ("2 NodePools", "pack", "(platform)", 2, "confirmed"),
        ("w3", "scale to zero", "red", 2, "confirmed"),
    ]


def test_the_map_of_one_node_is_as_high_as_its_cells_below_the_legend() -> None:
    """A chart's height includes its legend: a map of one row had none left for its cells."""
    drawn = maps.draw_cells(ROWS[:1], roles=(("device", "device"),)).to_dict()
    cells = [row for data in drawn["datasets"].values() for row in data if "y2" in row]
    per_unit = maps.WIDTH_PX / maps.NARROWEST
    highest = max(cell["y2"] for cell in cells) * per_unit
    assert drawn["height"] >= maps.LEGEND_PX + highest
