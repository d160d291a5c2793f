"""Parts of pages that people missed: signals of an incident, expired requests, GPUs by name."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from capacity.queue.reasons import list_reasons
from capacity.queue.records import WaitReason
from dashboards.figures import fleet as fleet_figures
from dashboards.figures import policy_actions
from dashboards.views import health_incidents, mine_coming
from fallow.settings import Settings
from tests.dashboards import sre_rows
from tests.dashboards.drawing import Draw, stored, texts
from tests.dashboards.test_figures import ALL, END
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]


def find_table(page: Any, *columns: str) -> Any:
    return next(t.value for t in page.dataframe if {*columns} <= {*t.value.columns})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a warehouse with a device that showed an XID, and clocks."""
    settings = Settings(home=tmp_path_factory.mktemp("small") / "home")
    with Warehouse.open(settings, write=True) as warehouse:
        stored(warehouse, *sre_rows.fleet(), *sre_rows.pods())
    return settings


def test_the_timeline_shows_temperature_clock_and_xids_beside_activity(
    small: Settings, draw: Draw
) -> None:
    page = draw("timeline", small, device="GPU-3", window="7d")
    drawn = {chart.proto.alt for chart in page.get("vega_lite_chart")}
    assert {"temp., °C over time", "SM clock, MHz over time", "XID over time"} <= drawn
    page = draw("timeline", small, device="GPU-2", window="7d")
    drawn = {chart.proto.alt for chart in page.get("vega_lite_chart")}
    assert "temp., °C over time" in drawn
    assert "XID over time" not in drawn, "it showed none"


def test_incidents_of_unknown_cause_are_folded() -> None:
    rows = [{"id": n, "cause": cause} for n, cause in enumerate(["unknown", "heat", "unknown"])]
    assert health_incidents._fold_unknown(rows) == [rows[1]]
    alone = [rows[0], rows[2]]
    assert health_incidents._fold_unknown(alone) == alone, "else the page would be empty"


def test_requests_expire_with_their_case_and_their_owner_reads_of_both(
    fleet: Settings, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {
            "id": number, "cluster": "demo", "subject": "a/Notebook/nb", "verb": "stop",
            "policy": "reclaim", "finding": "f", "requested_at": END, "requested_by": "fallow",
            "approved_by": None, "owner": "vision", "namespace": "a", "gpus": 1.0,
            "usd_per_day": 10, "planned": number == "waits",
        }
        for number in ("waits", "gone")
    ]  # fmt: skip
    monkeypatch.setattr(policy_actions, "read_waiting", lambda *_: pa.Table.from_pylist(rows))
    page = draw("actions/Approvals", fleet)
    assert any(text.startswith("1 older request expired") for text in texts(page))
    (box,) = [box for box in page.selectbox if box.label == "Request"]
    assert len(box.options) == 1
    mine = draw("mine/What is coming", fleet, owner="vision")
    table = find_table(mine, "requested_at", "says")
    assert [*table["says"]] == [mine_coming.WAITS, mine_coming.EXPIRED]
    other = draw("mine/What is coming", fleet, owner="genai")
    assert not [t for t in other.dataframe if "requested_at" in t.value.columns]


def test_the_fleet_finds_gpus_by_a_part_of_a_name_and_draws_them_over_time(
    views: Warehouse, fleet: Settings, draw: Draw
) -> None:
    every = fleet_figures.read_devices(views, END, ALL).to_pylist()
    wanted = every[0]["device"]
    page = draw("fleet", fleet)
    (box,) = [box for box in page.text_input if box.label == "Find GPUs"]
    table = find_table(box.set_value(wanted[-8:].upper()).run(), "device", "state")
    assert [*table["device"]] == [row["device"] for row in every if wanted[-8:] in row["device"]]
    over_time = draw("fleet", fleet, show="over time")
    drawn = {chart.proto.alt for chart in over_time.get("vega_lite_chart")}
    assert "GPUs by what they did, over time" in drawn
    assert "temp., °C of all GPUs over time" in drawn


def test_the_quota_that_binds_comes_first() -> None:
    reasons = [
        WaitReason(name, f"{name} says so", "event")
        for name in ("no_fit", "node_selector", "quota")
    ]
    answer: Any = SimpleNamespace(answer="unknown", why="", places=(), key=("c",))
    ordered = list_reasons(reasons, answer)
    assert [reason.reason for reason in ordered] == ["quota", "no_fit", "node_selector"]
