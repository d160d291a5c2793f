"""Figures for those who run the fleet: known rows give known numbers, and all of it adds up."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from dashboards.figures import (
    fleet,
    fragmentation,
    health,
    heatmap,
    queues,
    spend,
    timeline,
)
from dashboards.figures.query import Filters
from dashboards.figures.timeline import TimelineSubject
from fallow.errors import UsageError
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.analysis.pending import explain_why_pending
from tests.dashboards import sre_rows
from tests.dashboards.drawing import stored
from tests.dashboards.sre_rows import END, JOB, LAST
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once

DAY = Window(END - timedelta(days=1), END)
HOUR = Window(END - timedelta(hours=1), END)
ALL = Filters()
OFFICE = heatmap.Office("UTC", 8, 20)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Return a warehouse of the rows that are known by heart."""
    settings = Settings(home=tmp_path_factory.mktemp("sre") / "home")
    with Warehouse.open_in_memory(settings) as warehouse:
        stored(
            warehouse,
            *sre_rows.fleet(),
            *sre_rows.pods(),
            *sre_rows.quotas(),
            sre_rows.together(
                sre_rows.finding("quota", "starved_queue", "poor", sre_rows.STARVED),
                sre_rows.finding("fragmentation", "fragmented_gpus", "p/H100", sre_rows.FRAGMENTED),
            ),
        )
        yield warehouse


def test_fleet_now_is_the_newest_hour_of_the_bill(known: Warehouse) -> None:
    paces = {pace.state: pace for pace in fleet.read_states(known, END, ALL)}
    bill = {r["name"]: r for r in spend.read_by(known, HOUR, ALL, "state").to_pylist()}
    assert {s: (p.gpu_hours, p.usd) for s, p in paces.items()} == {
        s: (r["gpu_hours"], r["usd"]) for s, r in bill.items()
    }
    assert {s: (p.gpus, p.usd_h) for s, p in paces.items()} == dict.fromkeys(
        ("productive", "idle", "free", "unavailable"), (1.0, Decimal(2))
    )
    cells = fleet.read_cells(known, END, ALL).to_pylist()
    assert [(c["node"], c["device"], c["state"]) for c in cells] == [
        ("one", "GPU-1", "idle"),
        ("one", "GPU-0", "productive"),
        ("two", "GPU-2", "free"),
        ("two", "GPU-3", "unavailable"),
    ]
    nodes = fleet.read_nodes(known, END, ALL).to_pylist()
    assert [(n["node"], n["gpus"], n["idle_usd_h"], n["free_gpus"]) for n in nodes] == [
        ("one", 2.0, Decimal(2), 0.0),
        ("two", 2.0, Decimal(0), 1.0),
    ]
    (holder,) = fleet.read_holders(known, END, ALL).to_pylist()
    assert (holder["workload"], holder["idle_gpus"], holder["idle_usd_h"]) == (JOB, 1.0, 2)


def test_gpus_of_a_large_fleet_are_cells_of_a_node_and_state(
    known: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "MOST_CELLS", 3)
    cells = fleet.read_cells(known, END, ALL).to_pylist()
    assert {c["device"] for c in cells} == {None}
    assert len(cells) == 3, "never more points than a browser takes"
    assert {c["node"] for c in cells if c["state"] in ("idle", "productive")} == {"one"}


def test_an_hour_that_is_not_over_is_told_at_its_pace(tmp_path: Path) -> None:
    rows = sre_rows.fleet(hours=1)
    ledger = rows[1].rows.to_pylist()
    half = [{**r, "seconds": 1800.0, "gpu_seconds": 1800.0, "usd": Decimal(1)} for r in ledger]
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, rows[0], sre_rows.batch("ledger", half))
        paces = {p.state: p for p in fleet.read_states(warehouse, END, ALL)}
    idle = paces["idle"]
    assert (idle.gpus, idle.usd_h, idle.usd) == (1.0, Decimal(2), Decimal(1))


@pytest.mark.parametrize(
    "whose",
    [TimelineSubject(workload=JOB), TimelineSubject(node="one"), TimelineSubject(device="GPU-1")],
)
def test_timeline_sums_to_the_bill(known: Warehouse, whose: TimelineSubject) -> None:
    made = timeline.read_totals(known, DAY, ALL, whose)
    states = timeline.read_states(known, DAY, ALL, whose).to_pylist()
    places = timeline.read_places(known, DAY, ALL, whose).to_pylist()
    assert made.usd == sum(r["usd"] for r in states) == sum(r["usd"] for r in places)
    assert made.idle_usd == 48
    if whose.workload:
        bill = {r["name"]: r["usd"] for r in spend.read_by(known, DAY, ALL, "workload").to_pylist()}
        assert made.usd == bill[JOB] == 96
    assert {r["gpus"] for r in states} == {1.0}
    assert {r["usd_h"] for r in states} == {2.0}


