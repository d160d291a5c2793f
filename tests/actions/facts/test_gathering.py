"""What stored rows say about a case: nothing later than its moment, and unknown is never false."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from actions.facts import fleet, gather
from fallow.acting import Facts, History
from fallow.nouns import Recommendation, Subject
from fallow.window import Window
from tests.actions.cases import NOW, finding
from tests.actions.facts.test_waiting import THEN, Floor
from tests.analyzers.conftest import Memory

HOUR = timedelta(hours=1)
TOLD = {"actionable": True, "reasons": [], "coverage": 0.99, "read_from": "sample"}


@pytest.fixture
def floor() -> Iterator[Floor]:
    memory = Memory()
    yield Floor(memory)
    memory.engine.close()


def facts(floor: Floor, **changes: Any) -> Facts:
    details = TOLD | changes.pop("details", {})
    case = finding("Notebook", details=details, **changes)
    (made,) = gather(floor.views, [case], NOW)
    return made


def test_a_case_has_its_pods_devices_and_node(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.holds(
        "w", ["n1/0", "n1/1"], team="team-red", queue="q", priority_class="low",
        labels=json.dumps({"app": "w", "x": "1"}),
        annotations=json.dumps({"fallow.dev/keep": "true", "fallow.pvcs": ["home"]}),
    )  # fmt: skip
    made = facts(floor)
    assert (made.gpus, made.models, made.uid, made.owner) == (2.0, ("H100",), "w", "team-red")
    assert (made.queue, made.priority_class, made.labels) == ("q", "low", {"app": "w", "x": "1"})
    assert made.annotations == {"fallow.dev/keep": "true"}
    assert made.created_at == NOW - 50 * HOUR
    assert (made.seen_until, made.interval_s, made.coverage) == (NOW, 60.0, 0.99)
    assert (made.shared, made.owner_resolved, made.nodes_ready) == (False, True, True)
    assert (made.skew_s, made.vetoes, made.removes_node) == (0.0, (), True)
    assert made.recommendation.verb == "stop"


def test_what_nobody_saw_is_unknown_and_not_false(floor: Floor) -> None:
    made = facts(floor)
    assert (made.uid, made.owner, made.created_at, made.interval_s) == (None, None, None, None)
    assert (made.shared, made.owner_resolved, made.nodes_ready) == (None, None, None)
    assert (made.skew_s, made.removes_node, made.waiting) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "name", "expected"),
    [
        ({"holds": {"share": 0.5}}, "shared", True),
        ({"holds": {"attribution": "estimated"}}, "shared", True),
        ({"pod": {"workload_uid": None}}, "uid", None),
        ({"pod": {"created_at": THEN - 49 * HOUR}}, "skew_s", 3600.0),
        ({"pod": {"priority_class": "system-node-critical"}}, "priority_class",
         "system-node-critical"),
        ({"node": {"ready": False}}, "nodes_ready", False),
        ({"node": {"ready": None}}, "nodes_ready", None),
        ({"node": {"pool": None}}, "removes_node", None),
        ({"details": {"read_from": "rollup_5m"}}, "interval_s", 300.0),
        ({"details": {"vetoes": ["bytes move"]}}, "vetoes", ("bytes move",)),
        ({"details": {"coverage": None}}, "coverage", None),
    ],
)  # fmt: skip
def test_each_doubt_is_told(
    floor: Floor, change: dict[str, dict[str, Any]], name: str, expected: object
) -> None:
    floor.node("n1", 2, **change.get("node", {}))
    floor.holds("w", ["n1/0"], **change.get("pod", {}))
    for column, value in change.get("holds", {}).items():
        floor.views.engine.execute(f"UPDATE allocation SET {column} = ?", [value])
    assert getattr(facts(floor, details=change.get("details", {})), name) == expected


def test_a_pod_whose_owner_is_not_known_leaves_the_owner_unresolved(floor: Floor) -> None:
    floor.node("n1", 2)
    floor.holds("w", ["n1/0"])
    floor.holds("w", ["n1/1"], uid="w2", workload_kind=None)
    made = facts(floor)
    assert made.owner_resolved is True
    floor.views.engine.execute("UPDATE pod SET workload_kind = NULL")
    assert facts(floor).owner_resolved is None


def test_events_tell_of_a_node_what_came_after_it_was_seen(floor: Floor) -> None:
    floor.node("n1", 2, last_seen=THEN - HOUR)
    floor.holds("w", ["n1/0"])
    event = {"cluster": "c", "kind": "Node", "name": "n1"}
    rows = [event | {"uid": "1", "ts": THEN - HOUR / 2, "reason": "NodeNotReady"}]
    floor.views.rows("event", rows)
    assert facts(floor).nodes_ready is False
    rows = [event | {"uid": "2", "ts": THEN - HOUR / 4, "reason": "NodeReady"}]
    floor.views.rows("event", rows)
    assert facts(floor).nodes_ready is True
    rows = [event | {"uid": "3", "ts": THEN + HOUR, "reason": "NodeNotReady"}]
    floor.views.rows("event", rows)
    assert facts(floor).nodes_ready is True


def test_an_idle_stretch_that_ended_was_seen_until_then_only(floor: Floor) -> None:
    floor.node("n1", 2)
    floor.holds("w", ["n1/0"])
    made = facts(floor, window=Window(NOW - 9 * HOUR, NOW - HOUR))
    assert made.seen_until == NOW - HOUR


def test_somebody_elses_pods_keep_the_node(floor: Floor) -> None:
    floor.node("n1", 2)
    floor.holds("w", ["n1/0"])
    floor.holds("x", ["n1/1"])
    assert facts(floor).removes_node is False


def test_of_idle_ranks_only_those_are_touched(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.holds("w", [f"n1/{n}" for n in range(4)])
    made = facts(floor, verdict="partly idle", details={"devices": ["n1/3"], "devices_idle": 1})
    assert made.gpus == 1.0


def test_what_wastes_without_resting_is_seen_by_its_devices_looks(floor: Floor) -> None:
    floor.node("n1", 1)
    floor.holds("w", ["n1/0"])
    floor.views.rows(
        "sample",
        [{"cluster": "c", "ts": THEN - timedelta(minutes=4), "device": "n1/0", "interval_s": 60.0}],
    )
    advice = Recommendation("right-size", "x", "y", reversible=True)
    made = facts(floor, verdict="wasteful", details={"coverage": None}, recommendations=(advice,))
    assert made.seen_until == NOW - timedelta(minutes=3)


def test_a_node_is_its_own_and_told_to_the_platform(floor: Floor) -> None:
    floor.node("n1", 8, uid="node-uid")
    start = THEN - timedelta(minutes=5)
    row = {"cluster": "c", "collector": "kubernetes", "target": "api", "up": True, "ts": start}
    floor.views.rows("scrape", [row | {"until": start + timedelta(minutes=4)}])
    advice = Recommendation("recycle node", "Node/n1", "sick", reversible=True)
    case = finding(
        subject=Subject("c", "", "Node", "n1"), kind="sick_node", verdict="wasteful",
        analyzer="reliability", details={}, recommendations=(advice,),
    )  # fmt: skip
    (made,) = gather(floor.views, [case], NOW)
    assert (made.uid, made.owner, made.gpus, made.shared) == ("node-uid", "platform", 8.0, False)
    assert (made.owner_resolved, made.nodes_ready) == (True, True)
    assert made.seen_until == NOW - timedelta(minutes=1)


def test_a_finding_without_advice_or_of_the_future_is_no_case(floor: Floor) -> None:
    busy = finding(verdict="unknown")
    later = finding(window=Window(NOW + HOUR, NOW + 2 * HOUR))
    assert gather(floor.views, [busy, later], NOW) == []


def test_the_journal_is_told_where_one_policy_knows_the_case(floor: Floor) -> None:
    floor.node("n1", 2)
    floor.holds("w", ["n1/0"])
    case = finding("Notebook", details=TOLD)
    known = History(first_seen=NOW - HOUR)
    (made,) = gather(floor.views, [case], NOW, {("p", case.id): known})
    assert made.history == known


def test_the_fleet_is_what_was_there_in_the_last_hour(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.holds("w", ["n1/0"])
    floor.holds("x", ["n1/1"])
    made = fleet(floor.views, NOW)
    assert (made.fleet_gpus, made.fleet_workloads, made.fleet_owners) == (4.0, 2, 1)
    assert made.fleet_usd_per_hour is None or made.fleet_usd_per_hour >= Decimal(0)


def test_many_cases_are_gathered_with_few_queries(floor: Floor) -> None:
    floor.node("n1", 8)
    for n in range(8):
        floor.holds(f"w{n}", [f"n1/{n}"])
    floor.waits("big", 1)
    cases = [
        finding(id=f"f{n}", subject=Subject("c", "team-a", "Notebook", f"w{n}"), details=TOLD)
        for n in range(8)
    ]
    floor.views.asked.clear()
    gather(floor.views, cases[:1], NOW)
    one = len(floor.views.asked)
    floor.views.asked.clear()
    gather(floor.views, cases, NOW)
    assert len(floor.views.asked) == one
    assert isinstance(floor.views, Memory)
