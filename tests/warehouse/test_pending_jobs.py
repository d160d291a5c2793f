"""Jobs that wait before they have pods, from the API's objects to the answers of `fallow queue`.

Each answer is known by hand: a node of eight GPUs at 2 dollars an hour; the job waits for an hour
and a half.
"""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from capacity.queue.records import QueuedWorkload
from tests.actions.cases import NOW
from tests.actions.facts.test_waiting import THEN
from tests.analyzers.conftest import Memory
from tests.capacity.queue_fleets import QueueFleet, eight
from tests.kube.objects import Object, meta
from tests.kube.test_dumps import listed, read
from tests.kube.test_pending_workloads import (
    ADMITTED,
    PENDING,
    QUOTA,
    RESERVED,
    VOLCANO,
    group,
    template,
    volcano_job,
    workload,
)

GPU = "nvidia.com/gpu"
BEGAN = "2026-11-20T10:30:00Z"
TRAIN = {"apiVersion": "batch/v1", "kind": "Job", **meta("train", namespace="team-b")}


class JobFleet(QueueFleet):
    """A cluster in which jobs wait by their objects."""

    def __init__(self, views: Memory, folder: Path) -> None:
        super().__init__(views)
        self._file = folder / "dump.json"

    def lists(self, *items: Object) -> None:
        """Collect these objects, created at half past ten in team-b."""
        for item in items:
            item["metadata"] |= {"namespace": "team-b", "creationTimestamp": BEGAN}
        host = {"apiVersion": "v1", "kind": "Node", **meta("cpu", namespace="")}
        rows = read(self._file, listed(host, *items), NOW)["pending_workload"]
        self.views.rows("pending_workload", rows)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[JobFleet]:
    """Return a cluster whose only node is held idle by a notebook."""
    memory = Memory()
    fleet = JobFleet(memory, tmp_path)
    fleet.node("n1")
    fleet.runs("idle", eight("n1"), state="idle", kind="Notebook", priority=100)
    yield fleet
    memory.engine.close()


def give_quota(fleet: JobFleet) -> None:
    """Let the queues of Kueue and of Volcano have room for 64 GPUs."""
    fleet.quota("LocalQueue", name="gpus", parent="main", resource="", nominal=None, used=None)
    fleet.quota("ClusterQueue", namespace="", name="main", resource=f"{GPU}@h100", nominal=64.0)
    fleet.quota("Queue.volcano", namespace="", name="team", nominal=64.0)


def kueue_job(*conditions: Object, **more: Any) -> tuple[Object, ...]:
    """Return a Workload of two pods of four GPUs, the job that it is of, and the flavor."""
    job = json.loads(json.dumps(TRAIN))
    job["metadata"]["uid"] = "job-train"
    return workload(*conditions, **more), job, flavor("h100")


def flavor(name: str, **spec: Any) -> Object:
    """Return a ResourceFlavor."""
    item = meta(name, namespace="")
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", **item, "spec": spec}


def test_a_kueue_job_without_pods_has_its_price_reason_blocker_and_way_in(
    fleet: JobFleet,
) -> None:
    """Eight GPUs wait for 1.5 h: 12 GPU-h, at 2 USD: 24 USD."""
    fleet.lists(*kueue_job(PENDING))
    give_quota(fleet)
    record = fleet.record()
    assert record.key == ("c", "team-b", "Job", "train")
    assert (record.pods, record.gpus, record.hours, record.gpu_hours) == (2, 8.0, 1.5, 12.0)
    assert (record.usd_h, record.waiting_cost) == (Decimal(2), Decimal("24.00"))
    assert (record.queue, record.priority) == ("gpus", 100)
    first = record.reasons[0]
    assert (first.reason, first.text, first.source) == ("quota", f"Pending: {QUOTA}", "condition")
    (blocker,) = record.blocked_by
    assert (blocker.key[3], blocker.gpus, blocker.holds) == ("idle", 8, ("idle",))
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, way.gpus) == ("reclaim_idle", ("n1",), 8)
    assert record.unknown == ()