def test_timeline_tells_what_devices_did_while_they_were_held(known: Warehouse) -> None:
    rows = timeline.read_measures(
        known, Window(END - timedelta(days=2), END), ALL, TimelineSubject(JOB)
    )
    by = {r["at"]: r for r in rows.to_pylist()}
    held, before = by[LAST], by[LAST - timedelta(hours=10)]
    assert (held["activity_pct"], held["most_pct"]) == (25.0, 75.0)
    assert (held["power_w"], held["memory_gb"], held["devices"]) == (300.0, 2.0, 2)
    assert before["activity_pct"] is None, "it held nothing then"
    node = timeline.read_measures(
        known, Window(END - timedelta(days=2), END), ALL, TimelineSubject(node="two")
    )
    assert node.to_pylist()[-1]["power_w"] == 700.0


def test_timeline_tells_what_happened(known: Warehouse) -> None:
    job = timeline.read_events(known, DAY, ALL, TimelineSubject(workload=JOB)).to_pylist()
    assert [e["kind"] for e in job] == ["pod placed", "pod created"]
    node = timeline.read_events(known, DAY, ALL, TimelineSubject(node="two")).to_pylist()
    assert [(e["kind"], e["detail"]) for e in node] == [
        ("NodeNotReady", "Node two: kubelet stopped posting")
    ]
    assert not timeline.read_events(known, DAY, ALL, TimelineSubject(workload="nobody")).num_rows


def test_who_waits_is_who_has_no_place_and_is_still_there(known: Warehouse) -> None:
    (row,) = queues.read_waiting(known, DAY, ALL).to_pylist()
    assert (row["workload"], row["gpus"], row["hours"]) == ("red/Job/big", 8.0, 5.0)
    assert row["gpu_hours"] == 40.0
    assert "Insufficient" in row["message"]
    earlier = Window(DAY.start, LAST.replace(tzinfo=END.tzinfo) - timedelta(hours=3))
    names = {r["workload"] for r in queues.read_waiting(known, earlier, ALL).to_pylist()}
    assert names == {"red/Job/big", "red/Job/gone"}


def test_the_page_has_the_record_of_why_pending(known: Warehouse) -> None:
    (row,) = queues.read_waiting(known, DAY, ALL).to_pylist()
    records = queues.read_queue(known, DAY)
    record, _ = explain_why_pending(known, "big", at=DAY.end, cluster=None)
    among_all = records[row["cluster"], row["workload"]]
    assert among_all.at_once is False
    assert msgspec.structs.replace(among_all, at_once=None) == record, "asked for alone"
    assert record.gpus == row["gpus"] == 8.0
    assert record.cheapest_way is None, "the fleet has four GPUs"


@pytest.mark.parametrize("key", queues.KEYS)
def test_waits_sum_to_what_was_waited_for(known: Warehouse, key: str) -> None:
    rows = queues.read_waits(known, DAY, ALL, key).to_pylist()
    assert sum(r["gpu_hours"] for r in rows) == 2 * 1 + 8 * 5 + 1 * 2
    assert sum(r["placed"] for r in rows) == sum(r["waiting"] for r in rows) == 1
    assert [r["p50_minutes"] for r in rows if r["placed"]] == [60.0]
    hourly = queues.read_hours(known, DAY, ALL).to_pylist()
    assert sum(r["waiting_gpus"] for r in hourly) == pytest.approx(44)
    assert {(r["free_gpus"], r["idle_gpus"]) for r in hourly} == {(1.0, 1.0)}
    hours = queues.list_demand(known, DAY, ALL)  # of four GPUs two are allocated, none measured
    assert {h.effective_gpus for h in hours} == {None}
    assert {(h.paid_gpus, h.allocated_gpus) for h in hours} == {(4.0, 2.0)}
    assert sum(h.demand_gpus or 0 for h in hours) == pytest.approx(44 + 24 * 2)


def test_borrowers_stand_beside_whom_they_starve(known: Warehouse) -> None:
    pairs = queues.read_pairs(known, DAY, ALL)
    assert [(p.waits, p.because_of, p.gpu_hours) for p in pairs] == [
        ("poor", "greedy", 6.0),
        ("poor", "other", 3.0),
    ]
    (quota,) = queues.read_quotas(known, DAY, ALL).to_pylist()
    assert (quota["name"], quota["nominal"], quota["used"], quota["waiting"]) == ("q", 4, 3, 8)


