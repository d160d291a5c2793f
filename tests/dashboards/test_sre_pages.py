"""Pages for those who run the fleet: links lead on, names stay text, drawings are bounded."""

import itertools
import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from dashboards import links, maps
from dashboards import page as page_parts
from dashboards.charts import MOST_POINTS
from dashboards.figures import fleet
from fallow.settings import Settings
from tests.dashboards import sre_rows
from tests.dashboards.drawing import HOSTILE, Draw, stored, texts
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once

FAILED = "This part of the page failed"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a warehouse of the rows that are known by heart."""
    settings = Settings(home=tmp_path_factory.mktemp("small") / "home")
    with Warehouse.open(settings, write=True) as warehouse:
        found = sre_rows.together(
            sre_rows.finding("quota", "starved_queue", "poor", sre_rows.STARVED),
            sre_rows.finding("fragmentation", "fragmented_gpus", "p/H100", sre_rows.FRAGMENTED),
        )
        stored(warehouse, *sre_rows.fleet(), *sre_rows.pods(), *sre_rows.quotas(), found)
    return settings


def test_a_sick_node_stands_above_what_cost_more(tmp_path: Path, draw: Draw) -> None:
    settings = Settings(home=tmp_path / "home")
    why = {"why": "XID 79"}
    with Warehouse.open(settings, write=True) as warehouse:
        found = sre_rows.together(
            sre_rows.finding("reliability", "work_lost", "p", why, usd=Decimal(99)),
            sre_rows.finding("reliability", "sick_node", "n0", why, workload_kind="Node", usd=None),
        )
        stored(warehouse, *sre_rows.fleet(), *sre_rows.pods(), found)
    rows = draw("health", settings).dataframe[0].value
    assert rows["name"].to_list() == ["Node/n0", "Quota/p"]
    assert [*rows.columns][:3] == ["name", "usd", "kind"], "a phone shows what and dollars"


@pytest.mark.parametrize(("lost_h", "says"), [(3, True), (2, False)])
def test_hours_that_a_failure_lost_and_the_ledger_has_not_are_explained(
    lost_h: int, says: bool, tmp_path: Path, draw: Draw
) -> None:
    """The ledger has two hours of the pod as `lost`; in a third one its GPU was idle."""
    settings = Settings(home=tmp_path / "home")
    devices, ledger, samples = sre_rows.fleet()
    rows = ledger.rows.to_pylist()
    for row in [row for row in rows if row["device"] == "GPU-0"][-2:]:
        row["state"] = "lost"
    end = sre_rows.LAST + timedelta(hours=1)
    lost = {
        "cluster": "c", "namespace": "red", "pod": "train-0", "workload_kind": "Job",
        "workload": "train", "start": end - timedelta(hours=lost_h), "end": end - timedelta(0, 1),
        "cause": "device", "lost": float(lost_h), "basis": "measured",
    }  # fmt: skip
    with Warehouse.open(settings, write=True) as warehouse:
        ledger = sre_rows.batch("ledger", rows)
        stored(warehouse, devices, ledger, samples, sre_rows.batch("work_lost", [lost]))
    page = draw("health", settings)
    assert [m.value for m in page.metric if m.label == "Work lost"] == ["2.00 GPU-h"]
    (note,) = [text for text in texts(page) if "pods lost" in text]
    assert f"lost {lost_h}.00 GPU-h of work" in note
    assert ("2.00 GPU-h of it are `Work lost` above" in note) is says


@pytest.mark.parametrize(("node", "says"), [("n0", True), ("n1", False)])
def test_an_incident_that_holds_on_a_sick_node_is_explained(
    node: str, says: bool, tmp_path: Path, draw: Draw
) -> None:
    settings = Settings(home=tmp_path / "home")
    incident = {
        "id": "i", "cluster": "c", "start": sre_rows.LAST, "end": sre_rows.LAST,
        "known_at": sre_rows.LAST, "cause": "unknown", "class": "unknown", "step": "hold",
        "why": "too little evidence", "namespaces": "[]", "workloads": "[]",
        "nodes": json.dumps([node]), "devices": "[]", "gpus": 0.0, "evidence": "[]",
        "computed_at": sre_rows.LAST,
    }  # fmt: skip
    why = {"why": "XID 79"}
    with Warehouse.open(settings, write=True) as warehouse:
        sick = sre_rows.finding("reliability", "sick_node", "n0", why, workload_kind="Node")
        stored(warehouse, *sre_rows.fleet(), sick, sre_rows.batch("incident", [incident]))
    page = draw("health", settings, show="incidents")
    assert any("a finding above adds up all signs" in text for text in texts(page)) is says


def test_figures_that_a_filter_leaves_out_say_so(small: Settings, draw: Draw) -> None:
    rows = draw("queues", small, team="nobody-at-all").metric
    assert any("nothing is accounted for the filters" in str(m.delta) for m in rows)


def test_links_lead_from_node_to_device_to_workload(small: Settings, draw: Draw) -> None:
    wanted = opened(draw("fleet", small, show="nodes"))
    for subject, column in (("node", "of_device"), ("device", "of_workload"), ("workload", "")):
        assert subject in wanted
        page = draw("timeline", small, **wanted)
        assert not page.exception
        assert page.metric[0].value != "\\$0.00"
        assert len(page.get("vega_lite_chart")) >= 5
        if column:
            link = page.dataframe[0].value[column][0]
            assert urlsplit(link).path == "timeline"
            wanted = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}


@pytest.mark.parametrize(
    ("view", "show", "subject"),
    [
        ("fleet", "GPUs", "device"),
        ("fleet", "allocated, idle", "workload"),
        ("health", "XIDs", "device"),
        ("health", "events of nodes", "node"),
        ("mine/Workloads", "", "workload"),
    ],
)
def test_row_opens_its_timeline(  # noqa: PLR0917
    view: str, show: str, subject: str, small: Settings, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    openers: list[Callable[[int], None]] = []
    addresses: list[tuple[str, dict[str, str | None]]] = []
    show_table = page_parts.show_table

    def watched(*args: Any, **options: Any) -> None:
        openers.append(options["open_row"])
        assert "timeline" not in args[1], "a link in a cell beside a row that opens the same"
        show_table(*args, **options)

    monkeypatch.setattr(page_parts, "show_table", watched)
    monkeypatch.setattr(links, "open_page", lambda page, **names: addresses.append((page, names)))
    draw(view, small, **({"owner": "red"} if view.startswith("mine") else {"show": show}))
    openers[-1](0)
    ((address, names),) = addresses
    assert (address, bool(names[subject])) == ("timeline", True)


def opened(page: AppTest) -> dict[str, str]:
    """Choose the first row in the box of a page's last table; return what its timeline is of."""
    box = [box for box in page.selectbox if box.label.startswith("Open a row of: ")][-1]
    box.select_index(0).run()
    assert not page.exception
    address, names = page.session_state[links.TARGET]
    assert address == "timeline"
    return dict(names)