def test_pods_of_a_pod_set_that_must_be_apart_have_no_way_that_holds(fleet: JobFleet) -> None:
    """The near-twin: two pods of four GPUs on two nodes, and one node of eight is idle."""
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    shape = {"name": "main", "count": 2, "template": template("4", affinity=apart)}
    fleet.lists(*kueue_job(PENDING, sets=[shape]))
    give_quota(fleet)
    way = fleet.way("reclaim_idle")
    assert (way.state, way.why) == (
        "unknown", "it must stand apart from other pods, which is not checked",
    )  # fmt: skip


def test_its_pod_sets_find_no_place_on_a_node_that_is_too_small(fleet: JobFleet) -> None:
    """The near-twin: one pod of nine GPUs fits on no node of eight."""
    shape = {"name": "main", "count": 1, "template": template("9")}
    fleet.lists(*kueue_job(PENDING, sets=[shape]))
    give_quota(fleet)
    way = fleet.way("reclaim_idle")
    assert (way.state, way.why) == (
        "refused", "it needs 9 whole GPUs on one node, 8 would be free",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "message", "word"),
    [
        ("Inadmissible", "LocalQueue gpus doesn't exist", "gate"),
        ("Inadmissible", "ClusterQueue main is inactive", "gate"),
        ("Pending", "couldn't assign flavors to pod set main: untolerated taint x in flavor y",
         "taint"),
        ("Pending", ("couldn't assign flavors to pod set main: topology \"t\" allows to fit only 1 "
         "out of 2 pod(s)"), "topology"),
        ("Pending", "Workload didn't fit after preemption of a higher priority one", "priority"),
    ],
)  # fmt: skip
def test_the_words_of_kueue_give_the_reason(
    fleet: JobFleet, reason: str, message: str, word: str
) -> None:
    fleet.lists(*kueue_job({**PENDING, "reason": reason, "message": message}))
    assert fleet.record().reasons[0].reason == word


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (workload(PENDING, ADMITTED, status={"admission": {"clusterQueue": "q"}}),
         ("gpus: its conditions contradict: QuotaReserved is False, Admitted is True, and it has "
         "an admission")),
        (workload(PENDING, sets=[{"name": "main", "template": template("4")}]),
         "gpus: how many pods its pod set main has is not known"),
        (group(totals={}), "gpus: what its pods request is not known (minResources)"),
        (group(members=None), "gpus: how many pods it needs (minMember) is not known"),
    ],
    ids=["contradiction", "no count", "no amounts", "no members"],
)  # fmt: skip
def test_what_is_missing_or_contradicts_itself_is_unknown_and_not_priced(
    fleet: JobFleet, item: Object, why: str
) -> None:
    fleet.lists(item)
    record = fleet.record()
    assert (record.gpus, record.gpu_hours, record.waiting_cost) == (None, None, None)
    assert record.unknown == (why,)
    assert record.ways == ()


def test_a_waiting_workload_with_pods_that_run_contradicts_itself(fleet: JobFleet) -> None:
    fleet.lists(*kueue_job(PENDING))
    fleet.node("n2")
    fleet.runs("train", eight("n2"), namespace="team-b")
    record = fleet.record()
    assert (record.gpus, record.unknown) == (
        None, ("gpus: its Workload waits, and 1 of its pods have a node",),
    )  # fmt: skip


def test_a_job_with_waiting_pods_is_counted_once(fleet: JobFleet) -> None:
    fleet.lists(*kueue_job(PENDING))
    fleet.waits("train", 4, pods=2)
    assert (fleet.record().pods, fleet.record().gpu_hours) == (2, 8.0)


def test_a_workload_that_was_admitted_waits_no_more(fleet: JobFleet) -> None:
    fleet.lists(*kueue_job(PENDING))
    assert fleet.record().gpus == 8.0
    fleet.views.engine.execute("UPDATE pending_workload SET state = 'started'")
    with pytest.raises(ValueError, match="not enough values"):
        fleet.record()


