"""The site of a replay: queues of every kind of quota of its scheduler, and whole nodes."""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from capacity.history.queue_history import read_history
from capacity.replay.past import PastSite, build_past
from capacity.replay.records import ReplayQueue
from fallow.window import Window
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory

HOUR = timedelta(hours=1)
SEEN = {"cluster": "c", "first_seen": NOW - HOUR, "last_seen": NOW}
THERE = {"cluster": "c", "ts": NOW - HOUR, "namespace": ""}
GPUS = {**THERE, "resource": "nvidia.com/gpu@h100"}


class Past:
    """A cluster with a node of 8 GPUs, on which one pod waits."""

    def __init__(self, views: Memory) -> None:
        self.views = views
        self.node("n1")
        self.pod("p1", "ml")

    def node(self, name: str, **more: Any) -> None:
        row = {"node": name, "gpu_count": 8, "gpu_model": "H100"}
        self.views.rows("node", [SEEN | row | more])

    def pod(self, name: str, namespace: str, **more: Any) -> None:
        row = {
            "uid": name, "namespace": namespace, "pod": name, "phase": "Pending",
            "gpu_request": 1.0, "gpu_resource": "nvidia.com/gpu", "created_at": NOW - HOUR,
        }  # fmt: skip
        self.views.rows("pod", [SEEN | row | more])

    def build(self) -> PastSite:
        return build_past(read_history(self.views, Window(NOW - 2 * HOUR, NOW), None))


@pytest.fixture
def past() -> Iterator[Past]:
    views = Memory()
    yield Past(views)
    views.engine.close()


def test_cohorts_stand_over_their_queues_with_their_own_quota_and_limits(past: Past) -> None:
    past.views.rows("quota", [
        {**GPUS, "kind": "ClusterQueue", "name": "main", "nominal": 4.0, "lending": 1.0,
         "parent": "left"},
        {**THERE, "kind": "Cohort", "name": "left", "resource": "cpu@h100", "nominal": 9.0,
         "parent": "all"},
        {**THERE, "kind": "Cohort", "name": "right", "resource": "cohorts", "parent": "all"},
        {**GPUS, "kind": "Cohort", "name": "all", "nominal": 2.0, "limit": 2.0},
        {**THERE, "kind": "Cohort", "name": "all", "resource": "cpu@h100", "nominal": 9.0},
    ])  # fmt: skip
    assert sorted(past.build().site.queues, key=lambda queue: queue.name) == [
        ReplayQueue("all", 2000, 2000, is_cohort=True),
        ReplayQueue("left", 0, cohort="all", is_cohort=True),
        ReplayQueue("main", 4000, None, 1000, "left"),
        ReplayQueue("right", 0, cohort="all", is_cohort=True),
    ]


def test_a_site_has_elastic_quotas_beside_cluster_queues(past: Past) -> None:
    past.pod("p2", "elastic")
    past.pod("p3", "elastic", queue="main")
    elastic = {**THERE, "kind": "ElasticQuota", "namespace": "elastic", "name": "gpus"}
    past.views.rows("quota", [
        {**GPUS, "kind": "ClusterQueue", "name": "main", "nominal": 4.0},
        {**elastic, "resource": "nvidia.com/gpu", "nominal": 1.0, "limit": 3.0},
    ])  # fmt: skip
    site = past.build().site
    queues = {unit.members[0].uid: unit.queue for unit in site.units}
    assert queues == {"p1": "", "p2": "elastic", "p3": "main"}
    assert ReplayQueue("elastic", 1000, 3000, cohort="ElasticQuota") in site.queues


def test_pods_of_nodes_that_are_left_out_take_no_gpu_of_the_others(past: Past) -> None:
    past.node("mixed", sharing="mig")
    placed = {"scheduled_at": NOW - HOUR, "started_at": NOW - HOUR, "phase": "Running"}
    past.pod("p2", "ml", node="mixed", **placed)
    site = past.build().site
    assert [node.capacity.name for node in site.nodes] == ["n1"]
    assert [pod.uid for unit in site.units for pod in unit.members] == ["p1"]


NOTICE = '[{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]'
RAN = {"scheduled_at": NOW - HOUR / 2, "started_at": NOW - HOUR / 2, "phase": "Running"}


@pytest.mark.parametrize(
    "wanted",
    [
        {"labels": '{"gpu_spec": "A100"}'},
        {"annotations": '{"nvidia.com/use-gputype": "A100"}'},
    ],
)
def test_a_pod_meets_only_nodes_of_the_gpu_model_that_it_requests(
    past: Past, wanted: dict[str, str]
) -> None:
    past.node("n2", gpu_model="NVIDIA A100-SXM4-80GB")
    past.pod("p2", "ml", **wanted)
    site = past.build().site
    meets = {node.capacity.name: node.capacity.meets for node in site.nodes}
    meeting = {
        pod.uid: [name for name in sorted(meets) if pod.requirements in meets[name]]
        for unit in site.units
        for pod in unit.members
    }
    assert meeting == {"p1": ["n1", "n2"], "p2": ["n2"]}


@pytest.mark.parametrize("came", [True, False])
def test_a_taint_that_a_pod_of_the_window_did_not_tolerate_came_later(
    past: Past, *, came: bool
) -> None:
    past.node("spot", taints=NOTICE)
    if came:
        past.pod("p2", "ml", node="spot", **RAN)
    meets = {node.capacity.name: bool(node.capacity.meets) for node in past.build().site.nodes}
    assert meets == {"n1": True, "spot": came}


@pytest.mark.parametrize(("came", "open_until"), [(True, NOW - HOUR / 2), (False, None)])
def test_a_node_that_is_cordoned_now_was_open_until_its_last_pod_came(
    past: Past, *, came: bool, open_until: datetime | None
) -> None:
    past.node("cordoned", unschedulable=True)
    if came:
        past.pod("p2", "ml", node="cordoned", **RAN)
    node = next(n for n in past.build().site.nodes if n.capacity.name == "cordoned")
    assert node.capacity.open == came
    assert node.closes_s == (open_until.timestamp() if open_until else math.inf)


def test_a_node_takes_no_pods_while_it_is_away_nor_a_gpu_that_fails(past: Past) -> None:
    for reason, at in (("SpotInterruption", 90), ("NodeNotReady", 85), ("NodeReady", 60)):
        ts = NOW - timedelta(minutes=at)
        event = {
            "cluster": "c", "uid": reason, "ts": ts, "kind": "Node", "name": "n1", "reason": reason,
        }  # fmt: skip
        past.views.rows("event", [event])
    times = {"valid_from": NOW - HOUR / 2, "valid_to": NOW - HOUR / 4}
    past.views.rows(
        "era", [{"cluster": "c", "node": "n1", **times, "gpu_count": 8, "gpu_allocatable": 7}]
    )
    (node,) = past.build().site.nodes
    assert [(o.end_s - o.start_s, o.gpus) for o in node.outages] == [(1800, None), (900, 1)]
