"""What is kept in vain, and what is refused, with the reason."""

import json
import os
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.demand.analyzer import DemandAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.settings import load
from fallow.settings.capacity import DemandSettings
from fallow.window import Window
from runtime.operations.analysis.findings import document

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
Make = Callable[..., Any]


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.iterdir()))
def test_golden(name: str, make_demand: Make) -> None:
    given = json.loads((GOLDEN / name / "site.json").read_text())
    site = make_demand(days=given["days"])
    for start, hours, gpus in given["pods"]:
        site.pod(start, hours, gpus)
    for node in given["nodes"]:
        site.node(**node)
    for entry in given["ledger"]:
        site.post(**entry)
    found = DemandAnalyzer(DemandSettings(**given["settings"])).find(site.views, site.window)
    made = [document(f) for f in found]
    golden = GOLDEN / name / "findings.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(json.dumps(made, indent=2) + "\n")
    assert made == json.loads(golden.read_text())
    bill = build_waterfall(site.views, site.window, found)
    assert bill.saved().gpu_hours <= bill.bill.gpu_hours


def test_each_queues_forecast_or_its_refusal_is_told(make_demand: Make) -> None:
    site = make_demand(days=28)
    site.demand(lambda day, hour: 4 + (day * 7 + hour * 3) % 5, namespace="steady")
    site.demand(lambda day, _hour: 8 if day > 20 else 0, namespace="young", queue="lq")
    result = DemandAnalyzer().summary(site.views, site.window)["clusters"]["c"]
    assert result["history_days"] == 28
    assert set(result["forecasts"]) == {"(all)", "steady", "young/lq"}
    refused = {
        u.subject.workload: u.reasons[0] for u in DemandAnalyzer().unjudged(site.views, site.window)
    }
    for name, made in result["forecasts"].items():
        assert (name in refused) == (made["refused"] is not None)


def test_a_week_of_demand_is_the_least(make_demand: Make) -> None:
    site = make_demand(days=3)
    site.pod(0, 72, 4)
    site.post("n0", held=4, free=4)
    analyzer = DemandAnalyzer()
    assert analyzer.find(site.views, site.window) == []
    reasons = [u.reasons[0] for u in analyzer.unjudged(site.views, site.window)]
    assert reasons[0] == "3 days of demand: head-room needs 7"


def test_nothing_is_found_where_nothing_is_known(make_demand: Make) -> None:
    site = make_demand()
    assert DemandAnalyzer().find(site.views, site.window) == []
    assert DemandAnalyzer().unjudged(site.views, site.window) == []


