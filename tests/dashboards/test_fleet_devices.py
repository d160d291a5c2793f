"""Fleet at a time: each GPU with its telemetry, and unknown where no sample has it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboards.figures import fleet as fleet_figures
from dashboards.figures.query import Filters
from fallow.resources import read_table
from fallow.settings import Settings
from tests.dashboards.drawing import Draw, texts
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once
END = datetime(2026, 11, 16, tzinfo=UTC)
EARLIER = END - timedelta(hours=30, minutes=20)


def test_each_gpu_has_the_telemetry_of_its_five_minutes(views: Warehouse) -> None:
    rows = fleet_figures.read_devices(views, EARLIER, Filters()).to_pylist()
    bucket = (EARLIER - timedelta(minutes=5)).replace(tzinfo=None)
    stored = {
        row["device"]: row
        for row in views.query(
            "SELECT device, max(power_w_mean) AS power_w, max(sm_clock_mhz_mean) AS clock, "
            "count(*) AS parts FROM rollup_5m WHERE bucket = $bucket GROUP BY device",
            {"bucket": bucket},
        ).to_pylist()
    }
    assert len(rows) == len({row["device"] for row in rows}) > 30
    for row in rows:
        if row["no_samples"]:
            assert row["device"] not in stored
            assert row["power_w"] is row["activity_pct"] is None, "unknown is never 0"
        elif stored[row["device"]]["parts"] == 1:
            assert row["power_w"] == stored[row["device"]]["power_w"]
            assert row["clock_mhz"] == stored[row["device"]]["clock"]
    assert any(row["activity_pct"] for row in rows)


def test_gpus_in_trouble_come_first_then_by_node(views: Warehouse) -> None:
    rows = fleet_figures.read_devices(views, EARLIER, Filters()).to_pylist()

    def rank(row: dict[str, Any]) -> int:
        order = ("unavailable", "idle")
        if row["state"] in order:
            return order.index(row["state"])
        return 2 if row["state"] == "unknown" or row["no_samples"] else 3

    ranks = [rank(row) for row in rows]
    assert ranks == sorted(ranks)
    assert {1, 3} <= {*ranks}
    healthy = [(row["cluster"], row["node"], row["device"]) for row in rows if rank(row) == 3]
    assert healthy == sorted(healthy)


def test_the_time_in_the_address_is_the_time_of_the_page(fleet: Settings, draw: Draw) -> None:
    page = draw("fleet", fleet, at=f"{EARLIER:%Y-%m-%dT%H:%M}")
    assert not page.exception
    text = " ".join(texts(page))
    assert f"{EARLIER:%Y-%m-%d} 17:00 to 18:00 UTC" in text
    assert f"the five minutes up to {EARLIER:%Y-%m-%d %H:%M} UTC" in text
    table = page.dataframe[0].value
    assert {"activity_pct", "power_w", "temp_c", "memory_gb", "clock_mhz"} <= {*table.columns}


def test_every_gate_has_a_reason_and_what_would_change_it() -> None:
    words = {row["gate"]: row for row in read_table("dashboards", "gate_words.csv")}
    assert {*words} == {row["gate"] for row in read_table("actions", "gates.csv")}
    assert all(row["reason"] and row["change"] for row in words.values())
