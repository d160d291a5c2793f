"""The way in after moves, in clusters whose answer is known by hand, and its near-twins."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analyzers.fragmentation.moves_way import NO_PLAN, NOT_PLANNED, MovesWay
from capacity.queue.reading import QueueReader
from capacity.queue.records import QueuedWorkload, WayIn
from fallow.settings.capacity import FragmentationSettings
from fallow.stored_annotations import SELECTOR, TOLERATIONS
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory
from tests.capacity.queue_fleets import QueueFleet
from tests.capacity.test_pending_places import TAINT
from tests.kube.test_pending_workloads import template
from tests.warehouse.test_pending_jobs import GPU, JobFleet, flavor, list_kueue


@pytest.fixture
def fleet() -> Iterator[QueueFleet]:
    memory = Memory()
    yield QueueFleet(memory)
    memory.engine.close()


def read(fleet: QueueFleet, *kinds: str) -> QueuedWorkload:
    """Return the record of what waits; pods of `kinds` may move too."""
    planner = MovesWay(fleet.views, NOW, FragmentationSettings(move_kinds=list(kinds)))
    (record,) = QueueReader(fleet.views, NOW, planner).read()
    return record


def find_way(fleet: QueueFleet, *kinds: str) -> WayIn:
    return next(way for way in read(fleet, *kinds).ways if way.kind == "after_moves")


def serve(fleet: QueueFleet, name: str, node: str, devices: range, **pod: Any) -> None:
    """Let a deployment at work hold devices of a node."""
    pod = {"kind": "Deployment", "priority": 100, **pod}
    fleet.runs(name, [f"{node}/{n}" for n in devices], **pod)


def stage_two(fleet: QueueFleet, web: dict[str, Any] = {}, api: int = 4, **node: Any) -> None:  # noqa: B006
    """`web` has 2 GPUs of n1, `api` 4 of n2: no node has 8 free, 10 are free together."""
    fleet.node("n1")
    fleet.node("n2", **node)
    serve(fleet, "web", "n1", range(2), **web)
    serve(fleet, "api", "n2", range(api), kind="Job")
    fleet.waits("job", 8, priority=100)


def test_one_small_pod_moves_for_a_job_that_needs_a_whole_node(fleet: QueueFleet) -> None:
    stage_two(fleet)
    record = read(fleet)
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.state, way.nodes, way.gpus) == ("after_moves", "holds", ("n1",), 2)
    assert way.moves == ("team-a/web-n1: n1 to n2",)
    assert way.workloads == (("c", "team-a", "Deployment", "web"),)
    assert (way.lost.gpu_hours, way.lost.why) == (
        0.0, "1 pod restart; their controllers start them elsewhere",
    )  # fmt: skip
    assert way.describe() == "move team-a/web-n1: n1 to n2: then on n1"


Q: dict[str, Any] = {"pool": "q", "labels": json.dumps({"pool": "q"})}
ONLY_P: dict[str, Any] = {"annotations": json.dumps({SELECTOR: {"pool": ["p"]}})}
"""As its owner wrote it, or as Kueue does for a pod that it admits with a flavor of these nodes."""
PROTECTED = {"annotations": json.dumps({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})}
TWINS: list[tuple[str, Callable[[QueueFleet], object]]] = [
    ("a job would begin again", lambda f: stage_two(f, {"kind": "Job"})),
    ("protected", lambda f: stage_two(f, PROTECTED)),
    ("no room for it by one GPU", lambda f: stage_two(f, api=7)),
    ("no CPU for it by a milli",
     lambda f: stage_two(f, {"cpu_request_milli": 4001}, cpu_milli=4000)),
    ("no memory for it by a MiB",
     lambda f: stage_two(f, {"memory_request_bytes": 2**30 + 1}, memory_bytes=2**30)),
    ("tainted target", lambda f: stage_two(f, taints=TAINT)),
    ("cordoned target", lambda f: stage_two(f, unschedulable=True)),
    ("another pool without its label", lambda f: stage_two(f, ONLY_P, **Q)),
    ("another pool with a taint", lambda f: stage_two(f, **Q, taints=TAINT)),
    ("another pool and GPU model", lambda f: stage_two(f, **Q, gpu_model="A10")),
    ("another pool of spot nodes", lambda f: stage_two(f, **Q, capacity_type="spot")),
    ("another pool of another shape", lambda f: stage_two(f, **Q, instance_type="x")),
    ("another pool and no room by one GPU", lambda f: stage_two(f, api=7, **Q)),
    ("a job in another pool would begin again", lambda f: stage_two(f, {"kind": "Job"}, **Q)),
]  # fmt: skip


@pytest.mark.parametrize("stage", [row[1] for row in TWINS], ids=[row[0] for row in TWINS])
def test_no_move_holds_for_a_near_twin(
    fleet: QueueFleet, stage: Callable[[QueueFleet], object]
) -> None:
    stage(fleet)
    way = find_way(fleet)
    assert (way.state, way.why, way.moves, way.nodes) == ("refused", NO_PLAN, (), ())


def test_the_twins_with_just_enough_hold(fleet: QueueFleet) -> None:
    stage_two(
        fleet, {"cpu_request_milli": 4000, "memory_request_bytes": 2**30}, 6,
        cpu_milli=4000, memory_bytes=2**30,
    )  # fmt: skip
    assert find_way(fleet).state == "holds"


def test_a_pod_moves_to_another_pool_where_its_own_has_no_room(fleet: QueueFleet) -> None:
    stage_two(fleet, **Q)
    way = read(fleet).cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.lost.gpu_hours) == ("after_moves", ("n1",), 0.0)
    assert way.moves == ("team-a/web-n1: n1 to n2",)
    assert way.why == "from pool p to q; disruption budgets are not collected"


def test_two_moves_within_the_pool_come_before_one_to_another_pool(fleet: QueueFleet) -> None:
    """`big` could leave n2 for n3 of pool q, as n1 lacks CPU; two small ones leave n1 instead."""
    fleet.node("n1", cpu_milli=1000)
    fleet.node("n2")
    fleet.node("n3", **Q)
    serve(fleet, "web", "n1", range(1))
    serve(fleet, "chat", "n1", range(1, 2))
    serve(fleet, "big", "n2", range(4), cpu_request_milli=2000)
    serve(fleet, "api", "n3", range(4), kind="Job")
    fleet.waits("job", 8, priority=100)
    way = find_way(fleet)
    assert way.moves == ("team-a/chat-n1: n1 to n2", "team-a/web-n1: n1 to n2")
    assert way.why == "disruption budgets are not collected"


def test_gpus_of_an_unknown_model_are_not_alike(fleet: QueueFleet) -> None:
    """The near-twin: nobody wrote the model of either pool."""
    stage_two(fleet, **Q)
    fleet.views.engine.execute("UPDATE device SET gpu_model = NULL")
    assert find_way(fleet).state == "refused"


def test_what_moves_goes_also_to_nodes_that_do_not_take_the_waiting_job(fleet: QueueFleet) -> None:
    """`web` tolerates the taint of n2, the job does not; no other node has room for `web`."""
    tolerates = {"annotations": json.dumps({TOLERATIONS: [["dedicated", "Exists", "", ""]]})}
    stage_two(fleet, tolerates, 0, taints=TAINT)
    way = find_way(fleet)
    assert (way.state, way.nodes, way.moves) == ("holds", ("n1",), ("team-a/web-n1: n1 to n2",))


def test_a_gang_gets_a_node_of_each_of_two_pools(fleet: QueueFleet) -> None:
    """n0 of q is free. `web` leaves n1 for n2: within one pool there is one node at most."""
    fleet.node("n0", **Q)
    fleet.node("n1")
    fleet.node("n2", **Q)
    serve(fleet, "web", "n1", range(2))
    serve(fleet, "api", "n2", range(4), kind="Job")
    fleet.waits("gang", 8, pods=2, priority=100)
    way = find_way(fleet)
    assert (way.state, way.nodes, way.moves) == (
        "holds", ("n0", "n1"), ("team-a/web-n1: n1 to n2",),
    )  # fmt: skip


def test_a_quota_refuses_it_whatever_moves(fleet: QueueFleet) -> None:
    stage_two(fleet)
    fleet.quota(used=1.0)
    way = find_way(fleet)
    assert way.state == "refused"
    assert "leaves 7 of nvidia.com/gpu, it needs 8" in way.why


def test_what_the_site_lets_move_may_lose_work_that_is_not_known(fleet: QueueFleet) -> None:
    stage_two(fleet, {"kind": "Job"})
    way = find_way(fleet, "Job")
    assert (way.state, way.lost.gpu_hours) == ("holds", None)
    assert "what Job loses is not known" in way.lost.why


def test_a_gang_gets_a_free_node_and_one_that_moves_free(fleet: QueueFleet) -> None:
    """n0 is free, `web` leaves n1 for n2, not for n0, which the other pod needs."""
    fleet.node("n0")
    stage_two(fleet)
    fleet.waits("gang", 8, pods=2, priority=200)
    planner = MovesWay(fleet.views, NOW, FragmentationSettings())
    records = QueueReader(fleet.views, NOW, planner).read()
    gang = next(record for record in records if record.key[3] == "gang")
    way = next(way for way in gang.ways if way.kind == "after_moves")
    assert (way.state, way.nodes, way.moves) == (
        "holds", ("n0", "n1"), ("team-a/web-n1: n1 to n2",),
    )  # fmt: skip


def test_two_nodes_are_emptied_for_a_gang_by_two_moves(fleet: QueueFleet) -> None:
    """Four nodes hold 4 GPUs each, n4 a job's: two of the three others are emptied."""
    for nth in range(1, 5):
        fleet.node(f"n{nth}")
        serve(fleet, f"s{nth}", f"n{nth}", range(4), kind="Job" if nth == 4 else "Deployment")
    fleet.waits("gang", 8, pods=2, priority=100)
    way = find_way(fleet)
    assert (way.state, len(way.moves), len(way.nodes), way.gpus) == ("holds", 2, 2, 8)
    assert "n4" not in way.nodes