def test_an_object_that_was_not_listed_for_ten_minutes_is_gone(fleet: JobFleet) -> None:
    fleet.lists(*kueue_job(PENDING))
    seen = THEN - timedelta(minutes=11)
    fleet.views.query("SELECT 1")
    fleet.views.engine.execute("UPDATE pending_workload SET last_seen = $1", [seen])
    with pytest.raises(ValueError, match="not enough values"):
        fleet.record()


def test_a_volcano_group_without_pods_waits_as_the_tasks_of_its_job(fleet: JobFleet) -> None:
    words = "3/3 tasks in gang unschedulable: pod group is not ready, 2 minAvailable, 2 Pending"
    status: dict[str, Any] = {"conditions": [{"type": "Unschedulable", "status": "True",
                              "reason": "NotEnoughResources", "message": words}]}  # fmt: skip
    item = group(members=2, totals={GPU: "8"}, owner=VOLCANO, **status)
    fleet.lists(item, volcano_job(("worker", 2, "4")))
    give_quota(fleet)
    record = fleet.record()
    assert record.key[2:] == ("VolcanoJob", "v")
    assert (record.pods, record.gpus, record.gpu_hours) == (2, 8.0, 12.0)
    assert record.waiting_cost == Decimal("24.00")
    assert record.reasons[0].reason == "gang"
    assert record.cheapest_way is not None
    assert record.cheapest_way.kind == "reclaim_idle"


@pytest.mark.parametrize(("usd", "cost"), [(2, Decimal("48.00")), (3, None)])
def test_a_group_of_which_only_the_sum_is_known_has_a_price_where_all_nodes_cost_the_same(
    fleet: JobFleet, usd: int, cost: Decimal | None
) -> None:
    """16 GPUs for 1.5 h: 24 GPU-h. Where they would run is not known: no placement, no way."""
    fleet.node("n2")
    fleet.runs("other", eight("n2"), state=None)
    fleet.views.rows(
        "ledger",
        [
            {
                "cluster": "c", "namespace": "team-a", "workload_kind": "Job", "workload": "other",
                "bucket": THEN - timedelta(hours=1), "device": device, "state": "productive",
                "node": "n2", "seconds": 3600.0, "gpu_seconds": 3600.0, "usd": Decimal(usd),
                "priced": True,
            }
            for device in eight("n2")
        ],
    )  # fmt: skip
    fleet.lists(group(api="scheduling.x-k8s.io/v1alpha1"))
    record = fleet.record()
    assert record.key[2:] == ("PodGroup", "pg")
    assert (record.pods, record.gpus, record.gpu_hours) == (4, 16.0, 24.0)
    assert record.waiting_cost == cost
    assert record.ways == ()
    assert record.unknown[0] == (
        "ways: what each of its 4 pods requests is not known, only their sum"
    )


def use_flavors(fleet: JobFleet, *flavors: str, nominal: float = 64.0, **more: Any) -> None:
    """Let the queue have these flavors, each with room for 64 GPUs."""
    fleet.quota("LocalQueue", name="gpus", parent="main", resource="", nominal=None, used=None)
    for name in flavors:
        fleet.quota("ClusterQueue", namespace="", name="main", resource=f"{GPU}@{name}",
                    nominal=nominal, **more)  # fmt: skip


def list_kueue(fleet: JobFleet, *flavors: Object, **more: Any) -> None:
    job, owner, _ = kueue_job(PENDING, **more)
    fleet.lists(job, owner, *flavors)


@pytest.fixture
def pools(fleet: JobFleet) -> JobFleet:
    """Return the cluster with two free nodes: a1 of a100 (labelled), h2 of h100 and tainted."""
    taint = json.dumps([{"key": "team", "value": "x", "effect": "NoSchedule"}])
    fleet.node("a1", labels=json.dumps({"pool": "a100"}))
    fleet.node("h2", labels=json.dumps({"pool": "h100"}), taints=taint)
    return fleet


H100 = flavor("h100", nodeLabels={"pool": "h100"},
              tolerations=[{"key": "team", "operator": "Exists"}])  # fmt: skip
A100 = flavor("a100", nodeLabels={"pool": "a100"})