@pytest.mark.parametrize(
    ("view", "show", "said"),
    [
        ("queues", "blocked by", "greedy"),
        ("queues", "quotas", "ClusterQueue"),
        ("capacity", "workloads in the way", "red/Job/train"),
        ("capacity", "what fits", "p/H100"),
        ("health", "XIDs", "GPU-3"),
        ("health", "events of nodes", "NodeNotReady"),
    ],
)
def test_each_part_shows_its_table(
    view: str, show: str, said: str, small: Settings, draw: Draw
) -> None:
    page = draw(view, small, show=show)
    assert not page.exception
    assert not [text for text in texts(page) if FAILED in text]
    cells = {str(cell) for d in page.dataframe for cell in d.value.to_numpy().ravel()}
    assert said in cells


def test_plan_is_told_with_its_restarts(small: Settings, draw: Draw) -> None:
    page = draw("capacity", small)
    assert page.dataframe[0].value["pod"].to_list() == ["red/train-0"]
    result = [c.value for c in page.caption if "proven the fewest" in c.value]
    assert any("1 whole slots of 2 GPUs for 1 restarts" in text for text in result)


@pytest.mark.parametrize("name", HOSTILE)
def test_timeline_of_a_hostile_name_is_text(name: str, hostile: Settings, draw: Draw) -> None:
    page = draw("timeline", hostile, window="24h", workload=f"{name}/Job/{name}")
    assert not page.exception
    answer = [re.sub(r"\\.", "", text) for text in texts(page)]
    assert not [text for text in answer if FAILED in text or "<script" in text or "\u202e" in text]
    assert page.metric
    assert not any("\u202e" in str(cell) for cell in page.dataframe[0].value.to_numpy().ravel())


def test_nobody_has_a_timeline_that_says_so(small: Settings, draw: Draw) -> None:
    page = draw("timeline", small, workload="no/such/thing")
    assert any("Nothing is accounted for it" in info.value for info in page.info)
    assert not page.exception


def test_ten_thousand_gpus_are_few_enough_points_and_lie_apart() -> None:
    states = ("productive", "idle", "free")
    rows = [
        {"cluster": "c", "pool": f"p{n // 625}", "node": f"n{n:04}", "device": None,
         "state": state, "gpus": gpus, "usd_h": 1.0, "workload": None}
        for n in range(1250)
        for state, gpus in zip(states, (4.0, 3.0, 1.0), strict=True)
    ]  # fmt: skip
    assert len(rows) <= fleet.MOST_CELLS <= MOST_POINTS
    drawn = maps.draw_cells(rows).to_dict()
    sets = drawn.get("datasets") or {
        n: layer["data"]["values"] for n, layer in enumerate(drawn["layer"])
    }
    tiles = max(sets.values(), key=len)
    assert sum(t["x2"] - t["x"] for t in tiles) == pytest.approx(10_000)
    lines: dict[float, list[tuple[float, float]]] = {}
    for tile in tiles:
        lines.setdefault(tile["y"], []).append((tile["x"], tile["x2"]))
    for line in lines.values():
        line.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(line))
    assert drawn["height"] < 1200