def test_what_fits_needs_no_move(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.waits("job", 8, priority=100)
    assert [way.kind for way in read(fleet).ways if way.kind == "after_moves"] == []


def test_moves_that_there_was_no_time_to_plan_are_unknown(fleet: QueueFleet) -> None:
    """Each plan takes a second of this clock: the second job's is not made in half a second."""
    stage_two(fleet)
    fleet.waits("later", 7, priority=100)
    ticks = iter(range(100))
    planner = MovesWay(
        fleet.views,
        NOW,
        FragmentationSettings(),
        most_seconds=0.5,
        clock=lambda: float(next(ticks)),
    )
    records = QueueReader(fleet.views, NOW, planner).read()
    ways = [next(w for w in record.ways if w.kind == "after_moves") for record in records]
    assert [way.state for way in ways] == ["holds", "unknown"]
    assert ways[1].why == NOT_PLANNED


@pytest.fixture
def kueue(tmp_path: Path) -> Iterator[JobFleet]:
    memory = Memory()
    yield JobFleet(memory, tmp_path)
    memory.engine.close()


def stage_flavors(fleet: JobFleet, room: float = 8.0, **web: Any) -> None:
    """A queue has a flavor for each of two pools; its job needs a whole node.

    `web` has 2 GPUs of n1 in pool p, whose flavor has quota for `room` more; `api` 4 of n2 in q.
    """
    p: dict[str, Any] = {"pool": "p", "labels": json.dumps({"pool": "p"})}
    fleet.node("n1", **p)
    fleet.node("n2", **Q)
    serve(fleet, "web", "n1", range(2), **web)
    serve(fleet, "api", "n2", range(4), kind="Job")
    fleet.quota("LocalQueue", name="gpus", parent="main", resource="", nominal=None, used=None)
    for name, free in (("p", room), ("q", 64.0)):
        fleet.quota("ClusterQueue", namespace="", name="main", resource=f"{GPU}@{name}",
                    nominal=free, limit=free)  # fmt: skip
    flavors = [flavor(name, nodeLabels={"pool": name}) for name in ("p", "q")]
    list_kueue(fleet, *flavors, sets=[{"name": "main", "count": 1, "template": template("8")}])


def test_a_pod_without_a_queue_moves_to_the_nodes_of_another_flavor(kueue: JobFleet) -> None:
    stage_flavors(kueue)
    way = read(kueue).cheapest_way
    assert way is not None
    assert (way.kind, way.nodes) == ("after_moves", ("n1",))
    assert way.moves == ("team-a/web-n1: n1 to n2",)


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (lambda f: stage_flavors(f, 7.0), "queue main leaves 7 of nvidia.com/gpu"),
        (lambda f: stage_flavors(f, queue="gpus", **ONLY_P), NO_PLAN),
        (lambda f: stage_flavors(f, 6.0, namespace="team-b", queue="gpus", **ONLY_P),
         "queue main leaves 6 of nvidia.com/gpu"),
    ],
    ids=["the quota of the flavor is full", "admitted with flavor p", "its own quota is not freed"],
)  # fmt: skip
def test_no_move_between_flavors_holds_for_a_near_twin(
    kueue: JobFleet, stage: Callable[[JobFleet], None], why: str
) -> None:
    """A pod that Kueue admitted has the labels of its flavor: what its owner asks is not known."""
    stage(kueue)
    way = find_way(kueue)
    assert way.state == "refused"
    assert why in way.why