def test_workloads_are_told_by_profile(make_demand: Make) -> None:
    site = make_demand(days=8, window_days=8)
    site.pod(0, 100, workload_kind="Notebook", workload="alice")
    for day in range(8):
        site.pod(day * 24 + 2, 3, workload=f"nightly-{day}")
    result = DemandAnalyzer().summary(site.views, site.window)
    assert {name: p["runs"] for name, p in result["profiles"].items()} == {"build": 1, "retrain": 8}


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [("least_skill", 1.5, "1"), ("lead", timedelta(0), "minute"), ("service_level", 1.0, "1")],
)
def test_illegal_thresholds_name_what_is_legal(key: str, value: object, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(environ={}, flags={f"demand.{key}": value})


@pytest.mark.parametrize(("waiting", "hours"), [(0, 96), (3, 24), (4, None)])
def test_head_room_is_kept_for_what_waits(
    make_demand: Make, waiting: int, hours: float | None
) -> None:
    """Four of eight GPUs are free all day and nothing arrives; what waits may need them."""
    site = make_demand(days=8)
    site.pod(0, 192, 4)
    if waiting:
        site.pod(150, 42, waiting, node=None, phase="Pending", scheduled_at=None)
    site.post("n0", held=4, free=4)
    found = DemandAnalyzer(DemandSettings(min_gpu_hours=0)).find(site.views, site.window)
    assert sum(f.gpu_hours for f in found if f.kind == "excess_headroom") == (hours or 0)
    for one in found:
        assert one.details["waiting_gpus"] == waiting
        assert f"keep {waiting:g} GPUs ready" in one.recommendations[0].why


def test_a_saturday_keeps_what_saturdays_request(make_demand: Make) -> None:
    """At 9 o'clock 14 GPUs are requested on working days and 4 at weekends.

    The window is the Saturday before the end: of 16 free GPUs 4 are kept at 9 o'clock, so that 12
    are in vain then, and none is kept in the other 23 hours: 23 x 16 + 12 = 380 GPU-hours.
    """
    site = make_demand(days=29, window_days=1)
    site.window = Window(site.window.start - timedelta(days=1), site.window.start)
    first = site.start.weekday()
    site.demand(lambda day, hour: (hour == 9) * (4 if (first + day) % 7 > 4 else 14))
    site.post("n0", held=0, free=16)
    settings = DemandSettings(min_gpu_hours=0, least_skill=0.99, service_level=0.9)
    (excess,) = [
        f for f in DemandAnalyzer(settings).find(site.views, site.window)
        if f.kind == "excess_headroom"
    ]  # fmt: skip
    kept = excess.details["keep_by_hour_utc"]
    assert [kept[24 * day + 9] for day in range(7)] == [14.0] * 5 + [4.0] * 2
    assert excess.gpu_hours == 380.0


def growing(make_demand: Make, gpus: float) -> Any:
    """Four weeks in which the level grows by a GPU every two days; today 17 of `gpus` are held."""
    site = make_demand(days=28)
    rng = random.Random(7)
    site.demand(lambda day, _hour: 4 + day // 2 + rng.choice([0, 1]))
    site.post("n0", held=17, free=gpus - 17)
    return site


@pytest.mark.parametrize("gpus", [17, 18, 19, 24, 64])
def test_no_report_lets_go_what_it_expects_to_be_asked_for(make_demand: Make, gpus: float) -> None:
    site = growing(make_demand, gpus)
    analyzer = DemandAnalyzer(DemandSettings(min_gpu_hours=0, least_skill=0, service_level=0.5))
    forecast = analyzer.summary(site.views, site.window)["clusters"]["c"]["forecasts"]["ns"]
    median = forecast["quantiles"]["0.5"]
    kinds = {f.kind: f for f in analyzer.find(site.views, site.window)}
    assert (gpus < 18.5) == (max(median) > gpus)
    assert ("demand_above_capacity" in kinds) == (max(median) > gpus)
    assert ("excess_headroom" in kinds) == (max(median) <= gpus)
    if excess := kinds.get("excess_headroom"):
        left = gpus - excess.gpu_hours / 24
        assert left >= sum(median) / 24 - 1e-3


@pytest.mark.parametrize(
    ("free", "kind", "change"), [(10, "quarter_surplus", -10), (0, None, 0)], ids=["half", "all"]
)
def test_the_quarter_gives_back_what_no_hour_needs(
    make_demand: Make, free: int, kind: str | None, change: int
) -> None:
    """Ten GPUs in every hour of 28 days; 20 are there at 2 USD: 10 x 2 x 730 = 14,600 USD."""
    site = make_demand(days=28)
    site.demand(lambda _day, _hour: 10)
    site.post("n1", held=10, free=free)
    found = [f for f in DemandAnalyzer().find(site.views, site.window) if "quarter" in f.kind]
    assert [f.kind for f in found] == ([kind] if kind else [])
    assert all((f.gpu_hours, f.usd) == (0.0, None) for f in found)
    told = DemandAnalyzer().summary(site.views, site.window)["clusters"]["c"]
    assert (told["quarter"]["change"], told["quarter"]["usd_month"]) == (change, change * 1460.0)
    assert (told["quarter"]["start"], told["quarter"]["need"]) == ("2026-11-02", 10.0)
    assert [t["more_gpus"] for t in told["wait_targets"]["targets"]] == [change] * 3
    assert told["wait_targets"]["trusted"] is True


def test_less_than_four_weeks_or_thirty_waits_are_refused_and_said(make_demand: Make) -> None:
    site = make_demand(days=27)
    site.pod(0, 27 * 24, 4)
    site.post("n1", held=4, free=4)
    said = [u.reasons[0] for u in DemandAnalyzer().unjudged(site.views, site.window)]
    assert "no plan of the quarter: 27 days of history: 28 are needed" in said
    assert "no targets of the wait: 1 waits: 30 are needed" in said