@pytest.mark.parametrize(
    ("flavors", "node"), [((A100,), "a1"), ((H100,), "h2"), ((A100, H100), "a1")]
)
def test_a_job_fits_only_on_the_nodes_of_a_flavor_of_its_queue(
    pools: JobFleet, flavors: tuple[Object, ...], node: str
) -> None:
    """The taint of h2 is tolerated by its flavor's toleration alone."""
    use_flavors(pools, *(item["metadata"]["name"] for item in flavors))
    list_kueue(pools, *flavors)
    record = pools.record()
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes) == ("free", (node,))
    # The ledger has a price of n1 only, which no flavor names.
    assert record.unknown == ("waiting_cost: the ledger's last day prices no node that takes it",)


def test_the_flavor_with_nodes_is_not_the_one_with_quota(pools: JobFleet) -> None:
    """A near-twin: a100 has its node and no quota, h100 has quota and a full node."""
    use_flavors(pools, "h100")
    use_flavors(pools, "a100", nominal=4.0)
    pools.runs("busy", eight("h2"), priority=200)
    list_kueue(pools, A100, H100)
    record = pools.record()
    assert {way.kind: way.state for way in record.ways}["reclaim_idle"] == "refused"
    assert all(way.state != "holds" for way in record.ways)


def test_a_job_that_does_not_tolerate_the_taint_of_its_flavor_has_no_way_in(
    pools: JobFleet,
) -> None:
    use_flavors(pools, "a100")
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    list_kueue(pools, flavor("a100", nodeLabels={"pool": "a100"}, nodeTaints=[taint]))
    record = pools.record()
    assert all(way.state == "refused" for way in record.ways)
    assert record.unknown == ("ways: it does not tolerate the taint team of flavor a100",)


def test_the_nodes_of_an_unlisted_flavor_are_unknown(pools: JobFleet) -> None:
    use_flavors(pools, "a100")
    list_kueue(pools)
    record = pools.record()
    assert record.cheapest_way is None
    assert record.unknown == ("ways: which nodes flavor a100 names is not known",)


def test_a_reserved_job_has_only_its_own_flavor(pools: JobFleet) -> None:
    """Kueue reserved h100 for it: the free node of a100 is none for it."""
    use_flavors(pools, "a100", "h100")
    pools.runs("busy", eight("h2"), priority=200)
    job, owner, _ = kueue_job(
        RESERVED,
        status={
            "admission": {
                "clusterQueue": "main",
                "podSetAssignments": [{"name": "main", "flavors": {GPU: "h100"}}],
            },
            "admissionChecks": [{"name": "a", "state": "Pending"}],
        },
    )
    pools.lists(job, owner, A100, H100)
    assert pools.record().cheapest_way is None


CPU = flavor("cpu", nodeLabels={"pool": "cpu"})
LAUNCHER = {"name": "launcher", "count": 1, "template": template(None)}
"""Eight CPUs and no GPU."""
WORKERS = {"name": "workers", "count": 2, "template": template("4")}


def pod_set(name: str, gpus: int) -> Object:
    """Return a pod set of one pod."""
    return {"name": name, "count": 1, "template": template(str(gpus))}


def cover_cpus(fleet: JobFleet, flavor_name: str = "cpu", nominal: float = 64.0) -> None:
    """Let the queue cover CPUs, by another flavor than GPUs."""
    fleet.quota("ClusterQueue", namespace="", name="main", resource=f"cpu@{flavor_name}",
                nominal=nominal, limit=nominal)  # fmt: skip


@pytest.fixture
def launched(pools: JobFleet) -> JobFleet:
    """Return the two pools and a node of 16 CPUs without GPUs; a queue with cpu, a100 and h100."""
    pools.node("c1", 0, labels=json.dumps({"pool": "cpu"}), cpu_milli=16_000)
    use_flavors(pools, "h100")
    return pools


def test_a_launcher_gets_the_flavor_of_cpus_and_workers_that_of_gpus(launched: JobFleet) -> None:
    """The pool of h100 takes the two workers; the launcher does not tolerate its taint."""
    cover_cpus(launched)
    list_kueue(launched, CPU, A100, H100, sets=[LAUNCHER, WORKERS])
    record = launched.record()
    assert (record.pods, record.gpus, record.gpu_hours) == (3, 8.0, 12.0)
    way = record.cheapest_way
    assert way is not None
    assert (way.kind, way.nodes) == ("free", ("c1", "h2"))


