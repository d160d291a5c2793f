"""Who waits, why, blocked by whom, and the cheapest way in: clusters whose answer is known by hand.

Each way in has near-twins in which it does not hold.
"""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from analyzers.checkpoints import read_last_checkpoints
from capacity.queue.reading import QueueReader
from fallow.checkpointing import INTERVAL
from fallow.stored_annotations import CLAIMS, NEVER_PREEMPTS, SELECTOR
from tests.actions.cases import NOW
from tests.actions.facts.test_waiting import THEN
from tests.analyzers.conftest import Memory
from tests.capacity.queue_fleets import HOUR, QueueFleet, eight
from tests.capacity.test_pending_places import TAINT

Setup = Callable[[QueueFleet], object]


@pytest.fixture
def fleet() -> Iterator[QueueFleet]:
    memory = Memory()
    yield QueueFleet(memory)
    memory.engine.close()


def wait_for(fleet: QueueFleet, gpus: float = 8, **more: Any) -> None:
    """Let the job `job` wait for an hour at priority 100."""
    fleet.waits("job", gpus, **{"priority": 100, **more})


def stage_idle(fleet: QueueFleet, **node: Any) -> None:
    """Eight GPUs of one node are held idle by a notebook."""
    fleet.node("n1", **node)
    fleet.runs("idle", eight("n1"), state="idle", kind="Notebook", priority=100)


def stage_busy(fleet: QueueFleet, state: str | None = "productive") -> None:
    """Eight GPUs of one node are at work; `state` None = the ledger lacks them."""
    fleet.node("n1")
    fleet.runs("busy", eight("n1"), state=state, priority=100)


def stage_two(fleet: QueueFleet, first: float = 30, second: float = 3) -> None:
    """Two jobs of a lower priority run on a node each, for some hours, without checkpoints."""
    fleet.node("n1")
    fleet.node("n2")
    fleet.runs("long", eight("n1"), hours=first)
    fleet.runs("short", eight("n2"), hours=second)


def both(*steps: Setup) -> Setup:
    """Return a set-up of several steps."""

    def stage(fleet: QueueFleet) -> None:
        for step in steps:
            step(fleet)

    return stage


def test_waiting_is_priced_at_what_the_nodes_that_take_it_cost(fleet: QueueFleet) -> None:
    """Two pods of 4 GPUs wait for 1.5 h: 12 GPU-h, at 2 USD: 24 USD."""
    stage_idle(fleet)
    fleet.node("dear", taints=TAINT)
    fleet.runs("other", eight("dear"))
    wait_for(fleet, 4, pods=2, created_at=THEN - timedelta(hours=1.5))
    record = fleet.record()
    assert (record.pods, record.gpus, record.hours, record.gpu_hours) == (2, 8.0, 1.5, 12.0)
    assert (record.usd_h, record.waiting_cost) == (Decimal(2), Decimal("24.00"))
    assert record.unknown == ()


def test_a_node_that_does_not_take_it_prices_nothing(fleet: QueueFleet) -> None:
    fleet.node("n1", taints=TAINT)
    fleet.runs("other", eight("n1"))
    wait_for(fleet)
    record = fleet.record()
    assert (record.gpu_hours, record.waiting_cost) == (8.0, None)
    assert "waiting_cost: the ledger's last day prices no node that takes it" in record.unknown


def test_who_holds_idle_what_it_could_use_blocks_it_without_any_quota(fleet: QueueFleet) -> None:
    """The notebook idles since before: of its 16 idle GPU-h in the ledger, 8 are in the wait."""
    stage_idle(fleet)
    wait_for(fleet)
    record = fleet.record()
    (blocker,) = record.blocked_by
    assert (blocker.key[2:], blocker.gpus, blocker.holds) == (("Notebook", "idle"), 8, ("idle",))
    assert blocker.why == "idle by the ledger's newest hours on 8 of its 8 devices"
    assert blocker.idle_gpu_hours == 8.0
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.gpus, way.lost.gpu_hours) == ("reclaim_idle", ("n1",), 8, 0.0)
    assert [key[3] for key in way.workloads] == ["idle"]


