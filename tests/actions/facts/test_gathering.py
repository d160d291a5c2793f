"""What stored rows say about a case: nothing later than its moment, and unknown is never false."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from actions.facts import gather_facts, read_fleet
from actions.gates import GateInput, find_closed_gates
from actions.policy.budgets import BudgetUsage, FleetSize
from fallow.action_models import CaseHistory, Facts
from fallow.models import Finding, Recommendation, Subject
from fallow.window import Window
from tests.actions.cases import NOW, POLICY, finding
from tests.actions.facts.test_waiting import THEN, Floor
from tests.analyzers.conftest import Memory

pytestmark = pytest.mark.slow

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
TOLD = {"actionable": True, "reasons": [], "coverage": 0.99, "read_from": "sample"}


@pytest.fixture
def floor() -> Iterator[Floor]:
    memory = Memory()
    yield Floor(memory)
    memory.engine.close()


def facts(floor: Floor, **changes: Any) -> Facts:
    details = TOLD | changes.pop("details", {})
    case = finding("Notebook", details=details, **changes)
    (made,) = gather_facts(floor.views, [case], NOW)
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


@pytest.mark.parametrize(("ago", "closes"), [(2, False), (3, True), (60, True)])
def test_a_hang_that_is_over_is_nobodys_to_act_on_however_fresh_its_devices_are(
    floor: Floor, ago: int, closes: bool
) -> None:
    floor.node("n1", 2)
    floor.holds("w", ["n1/0"])
    sample = {"cluster": "c", "ts": THEN - MINUTE, "device": "n1/0", "interval_s": 60.0}
    floor.views.rows("sample", [sample])
    end = NOW - timedelta(minutes=ago)
    about: dict[str, Any] = {"analyzer": "stalled", "kind": "stalled_job", "verdict": "wasteful"}
    advice = Recommendation("notify owner", "x", "y", reversible=True)
    about |= {"window": Window(end - HOUR, end), "recommendations": (advice,)}
    case = finding("Notebook", details={}, **about)
    (made,) = gather_facts(floor.views, [case], NOW)
    assert made.seen_until == end
    shut = {c.gate.gate for c in find_closed_gates(GateInput(POLICY, made, BudgetUsage(), NOW))}
    assert ("fresh" in shut) is closes


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
    (made,) = gather_facts(floor.views, [case], NOW)
    assert (made.uid, made.owner, made.gpus, made.shared) == ("node-uid", "platform", 8.0, False)
    assert (made.owner_resolved, made.nodes_ready) == (True, True)
    assert made.seen_until == NOW - timedelta(minutes=1)


def sick(name: str) -> Finding:
    advice = Recommendation("recycle node", f"Node/{name}", "sick", reversible=True)
    return finding(
        subject=Subject("c", "", "Node", name), kind="sick_node", verdict="wasteful",
        analyzer="reliability", details={}, recommendations=(advice,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("other", "others"),
    [
        ({"unschedulable": False}, 1),
        ({"unschedulable": True}, 0),
        ({}, 0),
        ({"unschedulable": False, "ready": False}, 0),
        ({"unschedulable": False, "pool": "another"}, 0),
        ({"unschedulable": False, "cluster": "d"}, 0),
        ({"unschedulable": False, "last_seen": THEN - 2 * HOUR}, 0),
    ],
)
def test_of_a_node_it_is_known_how_many_others_of_its_pool_can_be_scheduled(
    floor: Floor, other: dict[str, Any], others: int
) -> None:
    floor.node("n1", 8, unschedulable=False)
    floor.node("n2", 8, **other)
    (made,) = gather_facts(floor.views, [sick("n1")], NOW)
    assert made.pool_others == others


def test_of_a_node_of_no_pool_the_others_are_unknown(floor: Floor) -> None:
    floor.node("n1", 8, unschedulable=False, pool=None)
    floor.node("n2", 8, unschedulable=False, pool=None)
    (made,) = gather_facts(floor.views, [sick("n1")], NOW)
    assert made.pool_others is None


def test_the_largest_node_is_that_with_most_gpus_and_that_of_most_dollars(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.node("n2", 8)
    made = read_fleet(floor.views, NOW)
    assert (made.fleet_gpus, made.largest_node_gpus) == (12.0, 8.0)
    assert made.largest_node_usd_per_hour is None
    floor.views.rows(
        "rate",
        [
            {
                "source": "test", "provider": "override", "region": "", "zone": "",
                "instance_type": "", "gpu_model": "", "cluster": "c", "term": "on-demand",
                "valid_from": THEN - 99 * HOUR, "as_of": THEN - 99 * HOUR, "gpu_count": 1,
                "valid_to": None, "node_usd_h": Decimal("2.5"), "gpu_usd_h": Decimal("2.5"),
            }
        ],
    )  # fmt: skip
    priced = read_fleet(floor.views, NOW)
    assert (priced.fleet_usd_per_hour, priced.largest_node_usd_per_hour) == (
        Decimal(30),
        Decimal(20),
    )


def test_a_finding_without_advice_or_of_the_future_is_no_case(floor: Floor) -> None:
    busy = finding(verdict="unknown")
    later = finding(window=Window(NOW + HOUR, NOW + 2 * HOUR))
    assert gather_facts(floor.views, [busy, later], NOW) == []


def test_the_journal_is_told_where_one_policy_knows_the_case(floor: Floor) -> None:
    floor.node("n1", 2)
    floor.holds("w", ["n1/0"])
    case = finding("Notebook", details=TOLD)
    known = CaseHistory(first_seen=NOW - HOUR)
    (made,) = gather_facts(floor.views, [case], NOW, {("p", case.id): known})
    assert made.history == known


def test_the_fleet_is_what_was_there_in_the_last_hour(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.holds("w", ["n1/0"])
    floor.holds("x", ["n1/1"])
    made = read_fleet(floor.views, NOW)
    assert (made.fleet_gpus, made.fleet_workloads, made.fleet_owners) == (4.0, 2, 1)
    assert made.fleet_usd_per_hour is None or made.fleet_usd_per_hour >= Decimal(0)


def test_each_cluster_has_its_own_size_and_the_fleet_is_their_sum(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.holds("w", ["n1/0"])
    floor.node("n2", 8)
    floor.views.engine.execute("UPDATE device SET cluster = 'd' WHERE node = 'n2'")
    made = read_fleet(floor.views, NOW)
    assert (made.fleet_gpus, made.largest_node_gpus, made.fleet_workloads) == (12.0, 8.0, 1)
    assert made.clusters == {
        "c": FleetSize(gpus=4.0, largest_node_gpus=4.0, workloads=1, owners=1),
        "d": FleetSize(gpus=8.0, largest_node_gpus=8.0, workloads=0, owners=0),
    }
    assert read_fleet(floor.views, NOW - 99 * HOUR).clusters == {}


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
    gather_facts(floor.views, cases[:1], NOW)
    one = len(floor.views.asked)
    floor.views.asked.clear()
    gather_facts(floor.views, cases, NOW)
    assert len(floor.views.asked) == one
    assert isinstance(floor.views, Memory)


def _unseen(floor: Floor, count: int) -> None:
    """Let more replicas of the workload run on nodes without an exporter."""
    for n in range(count):
        row = {
            "cluster": "c", "namespace": "team-a", "workload_kind": "Notebook", "workload": "w",
            "uid": f"unseen-{n}", "pod": f"w-{n + 1}", "node": f"dark-{n}", "phase": "Running",
            "gpu_request": 1.0, "scheduled_at": THEN - 9 * HOUR, "first_seen": THEN - 9 * HOUR,
            "last_seen": THEN, "workload_uid": "w",
        }  # fmt: skip
        floor.views.rows("pod", [row])


@pytest.mark.parametrize(
    ("unseen", "coverage", "said"),
    [
        (0, 0.99, ()),
        (1, 0.5, ("not judged: 1 of 2 replicas has no telemetry: w-1 on node dark-0",)),
        (4, 0.2, ("not judged: 4 of 5 replicas have no telemetry: w-1 on node dark-0 and 3 more",)),
    ],
)
def test_replicas_without_telemetry_lower_the_coverage_and_forbid_to_act(
    floor: Floor, unseen: int, coverage: float, said: tuple[str, ...]
) -> None:
    floor.node("n1", 1)
    floor.holds("w", ["n1/0"])
    _unseen(floor, unseen)
    made = facts(floor)
    assert made.coverage == pytest.approx(coverage)
    assert made.vetoes == said
    shut = {
        c.gate.gate: c.reason.text
        for c in find_closed_gates(GateInput(POLICY, made, BudgetUsage(), NOW))
    }
    assert ("coverage" in shut, shut.get("veto")) == (bool(unseen), said[0] if said else None)


def test_a_replica_that_waits_holds_nothing_and_forbids_nothing(floor: Floor) -> None:
    floor.node("n1", 1)
    floor.holds("w", ["n1/0"])
    row = {
        "cluster": "c", "namespace": "team-a", "workload_kind": "Notebook", "workload": "w",
        "uid": "waiting", "pod": "w-1", "phase": "Pending", "gpu_request": 1.0,
        "first_seen": THEN - 9 * HOUR, "last_seen": THEN, "workload_uid": "w",
    }  # fmt: skip
    floor.views.rows("pod", [row])
    made = facts(floor)
    assert (made.coverage, made.vetoes) == (0.99, ())