def leave_four_cpus(fleet: JobFleet) -> None:
    cover_cpus(fleet, nominal=4.0)


def fill_the_cpus(fleet: JobFleet) -> None:
    cover_cpus(fleet)
    fleet.views.rows("pod", [
        {"cluster": "c", "uid": "web", "namespace": "web", "pod": "web", "node": "c1",
         "phase": "Running", "workload_kind": "Deployment", "workload": "web",
         "cpu_request_milli": 9_000, "created_at": THEN - timedelta(hours=9),
         "scheduled_at": THEN - timedelta(hours=9), "first_seen": THEN - timedelta(hours=9),
         "last_seen": THEN}
    ])  # fmt: skip


@pytest.mark.parametrize("change", [leave_four_cpus, fill_the_cpus], ids=["quota", "node"])
def test_a_launcher_without_cpus_keeps_its_workers_out(
    launched: JobFleet, change: Callable[[JobFleet], None]
) -> None:
    """The near-twins: the eight GPUs are free, and the launcher's eight CPUs are not."""
    change(launched)
    list_kueue(launched, CPU, A100, H100, sets=[LAUNCHER, WORKERS])
    assert_only_a_higher_quota_helps(launched.record())


@pytest.mark.parametrize(
    ("sizes", "nodes"),
    [((8, 8), ("a1", "h2")), ((8, 4, 4), ("a1", "h2")), ((8, 4, 8), None)],
)
def test_pod_sets_that_fit_on_different_flavors_only_get_one_each(
    pools: JobFleet, sizes: tuple[int, ...], nodes: tuple[str, ...] | None
) -> None:
    """Each flavor has one node of eight GPUs: no single flavor takes the job."""
    use_flavors(pools, "a100", "h100")
    sets = [pod_set(f"s{place}", gpus) for place, gpus in enumerate(sizes)]
    list_kueue(pools, A100, H100, sets=sets)
    ways = {way.kind: way for way in pools.record().ways}
    assert (ways["free"].nodes if "free" in ways else None) == nodes


@pytest.mark.parametrize(("h100", "state"), [(8.0, "holds"), (7.0, "refused")])
def test_each_pod_set_needs_quota_of_its_own_flavor(
    pools: JobFleet, h100: float, state: str
) -> None:
    use_flavors(pools, "a100", nominal=8.0)
    use_flavors(pools, "h100", nominal=h100, limit=h100)
    list_kueue(pools, A100, H100, sets=[pod_set("one", 8), pod_set("two", 8)])
    record = pools.record()
    assert record.answer is not None
    assert ("free" in {way.kind for way in record.ways}) is (state == "holds")
    assert record.answer.answer == ("fits_here" if state == "holds" else "nowhere")


def test_what_idle_holders_leave_is_quota_of_the_flavor_of_their_nodes(pools: JobFleet) -> None:
    """Eight idle GPUs of the own queue on a1 leave quota of a100, and none of h100."""
    use_flavors(pools, "a100", nominal=0.0, limit=0.0)
    use_flavors(pools, "h100", nominal=8.0)
    pools.runs("rest", eight("a1"), state="idle", namespace="team-b", queue="gpus", priority=0)
    list_kueue(pools, A100, H100, sets=[pod_set("one", 8), pod_set("two", 8)])
    way = pools.record().cheapest_way
    assert way is not None
    assert (way.kind, way.nodes, [key[3] for key in way.workloads]) == (
        "reclaim_idle", ("a1", "h2"), ["rest"],
    )  # fmt: skip


def assert_only_a_higher_quota_helps(record: QueuedWorkload) -> None:
    for way in record.ways:
        steps = {way.kind, *(part.kind for part in way.parts)}
        assert way.state != "holds" or "raise_quota" in steps


