"""The ways in that combine kinds: clusters whose answer is known by hand, and near-twins."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from analyzers.fragmentation.moves_way import MovesWay
from capacity.queue.reading import QueueReader
from capacity.queue.records import QueuedWorkload, WayIn
from fallow.settings.capacity import FragmentationSettings
from fallow.stored_annotations import NEVER_PREEMPTS, SELECTOR
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory
from tests.capacity.queue_fleets import QueueFleet, eight

Stage = Callable[[QueueFleet], object]
KEEP: dict[str, Any] = {"annotations": json.dumps({"fallow.dev/keep": "true"})}


@pytest.fixture
def fleet() -> Iterator[QueueFleet]:
    memory = Memory()
    yield QueueFleet(memory)
    memory.engine.close()


def read(fleet: QueueFleet) -> QueuedWorkload:
    planner = MovesWay(fleet.views, NOW, FragmentationSettings())
    (record,) = QueueReader(fleet.views, NOW, planner).read()
    return record


def find_combined(fleet: QueueFleet) -> WayIn | None:
    return next((way for way in read(fleet).ways if way.kind == "combined"), None)


def rest(fleet: QueueFleet, name: str, devices: list[str], **pod: Any) -> None:
    """Let a notebook hold devices idle."""
    fleet.runs(name, devices, state="idle", kind="Notebook", **{"priority": 100, **pod})


def stage_gang(fleet: QueueFleet, notes: Any = None, **idle: Any) -> None:
    """A gang of two nodes waits; one node is idle, jobs of lower priority run on two others."""
    for name in ("n1", "n2", "n3"):
        fleet.node(name)
    rest(fleet, "idle", eight("n1"), **idle)
    fleet.runs("long", eight("n2"), hours=30)
    fleet.runs("short", eight("n3"), hours=3)
    fleet.waits("job", 8, pods=2, priority=100, notes=notes)


def test_idle_gpus_are_reclaimed_before_one_job_is_preempted_for_a_gang(
    fleet: QueueFleet,
) -> None:
    """Preemption alone stops both jobs: 8 x 30 + 8 x 3 = 264 GPU-h; with the idle node 24."""
    stage_gang(fleet)
    record = read(fleet)
    alone = next(way for way in record.ways if way.kind == "preempt")
    assert (alone.state, alone.lost.gpu_hours) == ("holds", 264.0)
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.gpus, way.lost.gpu_hours) == (
        "combined", ("n1", "n3"), 16, 24.0,
    )  # fmt: skip
    reclaim, preempt = way.parts
    assert (reclaim.kind, [key[3] for key in reclaim.workloads]) == ("reclaim_idle", ["idle"])
    assert (preempt.kind, [key[3] for key in preempt.workloads]) == ("preempt", ["short"])
    assert way.lost.estimated
    assert way.describe() == (
        "reclaim the idle Notebook/team-a/idle; "
        "preempt Job/team-a/short on n1, n3: loses up to 24.0 GPU-h (estimated)"
    )


def stage_moves(fleet: QueueFleet, api: int = 4, web: Any = {}, **idle: Any) -> None:  # noqa: B006
    """`web` has 2 GPUs of n1; n2 is full: `api` is at work on some, a notebook idle on the rest."""
    fleet.node("n1")
    fleet.node("n2")
    fleet.runs("web", ["n1/0", "n1/1"], **{"kind": "Deployment", "priority": 100, **web})
    fleet.runs("api", eight("n2")[:api], priority=100)
    rest(fleet, "idle", eight("n2")[api:], **idle)
    fleet.waits("job", 8, priority=100)


def test_a_pod_moves_to_what_an_idle_holder_leaves(fleet: QueueFleet) -> None:
    """Neither alone: n2 would have 4 free, and without the notebook's GPUs `web` has no place."""
    stage_moves(fleet)
    record = read(fleet)
    states = {way.kind: way.state for way in record.ways}
    assert (states["reclaim_idle"], states["after_moves"]) == ("refused", "refused")
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.lost.gpu_hours) == ("combined", ("n1",), 0.0)
    assert [part.kind for part in way.parts] == ["reclaim_idle", "after_moves"]
    assert way.moves == ("team-a/web-n1: n1 to n2",)
    assert [key[3] for key in way.workloads] == ["idle", "web"]


