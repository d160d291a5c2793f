"""The way in after moves, in clusters whose answer is known by hand, and its near-twins."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from analyzers.fragmentation.moves_way import NO_PLAN, NOT_PLANNED, MovesWay
from fallow.capacity_settings import FragmentationSettings
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory
from tests.warehouse.queue_fleets import QueueFleet
from tests.warehouse.test_pending_places import TAINT
from warehouse.queue.reading import QueueReader
from warehouse.queue.records import QueuedWorkload, WayIn


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
    ("its target is of another pool", lambda f: stage_two(f, pool="q")),
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