def test_fragmentation_tells_the_plan_of_the_last_analysis(known: Warehouse) -> None:
    (pool,) = fragmentation.read_pools(known, DAY, ALL)
    assert (pool.unusable_gpus, pool.usd) == (2.0, Decimal(24))
    assert pool.causes == (("lack_cpu", 1.5), ("lack_gpu", 0.5))
    assert sum(gpus for _, gpus in pool.causes) == pool.unusable_gpus
    assert pool.packing == ((1, 3, None), (8, 0, 0.0))
    assert pool.plan.moves == (fragmentation.PodMove("red/train-0", 2.0, "one", "two"),)
    assert pool.plan.proven
    assert not fragmentation.read_pools(known, DAY, Filters(pool="another"))


def test_a_document_of_another_version_is_no_failure(tmp_path: Path) -> None:
    odd = {"plan": [], "by_cause": 3, "packing": {"x": 1, "2": None}, "caused_by": "nobody"}
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, sre_rows.finding("fragmentation", "fragmented_gpus", "p", odd))
        (pool,) = fragmentation.read_pools(warehouse, DAY, ALL)
    assert (pool.idle_gpus, pool.plan.moves, pool.packing) == (0.0, (), ((2, 0, None),))


def test_hours_of_the_week_sum_to_the_bill(known: Warehouse) -> None:
    rows = heatmap.read_week(known, DAY, ALL, OFFICE).to_pylist()
    halves = heatmap.read_halves(known, DAY, ALL, OFFICE)
    bill = spend.read_totals(known, DAY, ALL)
    assert sum(r["usd"] for r in rows) == sum(p.usd or 0 for p in halves) == bill.usd == 192
    assert {(r["weekday"], r["idle_pct"], r["productive_pct"]) for r in rows} == {(7, 25.0, 25.0)}
    assert [p.in_office for p in halves] == [False], "a Sunday has no office hours"
    (team,) = heatmap.read_teams(known, DAY, ALL, OFFICE).to_pylist()
    assert (team["team"], team["idle_usd"], team["outside_pct"]) == ("red", 48, 100.0)


def test_office_hours_are_those_of_a_place(known: Warehouse) -> None:
    """The day is a Sunday in Greenwich; on Kiritimati its second part is Monday already."""
    bill = spend.read_totals(known, DAY, ALL).usd
    office = heatmap.Office("Pacific/Kiritimati", 0, 10)
    here = heatmap.read_halves(known, DAY, ALL, office)
    assert [(p.in_office, p.hours) for p in here] == [(True, 10), (False, 14)]
    assert sum(p.usd or 0 for p in here) == bill
    rows = heatmap.read_week(known, DAY, ALL, office).to_pylist()
    assert {(r["weekday"], r["hour"]) for r in rows} == {
        *((7, h) for h in range(14, 24)),
        *((1, h) for h in range(14)),
    }


def test_health_tells_what_was_away_struck_and_slow(known: Warehouse) -> None:
    (away,) = health.read_away(known, DAY, ALL).to_pylist()
    state = {r["name"]: r for r in spend.read_by(known, DAY, ALL, "state").to_pylist()}
    assert (away["node"], away["unavailable_usd"]) == ("two", state["unavailable"]["usd"])
    (xid,) = health.read_xids(known, DAY, ALL).to_pylist()
    assert (xid["device"], xid["xid"], xid["hours"]) == ("GPU-3", 79, 2)
    assert (xid["severity"], xid["meaning"]) == ("fatal", "GPU has fallen off the bus")
    for filters in (Filters(model="H100"), Filters(pool="p"), Filters(cluster="c", pool="p")):
        assert health.read_xids(known, DAY, filters).to_pylist() == [xid]
    (slow,) = health.read_clocks(known, DAY, ALL).to_pylist()
    assert (slow["device"], slow["slower_pct"], slow["hot_pct"]) == ("GPU-3", 50.0, 25.0)
    assert slow["reasons"] == "hardware too hot"
    (event,) = health.read_events(known, DAY, ALL).to_pylist()
    assert (event["node"], event["reason"]) == ("two", "NodeNotReady")


def test_filters_take_away_what_is_not_asked_for(known: Warehouse) -> None:
    nobody = Filters(team="nobody")
    assert fleet.read_states(known, END, nobody) == ()
    for rows in (
        fleet.read_cells(known, END, nobody),
        health.read_xids(known, DAY, nobody),
        health.read_events(known, DAY, nobody),
        queues.read_waiting(known, DAY, nobody),
        heatmap.read_week(known, DAY, nobody, OFFICE),
        timeline.read_places(known, DAY, nobody, TimelineSubject(node="one")),
    ):
        assert rows.num_rows == 0
    assert not queues.read_pairs(known, DAY, nobody)


def test_unknown_keys_name_the_legal_ones(known: Warehouse) -> None:
    with pytest.raises(UsageError, match="cannot group waits") as refused:
        queues.read_waits(known, DAY, ALL, "colour")
    assert "team" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="no timeline") as refused:
        timeline.list_subjects(known, DAY, ALL, TimelineSubject(), "colour")
    assert "workload" in (refused.value.hint or "")
