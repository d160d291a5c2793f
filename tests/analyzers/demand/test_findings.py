"""What is kept in vain, and what is refused, with the reason."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.demand.analyzer import DemandAnalyzer
from analyzers.waterfall import fall
from fallow.errors import SettingsError
from fallow.settings import DemandSettings, load
from runtime.findings import document

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
    bill = fall(site.views, site.window, found)
    assert bill.saved().gpu_hours <= bill.bill.gpu_hours


def test_each_queues_forecast_or_its_refusal_is_told(make_demand: Make) -> None:
    site = make_demand(days=28)
    site.demand(lambda day, hour: 4 + (day * 7 + hour * 3) % 5, namespace="steady")
    site.demand(lambda day, _hour: 8 if day > 20 else 0, namespace="young", queue="lq")
    told = DemandAnalyzer().summary(site.views, site.window)["clusters"]["c"]
    assert told["history_days"] == 28
    assert set(told["forecasts"]) == {"(all)", "steady", "young/lq"}
    refused = {
        u.subject.workload: u.reasons[0] for u in DemandAnalyzer().unjudged(site.views, site.window)
    }
    for name, made in told["forecasts"].items():
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
    told = DemandAnalyzer().summary(site.views, site.window)
    assert {name: p["runs"] for name, p in told["profiles"].items()} == {"build": 1, "retrain": 8}


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [("least_skill", 1.5, "1"), ("lead", timedelta(0), "minute"), ("service_level", 1.0, "1")],
)
def test_illegal_thresholds_name_what_is_legal(key: str, value: object, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(environ={}, flags={f"demand.{key}": value})