IDLE_TWINS: list[tuple[str, Setup, dict[str, Any], str]] = [
    ("at work", stage_busy, {},
     "nobody holds GPUs idle that it could use"),
    ("not in the ledger", lambda f: stage_busy(f, state=None), {},
     "nobody holds GPUs idle that it could use"),
    ("taint", lambda f: stage_idle(f, taints=TAINT), {},
     "nobody holds GPUs idle that it could use"),
    ("cordoned", lambda f: stage_idle(f, unschedulable=True), {},
     "nobody holds GPUs idle that it could use"),
    ("wrong model by label", lambda f: stage_idle(f, labels='{"gpu": "a10"}'),
     {"notes": {SELECTOR: {"gpu": ["h100"]}}}, "nobody holds GPUs idle that it could use"),
    ("wrong model by name", lambda f: stage_idle(f, gpu_model="A10"),
     {"labels": '{"gpu_spec": "H100"}'}, "nobody holds GPUs idle that it could use"),
    ("unknown model", lambda f: stage_idle(f, gpu_model=None),
     {"labels": '{"gpu_spec": "H100"}'}, "nobody holds GPUs idle that it could use"),
    ("memory too small", lambda f: stage_idle(f, memory_bytes=2**30),
     {"memory_request_bytes": 2**31},
     "CPU or memory of the nodes with enough devices would not do"),
    ("gang too large by one", stage_idle, {"gpus": 1, "pods": 9}, "8 of its 9 pods would fit"),
    ("pod too large by one", stage_idle, {"gpus": 9},
     "it needs 9 whole GPUs on one node, 8 would be free"),
    ("shared devices", lambda f: stage_idle(f, sharing="time-slicing"), {},
     "nobody holds GPUs idle that it could use"),
    ("quota", both(stage_idle, lambda f: f.quota(used=1.0)), {},
     "ResourceQuota team-b/gpus leaves 7 of nvidia.com/gpu, it needs 8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "waits", "why"), [row[1:] for row in IDLE_TWINS], ids=[row[0] for row in IDLE_TWINS]
)
def test_reclaiming_idle_gpus_does_not_hold_for_a_near_twin(
    fleet: QueueFleet, stage: Setup, waits: dict[str, Any], why: str
) -> None:
    stage(fleet)
    wait_for(fleet, **waits)
    way = fleet.way("reclaim_idle")
    assert (way.state, way.why, way.nodes, way.workloads) == ("refused", why, (), ())


def test_while_a_quota_binds_the_way_raises_it_first_and_no_other_owner_blocks(
    fleet: QueueFleet,
) -> None:
    stage_idle(fleet)
    fleet.quota(used=1.0)
    wait_for(fleet)
    record = fleet.record()
    refusal = "ResourceQuota team-b/gpus leaves 7 of nvidia.com/gpu, it needs 8"
    assert record.blocked_by == ()
    assert record.held_by_others.endswith(refusal)
    way = record.cheapest_way
    assert way is not None
    assert [part.kind for part in way.parts] == ["raise_quota", "reclaim_idle"]
    (reclaimed,) = way.workloads
    assert way.describe() == (
        f"raise the quota ({refusal}); reclaim the idle {reclaimed[2]}/{reclaimed[1]}/idle on n1"
    )


def test_a_higher_quota_is_no_way_where_nothing_fits_then_either(fleet: QueueFleet) -> None:
    stage_busy(fleet)
    fleet.quota(used=1.0)
    wait_for(fleet)
    record = fleet.record()
    assert record.cheapest_way is None
    assert record.describe_way() == (
        "none, nor with more quota: nobody holds GPUs idle that it could use"
    )


@pytest.mark.parametrize(
    ("waits", "stage"),
    [
        ({"gpus": 1, "pods": 8}, stage_idle),
        ({"memory_request_bytes": 2**30}, lambda f: stage_idle(f, memory_bytes=2**30)),
        ({"labels": '{"gpu_spec": "H100"}'}, lambda f: stage_idle(f, gpu_model="H100")),
        ({}, both(stage_idle, lambda f: f.quota(used=0.0))),
        ({}, both(stage_idle, lambda f: f.quota(used=8.0, namespace="team-c"))),
    ],
    ids=["gang", "memory", "model", "quota", "quota of another namespace"],
)
def test_the_twin_that_fits_gets_the_idle_gpus(
    fleet: QueueFleet, waits: dict[str, Any], stage: Setup
) -> None:
    stage(fleet)
    wait_for(fleet, **waits)
    assert fleet.way("reclaim_idle").nodes == ("n1",)


def test_devices_that_telemetry_does_not_show_are_unknown_and_no_room(fleet: QueueFleet) -> None:
    fleet.node("n1", 7, gpu_count=8)
    fleet.runs("idle", eight("n1")[:7], state="idle", gpu_request=8.0)
    wait_for(fleet, 7, priority=0)
    record = fleet.record()
    assert (record.blocked_by, record.cheapest_way) == ((), None)
    assert record.held_by_others == "7 GPUs of workloads whose idleness is not known"


def test_a_workload_that_is_idle_on_a_part_of_its_devices_is_at_work(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.runs("half", eight("n1"), state=None, priority=100)
    whose = {
        "cluster": "c", "namespace": "team-a", "workload_kind": "Job", "workload": "half",
    }  # fmt: skip
    fleet.spends(whose, eight("n1")[:4], "idle")
    fleet.spends(whose, eight("n1")[4:], "productive")
    wait_for(fleet)
    record = fleet.record()
    assert (record.blocked_by, record.cheapest_way) == ((), None)
    assert record.held_by_others == "8 GPUs at work, of the same or a higher priority"


@pytest.mark.parametrize(("minutes", "gpus"), [(10, 8), (11, None)])
def test_a_device_without_a_sample_for_ten_minutes_is_no_room(
    fleet: QueueFleet, minutes: int, gpus: int | None
) -> None:
    fleet.node("n1", 0, gpu_count=8)
    seen = {"first_seen": THEN - 90 * HOUR, "last_seen": THEN - timedelta(minutes=minutes)}
    device = {"cluster": "c", "node": "n1", "weight": 1.0, "interval_s": 60.0, **seen}
    fleet.views.rows("device", [device | {"device": name} for name in eight("n1")])
    fleet.runs("idle", eight("n1"), state="idle", kind="Notebook")
    wait_for(fleet, priority=0)
    blockers = fleet.record().blocked_by
    assert [blocker.gpus for blocker in blockers] == ([] if gpus is None else [gpus])


def test_what_is_protected_is_not_reclaimed_though_it_blocks(fleet: QueueFleet) -> None:
    fleet.node("n1")
    notes = {"fallow.dev/keep-until": "2099-01-01T00:00:00Z"}
    fleet.runs("idle", eight("n1"), state="idle", priority=100, annotations=json.dumps(notes))
    wait_for(fleet)
    assert fleet.record().blocked_by[0].holds == ("idle",)
    way = fleet.way("reclaim_idle")
    assert (way.state, way.why) == (
        "refused", "fallow.dev/keep-until protects it until 2099-01-01 00:00 UTC",
    )  # fmt: skip


def test_the_fewest_idle_gpus_are_reclaimed(fleet: QueueFleet) -> None:
    """Four are free on n1; three notebooks idle there with 1, 2 and 1: 1 + 2 are enough for 7."""
    fleet.node("n1")
    fleet.runs("a", ["n1/0"], state="idle")
    fleet.runs("b", ["n1/1", "n1/2"], state="idle")
    fleet.runs("c", ["n1/3"], state="idle")
    wait_for(fleet, 7, priority=0)
    way = fleet.way("reclaim_idle")
    assert (way.gpus, sorted(key[3] for key in way.workloads)) == (3, ["a", "b"])


def test_preemption_takes_the_least_lost_work(fleet: QueueFleet) -> None:
    """30 h x 8 GPUs against 3 h x 8 GPUs: the short one loses 24 GPU-h."""
    stage_two(fleet)
    wait_for(fleet)
    record = fleet.record()
    assert {b.holds for b in record.blocked_by} == {("lower_priority",)}
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.lost.gpu_hours) == ("preempt", ("n2",), 24.0)
    assert [key[3] for key in way.workloads] == ["short"]


def test_a_checkpoint_makes_the_long_job_the_cheaper_victim(fleet: QueueFleet) -> None:
    """The long one saves every 30 minutes: at most 4 GPU-h against 24."""
    fleet.node("n1")
    fleet.node("n2")
    fleet.runs("long", eight("n1"), hours=30, annotations=json.dumps({INTERVAL: "30m"}))
    fleet.runs("short", eight("n2"), hours=3)
    wait_for(fleet)
    way = fleet.way("preempt")
    assert ([key[3] for key in way.workloads], way.lost.gpu_hours) == (["long"], 4.0)
    assert way.lost.why == f"estimated, at most: by {INTERVAL}: 30m"
    assert way.lost.estimated


def write_bursts(fleet: QueueFleet, *minutes: int) -> None:
    """Let the pod of `long` write 2 GB/s for a minute, so many minutes before now."""
    rows = [
        {
            "cluster": "c", "namespace": "team-a", "pod": "long-n1", "interval_s": 60.0,
            "ts": THEN - timedelta(minutes=minute), "fs_write_bps": 2e9,
        }
        for minute in minutes
    ]  # fmt: skip
    fleet.views.rows("pod_sample", rows)


@pytest.mark.parametrize(
    ("minutes", "victim", "lost"),
    [
        ((195, 135, 75, 15), "long", 8 * 15 / 60),  # each hour, the last 15 minutes ago
        ((269, 209, 149, 89), "long", 8 * 89 / 60),  # none is missed yet, at 1.5 intervals
        ((271, 211, 151, 91), "short", 8 * 3),  # one was missed
        ((195, 75, 60, 15), "short", 8 * 3),  # not regular
        ((75, 15), "short", 8 * 3),  # two are no rhythm
        ((), "short", 8 * 3),
    ],
)
def test_bursts_of_writing_lower_what_a_preemption_loses(
    fleet: QueueFleet, minutes: tuple[int, ...], victim: str, lost: float
) -> None:
    """8 GPUs each: `short` has run for 3 h, `long` for 30 h."""
    stage_two(fleet)
    wait_for(fleet)
    write_bursts(fleet, *minutes)
    checkpoints = read_last_checkpoints(fleet.views, NOW, 2e8)
    (record,) = QueueReader(fleet.views, NOW, checkpoints=checkpoints).read()
    way = next(way for way in record.ways if way.kind == "preempt")
    assert [key[3] for key in way.workloads] == [victim]
    assert way.lost.gpu_hours == pytest.approx(lost, abs=1e-6)
    is_seen = way.lost.why.startswith("since the checkpoint that was seen at 2026-11-20 1")
    assert (is_seen, way.lost.estimated) == (victim == "long", victim != "long")


def test_a_job_without_a_checkpoint_loses_what_its_failures_lost(fleet: QueueFleet) -> None:
    """A failure of `long` lost half an hour of each GPU: 4 GPU-h, estimated; `short` loses 24."""
    stage_two(fleet)
    wait_for(fleet)
    row = {
        "cluster": "c", "namespace": "team-a", "pod": "long-0", "workload_kind": "Job",
        "workload": "long", "end": THEN - 20 * HOUR, "start": THEN - 20.5 * HOUR,
        "cause": "node", "lost": 4.0, "basis": "measured",
    }  # fmt: skip
    fleet.views.rows("work_lost", [row, row | {"workload": "short", "basis": "estimated"}])
    way = fleet.way("preempt")
    assert ([key[3] for key in way.workloads], way.lost.gpu_hours) == (["long"], 4.0)
    assert way.lost.why == "estimated, at most: its failures lost up to 0.5 h of each GPU"


@pytest.mark.parametrize(
    ("held", "waits", "why"),
    [
        ({"priority": 100}, {}, "nobody of a lower priority holds GPUs that it could use"),
        ({"priority": None}, {}, "nobody of a lower priority holds GPUs that it could use"),
        ({}, {"priority": None}, "nobody of a lower priority holds GPUs that it could use"),
        ({}, {"notes": {NEVER_PREEMPTS: True}}, "its preemption policy is Never"),
        ({}, {"gpus": 9}, "it needs 9 whole GPUs on one node, 8 would be free"),
    ],
    ids=["same priority", "unknown holder", "unknown waiter", "never preempts", "too large"],
)
def test_preemption_does_not_hold_for_a_near_twin(
    fleet: QueueFleet, held: dict[str, Any], waits: dict[str, Any], why: str
) -> None:
    fleet.node("n1")
    fleet.runs("low", eight("n1"), **held)
    wait_for(fleet, **waits)
    way = fleet.way("preempt")
    assert (way.state, way.why) == ("refused", why)


def test_a_loss_that_is_not_known_is_never_the_cheapest(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.node("n2")
    fleet.runs("book", eight("n1"), kind="Notebook", hours=1)
    fleet.runs("long", eight("n2"), hours=300)
    wait_for(fleet)
    way = fleet.way("preempt")
    assert ([key[3] for key in way.workloads], way.lost.gpu_hours) == (["long"], 2400.0)
    fleet.waits("gang", 8, pods=2, priority=100, namespace="team-z")
    gang = next(r for r in _read_all(fleet) if r.key[3] == "gang")
    both = next(way for way in gang.ways if way.kind == "preempt")
    assert (both.state, both.lost.gpu_hours, both.gpus) == ("holds", None, 16)


def test_a_holder_without_current_pods_loses_an_unknown_amount(fleet: QueueFleet) -> None:
    """Of 16 GPUs held for 30 h, half by a pod that is not listed: 480 GPU-h, of which 240 show."""
    fleet.node("n1")
    fleet.node("n2")
    fleet.runs("wide", eight("n1"), hours=30)
    fleet.runs("wide", eight("n2"), hours=30, last_seen=THEN - HOUR)
    wait_for(fleet)
    way = fleet.way("preempt")
    assert ([key[3] for key in way.workloads], way.lost.gpu_hours) == (["wide"], None)


def _read_all(fleet: QueueFleet) -> list[Any]:
    from capacity.queue.reading import QueueReader  # noqa: PLC0415

    return QueueReader(fleet.views, NOW).read()


def test_more_than_eight_candidates_find_the_victims_of_one_node(fleet: QueueFleet) -> None:
    """Nine nodes with two jobs of 4 GPUs each; those of n5 began last: 2 x 4 GPUs x 1 h."""
    for n in range(9):
        fleet.node(f"n{n}")
        for half in (0, 1):
            devices = eight(f"n{n}")[4 * half : 4 * half + 4]
            fleet.runs(f"w{n}{half}", devices, hours=1 if n == 5 else 2 + n)
    wait_for(fleet)
    way = fleet.way("preempt")
    assert (way.nodes, way.lost.gpu_hours) == (("n5",), 8.0)
    assert sorted(key[3] for key in way.workloads) == ["w50", "w51"]


COHORT = {"namespace": "", "resource": "nvidia.com/gpu@h100", "parent": "research"}


def lend(fleet: QueueFleet, **other: Any) -> None:
    """Eight GPUs are free; the queue `main` has 4 of them as its quota, `spare` the others."""
    fleet.node("n1")
    fleet.quota("LocalQueue", name="q", parent="main", resource="", nominal=None, used=None)
    fleet.quota("ClusterQueue", **{**COHORT, "name": "main", "nominal": 4.0})
    fleet.quota("ClusterQueue", **{**COHORT, "name": "spare", "nominal": 4.0, **other})


def nest(fleet: QueueFleet, most: float = 1.0) -> None:
    """Put the cohorts `research`, which borrows `most`, and `b` under one more."""
    research = {**COHORT, "name": "research", "parent": "all", "nominal": 0.0, "limit": most}
    fleet.quota("Cohort", **{**research, "used": None})
    fleet.quota("Cohort", **{**COHORT, "name": "b", "parent": "all", "resource": "cohorts",
                             "nominal": None, "used": None})  # fmt: skip


@pytest.mark.parametrize("stage", [lend, both(lambda f: lend(f, parent="b"), lambda f: nest(f, 4))])
def test_unused_quota_of_its_cohorts_can_be_borrowed(fleet: QueueFleet, stage: Setup) -> None:
    stage(fleet)
    wait_for(fleet, queue="q")
    record = fleet.record()
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.lenders) == ("borrow", ("n1",), ("spare",))
    assert record.reasons[0].reason == "quota"


@pytest.mark.parametrize(
    ("stage", "state", "why"),
    [
        (lambda f: lend(f, used=1.0), "refused",
         "queue main lacks 4, the others of its cohort leave 3 unused"),
        (lambda f: lend(f, parent="other"), "refused",
         "queue main lacks 4, the others of its cohort leave 0 unused"),
        (lambda f: lend(f, resource="nvidia.com/gpu@a10"), "refused",
         "queue main lacks 4, the others of its cohort leave 0 unused"),
        (lambda f: lend(f, lending=2.0), "refused",
         "queue main lacks 4, the others of its cohort leave 2 unused"),
        (both(lend, lambda f: f.quota("ClusterQueue", **COHORT, name="x", used=8.0, nominal=6.0)),
         "refused", "queue main lacks 4, the others of its cohort leave 2 unused"),
        (both(lambda f: lend(f, parent="b"), nest), "refused",
         "queue main lacks 4, the others of its cohort leave 1 unused"),
        (lambda f: lend(f, used=None), "unknown",
         "what the cohort of queue main uses is not known"),
        (both(lend, lambda f: f.runs("w", ["n1/0"])), "refused",
         "the quota could be borrowed, but no GPUs are free for it"),
        (both(lend, lambda f: f.quota(used=1.0)), "refused",
         "ResourceQuota team-b/gpus leaves 7 of nvidia.com/gpu, it needs 8"),
    ],
    ids=["used", "another cohort", "another flavor", "lending limit",
         "a third has borrowed it", "its cohort's cohort borrows 1", "no status", "no room",
         "quota of the namespace"],
)  # fmt: skip
def test_borrowing_does_not_hold_for_a_near_twin(
    fleet: QueueFleet, stage: Setup, state: str, why: str
) -> None:
    stage(fleet)
    wait_for(fleet, queue="q")
    way = fleet.way("borrow")
    assert (way.state, way.why) == (state, why)


def test_a_quota_of_a_namespace_cannot_borrow_from_another_one(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.quota(used=1.0)
    fleet.quota(namespace="team-z", used=0.0)
    wait_for(fleet)
    way = fleet.way("borrow")
    assert way.why.endswith("it needs 8; a quota of a namespace cannot borrow")
    raised = fleet.record().cheapest_way
    assert raised is not None
    assert (raised.kind, raised.nodes) == ("raise_quota", ("n1",))


def test_another_cluster_is_a_way_and_its_taint_refuses(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.runs("busy", eight("n1"), priority=100)
    fleet.node_there("m1", taints=TAINT)
    wait_for(fleet)
    assert fleet.way("elsewhere").why == (
        "cluster d: m1 does not take it: it does not tolerate the taint dedicated"
    )
    fleet.node_there("m2")
    way = fleet.record().cheapest_way
    assert way is not None
    assert (way.kind, way.cluster, way.nodes) == ("elsewhere", "d", ("m2",))


def test_what_is_free_is_the_cheapest_way_and_nobody_blocks(fleet: QueueFleet) -> None:
    stage_idle(fleet)
    fleet.node("n2")
    wait_for(fleet)
    record = fleet.record()
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, record.blocked_by) == ("free", ("n2",), ())
    assert record.reasons[0].text.startswith("free capacity would take it")


def name_rule(name: str) -> dict[str, Any]:
    """Return a row's rule of placement that depends on other pods, as the collector stores it."""
    return {"constraints": json.dumps({name: [{"topology": "kubernetes.io/hostname"}]})}


VOLUME = "1 node(s) had volume node affinity conflict, 1 Insufficient nvidia.com/gpu."
UNCHECKED: list[tuple[str, dict[str, Any], str, str]] = [
    ("apart", name_rule("apart"), "", "it must stand apart from other pods, which is not checked"),
    ("beside", name_rule("beside"), "", "it must stand beside other pods, which is not checked"),
    ("spread", name_rule("spread"), "",
     "it is spread over parts of the cluster, which is not checked"),
    ("port", {"constraints": '{"ports": ["80/TCP"]}'}, "",
     "it takes a port of its node, which is not checked"),
    ("volume", {}, VOLUME,
     f"its volume keeps it out too, which is not checked: FailedScheduling: {VOLUME}"),
    ("topology", {}, "1 node(s) didn't match pod anti-affinity rules.",
     ("its topology keeps it out too, which is not checked: FailedScheduling: 1 node(s) didn't "
      "match pod anti-affinity rules.")),
]  # fmt: skip


@pytest.mark.parametrize("stage", [stage_idle, lambda f: f.node("n1")], ids=["idle", "free"])
@pytest.mark.parametrize(
    ("pod", "message", "why"), [row[1:] for row in UNCHECKED], ids=[row[0] for row in UNCHECKED]
)
def test_a_way_does_not_hold_where_what_keeps_it_out_is_not_checked(
    fleet: QueueFleet, stage: Setup, pod: dict[str, Any], message: str, why: str
) -> None:
    """Two pods of four GPUs that must be on two nodes have no place on the one of eight."""
    stage(fleet)
    wait_for(fleet, 4, pods=2, **pod)
    if message:
        fleet.says("job-0", "FailedScheduling", message)
    record = fleet.record()
    assert record.cheapest_way is None
    assert (record.ways[0].state, record.ways[0].why, record.ways[0].nodes) == ("unknown", why, ())
    assert f"ways: {why}" in record.unknown
    assert record.answer is not None
    assert record.answer.answer in {"unknown", "nowhere"}
    assert not any(place.state == "fits" for place in record.answer.places)


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"constraints": "{}"}, ""),
        ({"notes": {CLAIMS: ["data"]}}, ""),
        ({}, "1 Insufficient nvidia.com/gpu."),
    ],
    ids=["no rule", "a volume that is no obstacle", "too few GPUs"],
)
def test_the_twin_that_only_lacks_gpus_has_its_way(
    fleet: QueueFleet, pod: dict[str, Any], message: str
) -> None:
    stage_idle(fleet)
    wait_for(fleet, 4, pods=2, **pod)
    if message:
        fleet.says("job-0", "FailedScheduling", message)
    assert fleet.way("reclaim_idle").nodes == ("n1",)