def test_of_many_idle_holders_only_those_that_moves_need_are_stopped(fleet: QueueFleet) -> None:
    """`web` may move to n6 alone, whose idle holder is the smallest of five: 2 of 14 GPUs."""
    labels = json.dumps({"disk": "b"})
    for name in ("n1", "n6"):
        fleet.node(name, labels=labels)
    only = json.dumps({SELECTOR: {"disk": ["b"]}})
    fleet.runs("web", ["n1/0", "n1/1"], kind="Deployment", priority=100, annotations=only)
    for name in ("n2", "n3", "n4", "n5"):
        fleet.node(name)
        fleet.runs(f"api-{name}", eight(name)[:5], priority=100)
        rest(fleet, f"idle-{name}", eight(name)[5:])
    fleet.runs("api-n6", eight("n6")[:6], priority=100)
    rest(fleet, "idle-n6", eight("n6")[6:])
    fleet.waits("job", 8, priority=100)
    way = find_combined(fleet)
    assert way is not None
    reclaim, moves = way.parts
    assert ([key[3] for key in reclaim.workloads], reclaim.gpus) == (["idle-n6"], 2)
    assert moves.moves == ("team-a/web-n1: n1 to n6",)


def lend(fleet: QueueFleet, **other: Any) -> None:
    """The queue `main` has 4 GPUs as its quota, `spare` 4 others of its cohort."""
    fleet.quota("LocalQueue", name="q", parent="main", resource="", nominal=None, used=None)
    cohort = {"namespace": "", "resource": "nvidia.com/gpu@h100", "parent": "research"}
    fleet.quota("ClusterQueue", **{**cohort, "name": "main", "nominal": 4.0})
    fleet.quota("ClusterQueue", **{**cohort, "name": "spare", "nominal": 4.0, **other})


def stage_loan(fleet: QueueFleet, idle: Any = {}, **other: Any) -> None:  # noqa: B006
    """Eight GPUs are idle; who waits for them has quota for four of them."""
    fleet.node("n1")
    rest(fleet, "idle", eight("n1"), **idle)
    lend(fleet, **other)
    fleet.waits("job", 8, priority=100, queue="q")


def test_a_queue_borrows_quota_for_gpus_that_an_idle_holder_leaves(fleet: QueueFleet) -> None:
    stage_loan(fleet)
    record = read(fleet)
    states = {way.kind: way.state for way in record.ways}
    assert (states["borrow"], states["reclaim_idle"]) == ("refused", "refused")
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.lenders) == ("combined", ("n1",), ("spare",))
    assert way.describe() == ("borrow quota of spare; reclaim the idle Notebook/team-a/idle on n1")


def stage_loan_and_moves(fleet: QueueFleet) -> None:
    """The waiting job of `stage_moves`, of a queue with quota for four GPUs."""
    fleet.node("n1")
    fleet.node("n2")
    fleet.runs("web", ["n1/0", "n1/1"], kind="Deployment", priority=100)
    fleet.runs("api", eight("n2")[:4], priority=100)
    rest(fleet, "idle", eight("n2")[4:])
    lend(fleet)
    fleet.waits("job", 8, priority=100, queue="q")


def test_a_loan_a_reclaim_and_a_move_together_let_it_in(fleet: QueueFleet) -> None:
    stage_loan_and_moves(fleet)
    way = find_combined(fleet)
    assert way is not None
    assert [part.kind for part in way.parts] == ["borrow", "reclaim_idle", "after_moves"]


TWINS: list[tuple[str, Stage]] = [
    ("it evicts nobody", lambda f: stage_gang(f, {NEVER_PREEMPTS: True})),
    ("the idle node is protected", lambda f: stage_gang(f, **KEEP)),
    ("no room for the pod that moves, by one GPU", lambda f: stage_moves(f, 7)),
    ("a job does not move", lambda f: stage_moves(f, web={"kind": "Job"})),
    ("who leaves room is protected", lambda f: stage_moves(f, **KEEP)),
    ("the cohort lends one GPU too few", lambda f: stage_loan(f, used=1.0)),
    ("the cohort's use is not known", lambda f: stage_loan(f, used=None)),
    ("who would leave the GPUs is protected", lambda f: stage_loan(f, KEEP)),
]


@pytest.mark.parametrize("stage", [row[1] for row in TWINS], ids=[row[0] for row in TWINS])
def test_no_combination_holds_for_a_near_twin(fleet: QueueFleet, stage: Stage) -> None:
    stage(fleet)
    assert find_combined(fleet) is None


def test_two_owners_idle_gpus_of_one_node_need_no_combination(fleet: QueueFleet) -> None:
    fleet.node("n1")
    rest(fleet, "a", eight("n1")[:4])
    rest(fleet, "b", eight("n1")[4:], namespace="team-z")
    fleet.waits("job", 8, priority=100)
    way = read(fleet).cheapest_way
    assert way is not None
    assert (way.kind, [key[3] for key in way.workloads]) == ("reclaim_idle", ["a", "b"])
    assert find_combined(fleet) is None