def test_quota_of_another_flavor_is_not_freed(pools: JobFleet) -> None:
    """The near-twin: h100 has no quota, and what stops on a1 leaves none of it."""
    use_flavors(pools, "a100", nominal=8.0)
    use_flavors(pools, "h100", nominal=0.0, limit=0.0)
    pools.runs("rest", eight("a1"), state="idle", namespace="team-b", queue="gpus", priority=0)
    list_kueue(pools, A100, H100, sets=[pod_set("one", 8), pod_set("two", 8)])
    assert_only_a_higher_quota_helps(pools.record())


def test_what_stops_on_a_node_of_two_flavors_frees_quota_of_neither(pools: JobFleet) -> None:
    """Nobody knows which of them the holder has: neither names nodes."""
    use_flavors(pools, "x", nominal=0.0, limit=0.0)
    use_flavors(pools, "y", nominal=8.0)
    pools.runs("rest", eight("a1"), state="idle", namespace="team-b", queue="gpus", priority=0)
    tolerations = [{"key": "team", "operator": "Exists"}]
    flavors = [flavor(name, tolerations=tolerations) for name in ("x", "y")]
    list_kueue(pools, *flavors, sets=[pod_set("one", 8), pod_set("two", 8)])
    assert_only_a_higher_quota_helps(pools.record())


def test_a_reservation_gives_each_pod_set_its_flavor(pools: JobFleet) -> None:
    """Kueue reserved them the other way round than the names' order."""
    use_flavors(pools, "a100", "h100")
    assignments = [{"name": "one", "flavors": {GPU: "h100"}},
                   {"name": "two", "flavors": {GPU: "a100"}}]  # fmt: skip
    job, owner, _ = kueue_job(
        RESERVED,
        sets=[pod_set("one", 8), pod_set("two", 4)],
        status={
            "admission": {"clusterQueue": "main", "podSetAssignments": assignments},
            "admissionChecks": [{"name": "a", "state": "Pending"}],
        },
    )
    pools.lists(job, owner, A100, H100)
    pools.runs("half", eight("a1")[:4], priority=200)
    way = pools.record().cheapest_way
    assert way is not None
    assert (way.kind, way.nodes) == ("free", ("a1", "h2"))


def test_more_assignments_than_are_tried_are_not_a_no(pools: JobFleet) -> None:
    """Seven pod sets and two flavors: 128 assignments, of which 64 are tried."""
    use_flavors(pools, "a100", "h100", nominal=3.0, limit=3.0)
    list_kueue(pools, A100, H100, sets=[pod_set(f"s{n}", 1) for n in range(7)])
    record = pools.record()
    assert record.answer is not None
    assert record.answer.answer == "unknown"
    assert "ways: 64 of 128 assignments of flavors were tried" in record.unknown


CLASS = {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass",
                              "name": "high"}}  # fmt: skip


def run_workload(fleet: JobFleet, name: str, priority: int) -> None:
    """Let the holder `name` be a Workload that runs, of this priority."""
    fleet.views.rows("pending_workload", [
        {"cluster": "c", "uid": name, "kind": "Workload", "namespace": "team-a", "name": name,
         "workload_kind": "Job", "workload": name, "priority": priority, "state": "started",
         "condition": "{}", "request": "{}", "first_seen": THEN - timedelta(hours=2),
         "last_seen": THEN}
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("running", "blocks"),
    [(50, ("lower_priority",)), (100, None), (None, None)],
    ids=["lower", "equal", "no Workload"],
)
def test_a_workload_priority_is_compared_with_those_of_workloads_only(
    fleet: JobFleet, running: int | None, blocks: tuple[str, ...] | None
) -> None:
    """It has 100 of Kueue; the holder's pods have 0, which is no number of Kueue's."""
    use_flavors(fleet, "h100")
    fleet.node("n2")
    fleet.runs("busy", eight("n2"), priority=0)
    if running is not None:
        run_workload(fleet, "busy", running)
    list_kueue(fleet, flavor("h100"), **CLASS)
    record = fleet.record()
    held = {blocker.key[3]: blocker.holds for blocker in record.blocked_by}
    assert (record.priority, held.get("busy")) == (100, blocks)