def test_gpus_at_work_are_no_way_whatever_rule_the_pod_has(fleet: QueueFleet) -> None:
    stage_busy(fleet)
    wait_for(fleet, **name_rule("apart"))
    assert {way.state for way in fleet.record().ways} == {"refused"}


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", "no_fit"),
        ("FailedScheduling", "0/1 nodes are available: 1 node(s) had untolerated taint {a: b}.",
         "taint"),
        ("FailedScheduling", "1 node(s) didn't match Pod's node affinity/selector.",
         "node_selector"),
        ("FailedScheduling", "1 node(s) didn't match pod topology spread constraints.", "topology"),
        ("FailedScheduling", "pod has unbound immediate PersistentVolumeClaims.", "volume"),
        ("FailedScheduling", "1 cannot allocate all claims.", "dra"),
        ("Unschedulable", "2/3 tasks in gang unschedulable: pod group is not ready, 3 minAvailable",
         "gang"),
        ("FailedCreate", "exceeded quota: gpus, requested: 8, used: 1, limited: 8", "quota"),
        ("Pending", "Workload is behind others of a higher priority", "priority"),
    ],
)  # fmt: skip
def test_an_event_gives_the_reason_with_its_words(
    fleet: QueueFleet, reason: str, message: str, expected: str
) -> None:
    fleet.node("n1")
    fleet.runs("busy", eight("n1"), priority=100)
    wait_for(fleet)
    fleet.says("job-0", reason, message)
    first = fleet.record().reasons[0]
    assert (first.reason, first.source, first.at) == (expected, "event", NOW - timedelta(minutes=5))
    assert first.text == f"{reason}: {message}"


