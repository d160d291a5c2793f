"""Figures read the ledger's totals, and say exactly what its rows say."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dashboards.figures import (
    anomalies,
    bridge,
    chargeback,
    extent,
    health,
    heatmap,
    owner_workloads,
    quality,
    queues,
    spend,
    supply,
    timeline,
    units,
    waste,
    waterfall,
)
from dashboards.figures.query import Filters
from dashboards.figures.timeline import TimelineSubject
from fallow.window import Window
from warehouse import coverage, steps
from warehouse.lake import Warehouse
from warehouse.spend import KEYS, read_spend

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once

END = datetime(2026, 11, 16, tzinfo=UTC)
HOUR = timedelta(hours=1)
WHOLE_DAYS = Window(END - timedelta(days=3), END)
PARTS_OF_DAYS = Window(END - 50 * HOUR, END - 7 * HOUR)
INSIDE_ONE_DAY = Window(END - 20 * HOUR, END - 3 * HOUR)
OFFICE = heatmap.Office("Asia/Kolkata", 9, 17)
Figure = Callable[[Warehouse, Window, Filters], object]
HOURS = "SELECT date_trunc('hour', bucket) AS bucket, cluster, state, gpu_seconds, usd FROM ledger"


def by_key(figure: Callable[..., object], key: str, v: Warehouse, w: Window, f: Filters) -> object:
    return figure(v, w, f, key)


def command(key: str, v: Warehouse, w: Window, f: Filters) -> object:
    return read_spend(v, w, [key], f.view, share_unallocated=True)


FIGURES: dict[str, Figure] = {
    "anomalies.usual": anomalies.read_usual,
    "bridge": bridge.bridge,
    "chargeback.teams": chargeback.read_teams,
    "chargeback.lines": lambda v, w, f: chargeback.read_lines(v, w, f, "(platform)"),
    "extent": lambda v, _w, _f: extent.read_extent(v),
    "extent.names": lambda v, w, _f: {k: sorted(n) for k, n in extent.read_names(v, w).items()},
    "health.away": health.read_away,
    "heatmap.week": lambda v, w, f: heatmap.read_week(v, w, f, OFFICE),
    "heatmap.halves": lambda v, w, f: heatmap.read_halves(v, w, f, OFFICE),
    "heatmap.teams": lambda v, w, f: heatmap.read_teams(v, w, f, OFFICE),
    "owner_workloads": lambda v, w, f: owner_workloads.read_workloads(v, w, f, teams_of(v, w)),
    "quality": quality.read_ledger_doubts,
    "queues.hours": queues.read_hours,
    "spend.totals": spend.read_totals,
    "spend.daily": spend.read_daily,
    "spend.month": lambda v, w, f: spend.read_month(v, w.end, f),
    "supply.pools": supply.read_pools,
    "supply.states": supply.read_states,
    "supply.capacity": supply.read_capacity,
    "timeline.workloads": lambda v, w, f: timeline.find_workloads(v, w, f, ""),
    "timeline.nodes": lambda v, w, f: timeline.list_subjects(v, w, f, TimelineSubject(), "node"),
    "units.runs": units.read_runs,
    "units.served": units.read_served,
    "units.trained": units.read_trained,
    "waterfall": waterfall.compute_waterfall,
    **{f"spend.by {key}": partial(by_key, spend.read_by, key) for key in spend.KEYS},
    **{f"waste by {key}": partial(by_key, waste.read_by_owner, key) for key in waste.KEYS},
    **{f"units by {key}": partial(by_key, units.read_by_owner, key) for key in units.KEYS},
    **{f"fallow spend --by {key}": partial(command, key) for key in KEYS},
    "coverage": lambda v, w, _f: coverage.measure_coverage(v, w, {}),
    "newest hour": lambda v, _w, _f: coverage.find_newest(v, HOUR),
}


def teams_of(views: Warehouse, window: Window) -> tuple[str, ...]:
    return extent.read_names(views, window)["team"]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_the_totals_equals_the_figure_of_the_ledger(
    views: Warehouse, monkeypatch: pytest.MonkeyPatch, figure: str
) -> None:
    names = extent.read_names(views, WHOLE_DAYS)
    some = Filters(team=names["team"][1], model=names["model"][0], pool=names["pool"][0])
    cases = (
        (WHOLE_DAYS, Filters(view="gpu")),
        (PARTS_OF_DAYS, Filters()),
        (INSIDE_ONE_DAY, some),
    )
    answers = [plain(FIGURES[figure](views, *case)) for case in cases]
    read_ledger_alone(monkeypatch)
    for case, answer in zip(cases, answers, strict=True):
        assert_equal(answer, plain(FIGURES[figure](views, *case)))


def read_ledger_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every figure read the ledger's rows in the place of its totals."""
    load = steps.load_step

    def load_of_ledger(path: str, package: str = "warehouse") -> str:
        if path in {"totals/by_hour/ledger_lines", "totals/by_day/ledger_lines"}:
            path = "totals/by_device/ledger_lines"
        text = load(path, package)
        return text.replace("FROM ledger_1h", f"FROM ({HOURS})")

    monkeypatch.setattr(steps, "load_step", load_of_ledger)
    monkeypatch.setattr(coverage, "load_step", load_of_ledger)


def plain(answer: object) -> object:
    """Return an answer as plain values, rows in the order of their names: floats may tie."""
    if not isinstance(answer, pa.Table):
        return msgspec.to_builtins(answer, builtin_types=(datetime, Decimal))
    return sorted(
        answer.to_pylist(),
        key=lambda row: [str(v) for v in row.values() if not isinstance(v, float)],
    )


def assert_equal(answer: Any, expected: Any) -> None:
    """Compare exactly, but floats, whose sums have an order, to nine digits."""
    assert type(answer) is type(expected)
    if isinstance(answer, float):
        assert math.isclose(answer, expected, rel_tol=1e-9, abs_tol=1e-9)
    elif isinstance(answer, dict):
        assert answer.keys() == expected.keys()
        for key in answer:
            assert_equal(answer[key], expected[key])
    elif isinstance(answer, (list, tuple)):
        for one, other in zip(answer, expected, strict=True):
            assert_equal(one, other)
    else:
        assert answer == expected
