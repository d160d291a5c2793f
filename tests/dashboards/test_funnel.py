"""The funnel of the paid GPU-hours: its factors, their product, and its parts by job size."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboards.figures import funnel, spend, waste
from fallow.money import CENT
from fallow.settings import Settings
from tests.dashboards.drawing import Draw, stored
from tests.dashboards.sre_rows import batch
from tests.dashboards.test_figures import ALL, WINDOW
from warehouse.lake import Warehouse
from warehouse.steps import compose_query

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]
START = datetime(2026, 11, 15, tzinfo=UTC)
TABLES = {
    "overview": ("unavailable_usd", "waste_usd"),
    "spend": ("share_pct", "usd"),
    "spend/Waste by owner": ("unavailable_usd", "waste_usd"),
    "chargeback": ("shared_usd", "total_usd"),
}
"""A column of each table with a total, and that of its dollars."""


def test_the_product_of_the_factors_is_the_effective_share(views: Warehouse) -> None:
    whole = funnel.read_funnel(views, WINDOW, ALL).whole
    factors = [*whole.factors.values()]
    assert all(factor is not None and 0 <= factor <= 1 for factor in factors)
    assert whole.share == pytest.approx(math.prod(factors))  # type: ignore[arg-type]
    left = [share for _, _, share in whole.stages]
    assert left[-1] == whole.share
    assert all(after <= before for before, after in pairwise(left))  # type: ignore[operator]


def test_the_funnel_has_the_hours_and_dollars_of_spend_and_its_sizes_sum_to_the_allocated(
    views: Warehouse,
) -> None:
    hours, totals = funnel.read_funnel(views, WINDOW, ALL), spend.read_totals(views, WINDOW, ALL)
    whole = hours.whole
    assert whole.gpu_hours == pytest.approx(totals.gpu_hours)
    assert whole.usd is not None
    assert whole.usd.quantize(CENT) == totals.usd
    assert whole.active == pytest.approx(totals.busy)
    for name in ("allocated", "known", "busy", "measured", "effective", "useful"):
        parts = sum(getattr(part, f"{name}_gpu_hours") for part in hours.by_size)
        assert parts == pytest.approx(getattr(whole, f"{name}_gpu_hours")), name
    assert whole.allocated_gpu_hours == pytest.approx(totals.allocated_gpu_hours)
    assert {part.size for part in hours.by_size} <= {name for _, name in funnel.JOB_SIZES}


def test_a_job_has_the_size_that_it_held_at_once(tmp_path: Path) -> None:
    def allocate(device: int, begin: int, end: int | None, workload: str) -> dict[str, Any]:
        times = [None if hour is None else START + timedelta(hours=hour) for hour in (begin, end)]
        return {
            "cluster": "c", "device": f"GPU-{device}", "pod_uid": f"{workload}-{device}",
            "start": times[0], "end": times[1], "namespace": "a", "pod": workload,
            "workload_kind": "Job", "workload": workload, "team": "red", "share": 1.0,
            "attribution": "exact", "rule": "label",
        }  # fmt: skip

    rows = [
        *(allocate(device, 0, 4, "moved") for device in range(2)),
        *(allocate(device, 4, None, "moved") for device in range(2, 4)),
        *(allocate(device, 1, 2 + device, "grown") for device in range(4, 12)),
    ]
    bounds = {"since": START, "until": START + timedelta(days=1)}
    with Warehouse.open(Settings(home=tmp_path / "home"), write=True) as warehouse:
        stored(warehouse, batch("allocation", rows))
        sql = compose_query(("funnel/sizes",), "dashboards.figures")
        sizes = warehouse.query(sql, {k: v.replace(tzinfo=None) for k, v in bounds.items()})
    assert {row["workload"]: row["devices"] for row in sizes.to_pylist()} == {
        "a/Job/moved": 2,
        "a/Job/grown": 8,
    }


def test_what_is_not_measured_has_no_factor_and_ends_the_funnel() -> None:
    part = funnel.FunnelPart("", 10, Decimal(10), 8, 8, 4, 0, 0, 0)
    assert part.factors == {"allocated": 0.8, "active": 0.5, "effective": None, "useful": None}
    assert [share for _, _, share in part.stages] == [0.8, 0.4, None, None]
    assert part.share is None


@pytest.mark.parametrize("key", waste.KEYS)
def test_rows_of_spend_and_waste_foot_to_the_cent(views: Warehouse, key: str) -> None:
    totals = spend.read_totals(views, WINDOW, ALL)
    paid = spend.read_statement(views, WINDOW, ALL, key)
    assert sum(paid["usd"].to_pylist()) == totals.usd
    assert sum(paid["idle_usd"].to_pylist()) == totals.idle_usd
    wasted = waste.read_statement(views, WINDOW, ALL, key)
    assert sum(wasted["waste_usd"].to_pylist()) == totals.wasted_usd
    assert sum(wasted["idle_usd"].to_pylist()) == totals.idle_usd
    for row in wasted.to_pylist():
        parts = [row[f"{state}_usd"] for state in waste.STATES]
        assert sum(parts) == row["waste_usd"]
        assert all(usd == usd.quantize(CENT) for usd in parts)


@pytest.mark.parametrize("view", TABLES)
def test_a_table_begins_with_its_total_which_opens_nothing(
    view: str, fleet: Settings, draw: Draw
) -> None:
    mark, dollars = TABLES[view]
    page = draw(view, fleet)
    table = next(t.value for t in page.dataframe if {mark, dollars} <= {*t.value.columns})
    total, rows = table.iloc[0], table.iloc[1:]
    assert str(total.iloc[0]).startswith("total")
    assert total[dollars] == sum(rows[dollars])
    offered = [box for box in page.selectbox if box.label.startswith("Open a row of")]
    assert not [name for box in offered for name in box.options if name.startswith("total")]
