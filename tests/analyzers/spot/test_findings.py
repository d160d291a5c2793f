"""What is advised to run on spot, what is refused and why, and what that saves."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.spot.analyzer import SpotAnalyzer
from analyzers.spot.market import SpotMarket
from analyzers.waterfall import build_waterfall
from fallow.models import Finding
from fallow.settings.workloads import SpotSettings
from fallow.window import Window
from tests.analyzers.goldens import agree

GOLDEN = Path(__file__).parent / "golden"
Fleet = Any
CHEAP = {"p5.48xlarge": {"us-east-1a": "13.76"}}
"""A quarter of list."""


def found(fleet: Fleet, **chosen: Any) -> list[Finding]:
    return SpotAnalyzer(SpotSettings(**chosen)).find(fleet.views, fleet.window)


def withheld(fleet: Fleet) -> dict[str, str]:
    rows = SpotAnalyzer().unjudged(fleet.views, fleet.window)
    return {u.subject.workload: "; ".join(u.reasons) for u in rows}


def fill(fleet: Fleet, given: dict[str, Any]) -> None:
    for node in given["nodes"]:
        fleet.node(**node)
    for pod in given["pods"]:
        fleet.pod(**{**pod, "hours": tuple(pod.get("hours", (0, 240)))})
    for one in given.get("writes", ()):
        fleet.writes(**one)
    for one in given.get("events", ()):
        fleet.event(*one)
    fleet.prices(given["spot"])


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_fleet_becomes_its_document(case: str, fleet: Fleet) -> None:
    fill(fleet, json.loads((GOLDEN / case / "site.json").read_text()))
    analyzer = SpotAnalyzer()
    agree(
        GOLDEN / case,
        analyzer.find(fleet.views, fleet.window),
        summary=analyzer.summary(fleet.views, fleet.window),
    )


def test_empty_tables_give_nothing(fleet: Fleet) -> None:
    assert found(fleet) == []
    assert withheld(fleet) == {}
    assert SpotAnalyzer().summary(fleet.views, fleet.window) == {"gpu_hours": {}, "usd": {}}


def job(fleet: Fleet, **more: Any) -> None:
    fleet.node("n0")
    fleet.pod("train-0", "n0", (0, 10), **more)


@pytest.mark.parametrize(
    ("zones", "advised"),
    [({"us-east-1a": "55.04"}, 0), ({"us-east-1a": "47"}, 0), ({"us-east-1a": "20"}, 1)],
)
def test_a_pool_without_a_real_discount_is_never_advised(
    fleet: Fleet, zones: dict[str, str], advised: int
) -> None:
    """Spot at the list price is no spot market, however tolerant the work."""
    job(fleet)
    fleet.prices({"p5.48xlarge": zones})
    assert len(found(fleet)) == advised
    assert withheld(fleet) == {}


def test_a_negotiated_price_below_spot_is_no_discount_either(fleet: Fleet) -> None:
    job(fleet)
    fleet.prices(CHEAP)
    fleet.views.engine.execute("UPDATE ledger SET usd = usd * 0.3")  # the site pays 30 % of list
    assert found(fleet) == []


def test_zones_are_ranked_by_the_price_of_an_hour_of_work(fleet: Fleet) -> None:
    job(fleet)
    fleet.prices({"p5.48xlarge": {"us-east-1a": "16", "us-east-1b": "13", "us-east-1c": "50"}})
    plan = found(fleet)[0].details["plans"][0]
    assert [z["zone"] for z in plan["zones"]] == ["us-east-1b", "us-east-1a"]
    assert plan["zones"][0]["usd_per_gpu_hour"] == 13 / 8


def test_the_saving_is_the_discount_less_what_is_done_twice(fleet: Fleet) -> None:
    """Ten hours from the beginning, a node that lives 24: 24/10 e^(.25/24) (e^(10/24) - 1)."""
    job(fleet)
    fleet.prices(CHEAP)
    advised = found(fleet)[0]
    plan = advised.details["plans"][0]
    assert plan["stretch"]["pessimistic"] == 1.2535
    assert plan["list_discount"] == 0.75
    assert plan["realised_saving"] == pytest.approx(1 - 0.25 * 1.2535, abs=1e-4)
    assert advised.usd == pytest.approx(Decimal("550.4") * Decimal("0.6866"), abs=Decimal("0.1"))
    assert advised.evidence == "suspected"


def test_long_work_from_the_beginning_is_not_worth_it_and_checkpoints_make_it_so(
    fleet: Fleet,
) -> None:
    fleet.node("n0")
    fleet.pod("train-0", "n0", (0, 120))
    fleet.prices(CHEAP)
    assert found(fleet) == []
    fleet.writes("train-0", 1.0)
    kept = found(fleet)[0]
    assert kept.details["signals"]["checkpoints"]["interval_h"] == 1.0
    assert kept.details["plans"][0]["stretch"]["pessimistic"] < 1.05


def test_checkpoints_on_the_nodes_own_disk_do_not_count(fleet: Fleet) -> None:
    fleet.node("n0")
    fleet.pod("train-0", "n0", (0, 120), notes={"fallow.local-volumes": ["scratch"]})
    fleet.writes("train-0", 1.0)
    fleet.prices(CHEAP)
    assert found(fleet) == []


def test_writing_all_the_time_is_no_checkpoint(fleet: Fleet) -> None:
    fleet.node("n0")
    fleet.pod("train-0", "n0", (0, 240))
    fleet.writes("train-0", 3 / 60, count=400)
    fleet.prices(CHEAP)
    assert "no checkpoint was seen" in withheld(fleet)["train"]


def test_a_gang_is_struck_as_often_as_it_has_nodes(fleet: Fleet) -> None:
    for n in range(4):
        fleet.node(f"n{n}")
        fleet.pod(f"train-{n}", f"n{n}", (0, 6))
    fleet.prices(CHEAP)
    plan = found(fleet)[0].details["plans"][0]
    assert plan["nodes_at_risk"] == 4
    assert plan["mtbf_hours_of_the_gang"] == 6
    assert plan["stretch"]["pessimistic"] == 1.7914  # e^(.25/6) (e - 1)


@pytest.mark.parametrize(
    ("kind", "notes", "said"),
    [
        ("StatefulSet", None, "it is unknown whether a StatefulSet bears an interruption"),
        ("PyTorchJob", {"fallow.dev/checkpoint-interval": "soon"}, "not a duration"),
        ("PyTorchJob", {"fallow.dev/deadline": "friday"}, "not a time"),
        ("PyTorchJob", {"fallow.dev/work-hours": "-3"}, "not hours above zero"),
        ("PyTorchJob", {"fallow.dev/deadline": "2026-12-01T00:00:00Z"}, "work-hours"),
        ("Notebook", None, None),
        ("Pod", None, None),
        ("PyTorchJob", {"karpenter.sh/do-not-disrupt": "true"}, None),
    ],
)
def test_what_is_unknown_is_withheld_and_what_is_forbidden_is_not_advised(
    fleet: Fleet, kind: str, notes: dict[str, Any] | None, said: str | None
) -> None:
    job(fleet, kind=kind, notes=notes)
    fleet.prices(CHEAP)
    assert found(fleet) == []
    assert (said or "") in withheld(fleet).get("train", "")
    assert bool(withheld(fleet)) == (said is not None)


def test_what_has_no_price_or_no_history_is_withheld(fleet: Fleet) -> None:
    fleet.node("n0", "p5e.48xlarge")
    fleet.node("n1", region="mars-1")
    fleet.pod("a", "n0", (0, 10), workload="unpriced")
    fleet.pod("b", "n1", (0, 10), workload="far")
    fleet.prices(CHEAP)
    assert withheld(fleet) == {
        "far": "no spot price of p5.48xlarge in mars-1 is known",
        "unpriced": "part of it has no price",
    }
    assert found(fleet) == []


def test_reserved_and_spot_hours_are_no_saving(fleet: Fleet) -> None:
    for n, bought in enumerate(("reserved", "spot")):
        fleet.node(f"n{n}", capacity_type=bought)
        fleet.pod(f"p{n}", f"n{n}", (0, 10), workload=bought)
    fleet.prices(CHEAP)
    assert found(fleet) == []
    hours = SpotAnalyzer().summary(fleet.views, fleet.window)["gpu_hours"]
    assert hours == {"on reserved already": 80.0, "on spot already": 80.0}


def test_silence_is_no_history(fleet: Fleet) -> None:
    """Spot nodes without an event are only safe where events are collected at all."""
    job(fleet)
    fleet.node("s0", capacity_type="spot")
    fleet.prices(CHEAP)
    assert found(fleet)[0].details["plans"][0]["risk"]["source"] == "published band"
    fleet.event("n0", 1, "NodeReady")
    measured = found(fleet)[0].details["plans"][0]["risk"]
    assert measured["source"] == "own events"
    assert measured["mtbf_hours"] == pytest.approx(240 / 2.9957, abs=0.01)


@pytest.mark.parametrize(("zones", "base"), [(1, 2), (2, 1), (3, 1)])
def test_a_service_keeps_what_must_outlive_its_worst_zone(
    fleet: Fleet, zones: int, base: int
) -> None:
    for n in range(4):
        fleet.node(f"n{n}", "p5.4xlarge")
        fleet.pod(f"web-{n}", f"n{n}", kind="Deployment", workload="web", gpus=1)
    fleet.prices({"p5.4xlarge": {f"us-east-1{z}": "2" for z in "abc"[:zones]}})
    fleet.node("s0", "p5.4xlarge", capacity_type="spot")
    fleet.event("n0", 1, "NodeReady")
    plan = found(fleet)[0].details["plans"][0]
    assert plan["on_demand_replicas"] == base
    assert plan["left_when_a_zone_goes"] >= 2
    assert plan["gpu_hours"] == 240 * (4 - base)


@pytest.mark.parametrize(
    ("covers", "told", "advised"),
    [("web", "b: minAvailable 1", False), ("other", "none", True)],
)
def test_a_service_without_a_disruption_budget_is_told_to_get_one(
    fleet: Fleet, covers: str, told: str, advised: bool
) -> None:
    fill(fleet, json.loads((GOLDEN / "replicas_published" / "site.json").read_text()))
    fleet.views.engine.execute('UPDATE pod SET labels = \'{"app": "web"}\'')
    rows = [
        {
            "cluster": "c", "namespace": "ns", "name": "b", "min_available": "1",
            "selector": json.dumps({"matchLabels": {"app": covers}}),
            "last_seen": fleet.at(fleet.hours),
        }
    ]  # fmt: skip
    fleet.views.rows("disruption_budget", rows)
    found = SpotAnalyzer().find(fleet.views, fleet.window)
    assert found
    for one in found:
        assert one.details["signals"]["disruption_budget"] == told
        caution = str(one.recommendations[0].caution)
        assert ("PodDisruptionBudget: none covers it" in caution) is advised


def test_a_deadline_is_kept_with_on_demand_where_spot_fails(fleet: Fleet) -> None:
    notes = {
        "fallow.dev/deadline": "2026-11-08T00:00:00Z",
        "fallow.dev/work-hours": "100",
        "fallow.dev/checkpoint-interval": "30m",
    }
    job(fleet, notes=notes)
    fleet.prices(CHEAP)
    late = found(fleet)[0]
    plan = late.details["plans"][0]
    assert late.kind == "spot_deadline"
    assert plan["deadlines_met"] == plan["traces"] == 200
    assert 0.25 < plan["cost_share_mean"] < 0.5
    assert plan["cost_share_worst"] < 1
    fleet.views.engine.execute("UPDATE pod SET annotations = replace(annotations, '100', '167')")
    assert found(fleet) == []  # no room


@pytest.mark.real_data
def test_real_price_changes_become_the_mean_of_the_time_they_held(
    fleet: Fleet, shared_data: Any
) -> None:
    history = pl.read_csv(
        shared_data("cloud/aws_p2p3_spot_price_us-east-1.csv"), try_parse_dates=True
    ).filter(pl.col("instance_type") == "p3.16xlarge")
    listed = fleet.rate("p3.16xlarge", "", "on-demand", "24.48")
    fleet.views.rows("rate", [listed | {"valid_from": datetime(1970, 1, 1)}])  # noqa: DTZ001
    fleet.views.rows(
        "rate",
        [
            fleet.rate("p3.16xlarge", row["az"], "spot", str(row["price_usd_hr"]))
            | {"valid_from": row["ts"]}
            for row in history.iter_rows(named=True)
        ],
    )
    window = Window(datetime(2020, 1, 10, tzinfo=UTC), datetime(2020, 3, 10, tzinfo=UTC))
    offers = SpotMarket(fleet.views, window, SpotSettings()).offers(
        ("aws", "us-east-1", "p3.16xlarge")
    )
    assert {o.zone for o in offers} == set(history["az"])
    for offer in offers:
        # By the minute instead of by the change: the same mean.
        grid = pl.DataFrame(
            {"ts": pl.datetime_range(window.start, window.end, "1m", closed="left", eager=True)}
        ).with_columns(pl.col("ts").dt.replace_time_zone(None).cast(pl.Datetime("us")))
        mine = history.filter(pl.col("az") == offer.zone).sort("ts").select("ts", "price_usd_hr")
        held = grid.join_asof(mine.with_columns(pl.col("ts").cast(pl.Datetime("us"))), on="ts")
        assert offer.usd_per_gpu_hour * 8 == pytest.approx(held["price_usd_hr"].mean(), rel=1e-4)
        assert offer.discount > 0.2


LIVES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 200),
        st.integers(1, 60),
        st.sampled_from(["PyTorchJob", "Deployment", "Notebook", "StatefulSet"]),
        st.sampled_from(["a", "b"]),
        st.floats(0, 1),
    ),
    max_size=8,
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIVES, st.integers(1, 60), st.booleans())
def test_work_on_spot_never_costs_less_than_its_price_and_saves_no_more_than_the_bill(
    fleet: Fleet, lives: list[tuple[int, int, int, str, str, float]], usd: int, events: bool
) -> None:
    for table in ("node", "pod", "ledger", "rate", "event"):
        fleet.views.engine.execute(f"DELETE FROM {table}")
    for n in range(2):
        fleet.node(f"n{n}")
    fleet.node("n2", capacity_type="spot", pool="spot")
    for number, (n, begin, length, kind, name, worked) in enumerate(lives):
        hours = (float(begin), float(min(begin + length, 240)))
        fleet.pod(f"p{number}", f"n{n}", hours, kind=kind, workload=f"{name}-{kind}",
                  phase="Failed" if number % 3 == 0 else None, worked=worked)  # fmt: skip
    if events:
        fleet.event("n2", 5, "SpotInterruption")
    fleet.prices({"p5.48xlarge": {"us-east-1a": str(usd)}})
    analyzer = SpotAnalyzer(SpotSettings(min_saving=0, min_gpu_hours=0, min_discount=0))
    made = analyzer.find(fleet.views, fleet.window)
    assert made == analyzer.find(fleet.views, fleet.window)
    apportioned_usd = build_waterfall(fleet.views, fleet.window, made)
    for finding in made:
        for plan in finding.details["plans"]:
            assert plan["stretch"]["pessimistic"] >= 1
            part = plan["gpu_hours"] * usd / 8  # what spot costs without an interruption
            kept = plan["paid_usd_per_gpu_hour"] * plan["gpu_hours"] - plan["saved_usd"]
            assert kept >= part - 0.02
        assert 0 < (finding.usd or 0) <= Decimal(repr(finding.details["paid_usd"])) + 1
        claimed = sum((c.usd or Decimal()) for c in finding.recommendations[0].claims)
        assert claimed <= (finding.usd or Decimal())
    assert (apportioned_usd.saved().usd or 0) <= (apportioned_usd.bill.usd or 0)
    advised = sum((f.usd or Decimal()) for f in made)
    assert (apportioned_usd.saved().usd or Decimal()) <= advised