@pytest.mark.parametrize(
    ("stage", "waits", "expected"),
    [
        (stage_busy, {}, "no_fit"),
        (lambda f: f.node("n1", taints=TAINT), {}, "taint"),
        (lambda f: f.node("n1", labels='{"gpu": "a10"}'), {"notes": {SELECTOR: {"gpu": ["h100"]}}},
         "node_selector"),
        (lambda f: f.node("n1"), {"gpus": 1, "pods": 9}, "gang"),
        (both(lambda f: f.node("n1"), lambda f: f.quota(used=1.0)), {}, "quota"),
        (lambda f: f.node("n1"), {}, "unknown"),
    ],
    ids=["no fit", "taint", "selector", "gang", "quota", "nothing keeps it out"],
)  # fmt: skip
def test_the_placement_gives_the_reason_without_an_event(
    fleet: QueueFleet, stage: Setup, waits: dict[str, Any], expected: str
) -> None:
    stage(fleet)
    wait_for(fleet, **waits)
    reasons = [(r.reason, r.source) for r in fleet.record().reasons]
    assert reasons == [(expected, "placement")]


def test_the_condition_of_the_pod_is_read_and_an_older_pods_event_is_not(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.runs("busy", eight("n1"), priority=100)
    condition = {
        "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty gates",
        "since": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    wait_for(fleet, created_at=THEN - timedelta(minutes=1), unscheduled=json.dumps(condition))
    fleet.says("job-0", "FailedScheduling", "1 Insufficient nvidia.com/gpu")
    reasons = [(r.reason, r.source) for r in fleet.record().reasons]
    assert reasons == [("gate", "condition"), ("no_fit", "placement")]


@pytest.mark.parametrize(
    ("waiting", "reason"), [("ImagePullBackOff", "image"), ("ContainerCreating", None)]
)
def test_a_pod_with_a_node_waits_for_its_image_and_its_gpus_are_in_the_bill(
    fleet: QueueFleet, waiting: str, reason: str | None
) -> None:
    fleet.node("n1")
    containers = json.dumps([{"name": "train", "waiting": waiting}])
    placed: dict[str, Any] = {"scheduled_at": THEN - HOUR / 2, "started_at": THEN - HOUR / 2}
    wait_for(fleet, node="n1", containers=containers, **placed)
    records = _read_all(fleet)
    assert [r.reasons[0].reason for r in records] == ([reason] if reason else [])
    assert all(r.waiting_cost is None and "in the bill" in r.unknown[0] for r in records)


@pytest.mark.parametrize(("minutes", "reasons"), [(20, ["volume"]), (1, [])])
def test_a_pod_with_a_node_waits_for_its_volume_by_an_event_of_its_own(
    fleet: QueueFleet, minutes: int, reasons: list[str]
) -> None:
    """The event is five minutes old: of the pod that was created a minute ago it is not."""
    fleet.node("n1")
    placed = THEN - timedelta(minutes=minutes)
    wait_for(
        fleet, node="n1", created_at=placed, scheduled_at=placed, started_at=placed,
        containers=json.dumps([{"name": "train", "waiting": "ContainerCreating"}]),
    )  # fmt: skip
    fleet.says("job-0", "FailedMount", "Unable to attach or mount volumes: timed out")
    assert [r.reasons[0].reason for r in _read_all(fleet)] == reasons


def test_a_claim_of_a_device_has_its_reason_and_no_way_that_is_a_guess(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.waits("job", 1, resource="gpu.nvidia.com")
    fleet.says("job-0", "FailedScheduling", "0/1 nodes are available: cannot allocate all claims.")
    record = fleet.record()
    assert ([r.reason for r in record.reasons], record.ways) == (["dra"], ())


def test_a_request_without_a_number_is_unknown_with_its_reason(fleet: QueueFleet) -> None:
    fleet.node("n1")
    fleet.waits("share", 1.0, gpu_request=None)
    record = fleet.record()
    assert (record.gpus, record.gpu_hours, record.waiting_cost, record.ways) == (None,) * 3 + ((),)
    assert record.unknown == ("gpus: how many of nvidia.com/gpu it requests is not known",)


@pytest.mark.parametrize(("ahead_s", "known"), [(30, True), (31, False), (7200, False)])
def test_a_clock_that_is_ahead_makes_the_wait_unknown(
    fleet: QueueFleet, ahead_s: int, known: bool
) -> None:
    fleet.node("n1")
    seen = THEN - HOUR
    wait_for(fleet, first_seen=seen, created_at=seen + timedelta(seconds=ahead_s))
    record = fleet.record()
    assert (record.gpu_hours is not None) is known
    assert record.since == NOW - HOUR
    if not known:
        assert f"gpu_hours: the API's clock is {ahead_s:,} s ahead of ours" in record.unknown


def test_an_owner_that_vanished_leaves_the_pod_alone_and_says_so(fleet: QueueFleet) -> None:
    fleet.node("n1")
    row = {
        "cluster": "c", "uid": "u", "namespace": "team-b", "pod": "job-0", "phase": "Pending",
        "owner_kind": "Job", "owner_name": "gone", "gpu_request": 8.0, "created_at": THEN - HOUR,
        "gpu_resource": "nvidia.com/gpu", "first_seen": THEN - HOUR, "last_seen": THEN,
    }  # fmt: skip
    fleet.views.rows("pod", [row])
    record = fleet.record()
    assert record.key == ("c", "team-b", "unresolved", "job-0")
    assert "owner: it could not be resolved, so its other pods are not known" in record.unknown


def test_shares_of_devices_are_not_worked_out(fleet: QueueFleet) -> None:
    stage_idle(fleet)
    fleet.waits("half", 0.5, resource="nvidia.com/gpu.shared", priority=5)
    record = fleet.record()
    assert (record.ways, record.blocked_by, record.reasons[0].reason) == ((), (), "unknown")


def count_at_once(fleet: QueueFleet) -> tuple[int, int]:
    """Return how many of those that wait have a way in, and how many of them at once."""
    records = QueueReader(fleet.views, NOW).read()
    return sum(r.cheapest_way is not None for r in records), sum(bool(r.at_once) for r in records)


def stage_four_jobs(fleet: QueueFleet, gpus: float = 8, **more: Any) -> None:
    for n in range(4):
        fleet.waits(f"job-{n}", gpus, priority=100, **more)


AT_ONCE: list[tuple[str, Setup, float, int]] = [
    ("two free nodes take two jobs of 8", both(lambda f: f.node("n1"), lambda f: f.node("n2")),
     8, 2),
    ("two free nodes take four jobs of 4", both(lambda f: f.node("n1"), lambda f: f.node("n2")),
     4, 4),
    ("one idle notebook leaves 8 of 8 GPUs", stage_idle, 8, 1),
    ("one idle notebook leaves 8 GPUs for four jobs of 2", stage_idle, 2, 4),
    ("two jobs of a lower priority are preempted once each", stage_two, 8, 2),
    ("one free node and one idle notebook", both(stage_idle, lambda f: f.node("n2")), 8, 2),
    ("a quota of 16 GPUs with four free nodes",
     both(*(lambda f, n=n: f.node(f"n{n}") for n in range(4)),
          lambda f: f.quota(resource="nvidia.com/gpu", nominal=16.0, used=0.0)), 8, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "gpus", "at_once"), [row[1:] for row in AT_ONCE], ids=[row[0] for row in AT_ONCE]
)
def test_a_free_place_is_given_once_to_four_jobs_that_wait(
    stage: Setup, gpus: float, at_once: int, fleet: QueueFleet
) -> None:
    stage(fleet)
    stage_four_jobs(fleet, gpus)
    assert count_at_once(fleet) == (4, at_once)
