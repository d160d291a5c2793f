"""Where a waiting job fits: small clusters whose answer is known by hand, each with a near-twin."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from analyzers.fragmentation.analyzer import FragmentationAnalyzer
from analyzers.fragmentation.elsewhere import find_elsewhere
from capacity.placement.pending_places import PendingAnswer, PendingPlaces
from fallow.stored_annotations import SELECTOR, TOLERATIONS
from fallow.window import Window
from tests.actions.cases import NOW
from tests.actions.facts.test_waiting import THEN, Floor
from tests.analyzers.conftest import Memory

HERE, THERE = "c", "d"
TAINT = json.dumps([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
Change = Callable[["Fleet"], None]


class Fleet(Floor):
    """Two clusters: nothing is free in the first, and a test says what the second one has."""

    def node_there(self, name: str = "m1", gpus: int = 8, **more: Any) -> None:
        """Add a node of the second cluster with free devices."""
        seen = more.pop("last_seen", THEN)
        device_count = more.pop("devices", gpus)
        profiles: tuple[str, ...] = more.pop("profiles", ())
        first = THEN - timedelta(hours=90)
        labels = {"topology.kubernetes.io/zone": "z1", "gpu": "h100"}
        row = {
            "cluster": THERE, "node": name, "gpu_count": gpus, "ready": True, "pool": "big",
            "labels": json.dumps(labels), "first_seen": first, "last_seen": THEN,
        }  # fmt: skip
        self.views.rows("node", [row | more])
        whole = [(f"{name}/{n}", None, None) for n in range(device_count)]
        parts = [(f"{name}/0/gi{n}", f"{name}/0", p) for n, p in enumerate(profiles)]
        self.views.rows(
            "device",
            [
                {
                    "cluster": THERE, "device": device, "parent": parent, "profile": profile,
                    "node": name, "weight": 1.0, "interval_s": 60.0, "gpu_model": "H100",
                    "first_seen": first, "last_seen": seen,
                }
                for device, parent, profile in [*whole, *parts]
            ],
        )  # fmt: skip

    def quota_there(self, kind: str = "ResourceQuota", **more: Any) -> None:
        """Add a quota of the second cluster for the namespace of the waiting jobs."""
        row = {
            "cluster": THERE, "ts": THEN - timedelta(minutes=2), "kind": kind,
            "namespace": "team-b", "name": "gpus", "resource": "nvidia.com/gpu", "nominal": 8.0,
            "used": 0.0,
        }  # fmt: skip
        self.views.rows("quota", [row | more])

    def answer(self) -> PendingAnswer:
        """Return the answer about the one job that waits."""
        places = PendingPlaces(self.views, NOW)
        ((key, pods),) = places.list_pending().items()
        return places.explain(key, pods)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    memory = Memory()
    fleet = Fleet(memory)
    fleet.node("n1", 8)
    fleet.holds("busy", [f"n1/{n}" for n in range(8)])
    yield fleet
    memory.engine.close()


def test_a_job_fits_in_another_cluster_and_the_node_is_named(fleet: Fleet) -> None:
    fleet.node_there()
    fleet.waits("job", 4, pods=2)
    answer = fleet.answer()
    assert (answer.answer, answer.pods, answer.gpus) == ("fits_elsewhere", 2, 8.0)
    assert answer.why == "all of its pods fit in cluster d"
    assert answer.describe() == "cluster d"
    first, own = answer.places
    assert (first.cluster, first.state, first.free, first.nodes) == (THERE, "fits", 8, ("m1",))
    assert (own.cluster, own.state) == (HERE, "short")
    assert own.why == "it needs 4 whole GPUs on one node, 0 are free"


@pytest.mark.parametrize(
    ("constraints", "expected", "why"),
    [
        ('{"apart": [{"topology": "kubernetes.io/hostname"}]}', "unknown",
         "it must stand apart from other pods, which is not checked"),
        ('{"ports": ["80/TCP"]}', "unknown", "it takes a port of its node, which is not checked"),
        ("{}", "fits_elsewhere", "all of its pods fit in cluster d"),
        (None, "fits_elsewhere", "all of its pods fit in cluster d"),
    ],
)  # fmt: skip
def test_where_a_job_fits_is_unknown_if_a_rule_about_other_pods_is_not_checked(
    fleet: Fleet, constraints: str | None, expected: str, why: str
) -> None:
    """Two pods of four GPUs that must be on two nodes have no place on the one of eight."""
    fleet.node_there()
    fleet.waits("job", 4, pods=2, constraints=constraints)
    answer = fleet.answer()
    assert (answer.answer, answer.why) == (expected, why)
    assert [place.nodes for place in answer.places if expected == "unknown"] in ([], [(), ()])
    window = Window(NOW - timedelta(hours=6), NOW)
    assert len([*find_elsewhere(fleet.views, window)]) == (expected == "fits_elsewhere")


def test_what_fits_in_another_cluster_is_a_finding_without_hours_or_dollars(fleet: Fleet) -> None:
    fleet.node_there()
    fleet.waits("job", 8)
    window = Window(NOW - timedelta(hours=6), NOW)
    (found,) = find_elsewhere(fleet.views, window)
    assert (found.kind, found.subject.workload, found.subject.cluster) == (
        "fits_elsewhere",
        "job",
        HERE,
    )
    assert (found.gpu_hours, found.usd, found.window.start) == (0.0, None, NOW - timedelta(hours=1))
    assert found.details["places"] == [
        {"cluster": THERE, "pool": None, "zone": None, "free": 8, "nodes": ["m1"]}
    ]
    analyzed = FragmentationAnalyzer().find(fleet.views, window)
    assert [f for f in analyzed if f.kind == "fits_elsewhere"] == [found]
    fleet.quota_there(used=1.0)
    assert not [*find_elsewhere(fleet.views, window)]


def hold_one_there(fleet: Fleet) -> None:
    fleet.node_there()
    fleet.views.rows(
        "allocation",
        [
            {
                "cluster": THERE, "device": "m1/0", "pod_uid": "x", "pod": "x",
                "namespace": "a", "workload_kind": "Job", "workload": "x", "share": 1.0,
                "start": THEN - timedelta(hours=2), "end": THEN, "attribution": "exact",
            }
        ],
    )  # fmt: skip


def bind_one_there(fleet: Fleet) -> None:
    """A pod was bound a moment ago: its device has no sample with it yet."""
    fleet.node_there()
    fleet.views.rows(
        "pod",
        [
            {
                "cluster": THERE, "uid": "x", "namespace": "a", "pod": "x", "node": "m1",
                "phase": "Pending", "workload_kind": "Job", "workload": "x", "gpu_request": 1.0,
                "gpu_resource": "nvidia.com/gpu", "created_at": THEN - timedelta(minutes=1),
                "scheduled_at": THEN - timedelta(seconds=30), "last_seen": THEN,
                "first_seen": THEN - timedelta(minutes=1),
            }
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "state", "why"),
    [
        (hold_one_there, "short", "it needs 8 whole GPUs on one node, 7 are free"),
        (bind_one_there, "short", "it needs 8 whole GPUs on one node, 7 are free"),
        (lambda f: f.node_there(taints=TAINT), "refused",
         "m1 does not take it: it does not tolerate the taint dedicated"),
        (lambda f: f.node_there(unschedulable=True), "refused",
         "m1 takes no pods: it is cordoned or not ready"),
        (lambda f: f.node_there(cpu_milli=1000), "short",
         "CPU or memory of the nodes with enough free devices would not do"),
        (lambda f: (f.node_there(), f.quota_there(used=1.0)), "refused",
         "ResourceQuota team-b/gpus leaves 7 of nvidia.com/gpu, it needs 8"),
        (lambda f: (f.node_there(), f.quota_there(used=None)), "unknown",
         "how much ResourceQuota team-b/gpus uses of nvidia.com/gpu is not known"),
        (lambda f: f.node_there(devices=7), "unknown",
         "whether 1 more devices are free is not known: telemetry does not show them"),
        (lambda f: f.node_there(last_seen=THEN - timedelta(minutes=11)), "unknown",
         "whether 8 more devices are free is not known: telemetry does not show them"),
        (lambda f: f.node_there(sharing="time-slicing"), "unknown",
         "whether 8 more devices are free is not known: telemetry does not show them"),
        (lambda f: (f.node_there("m1", 4), f.node_there("m2", 4)), "short",
         "it needs 8 whole GPUs on one node, 4 are free"),
    ],
    ids=["held", "bound", "taint", "cordoned", "cpu", "quota used",
         "quota unknown", "unseen device", "stale devices", "shared devices", "two halves"],
)  # fmt: skip
def test_a_near_twin_of_the_place_does_not_take_it(
    fleet: Fleet, change: Change, state: str, why: str
) -> None:
    change(fleet)
    fleet.waits("job", 8, cpu_request_milli=4000)
    place = next(p for p in fleet.answer().places if p.cluster == THERE and p.pool is None)
    assert (place.state, place.why, place.nodes) == (state, why, ())
    assert fleet.answer().answer == ("unknown" if state == "unknown" else "nowhere")


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        (lambda f: f.node_there(taints=TAINT), {TOLERATIONS: [["dedicated", "Equal", "x", ""]]}),
        (lambda f: f.node_there(cpu_milli=4000), {}),
        (lambda f: (f.node_there(), f.quota_there()), {}),
        (lambda f: f.node_there(), {SELECTOR: {"gpu": ["h100"]}}),
    ],
)
def test_what_the_pod_tolerates_selects_and_may_use_is_no_obstacle(
    fleet: Fleet, change: Change, notes: dict[str, Any]
) -> None:
    change(fleet)
    fleet.waits("job", 8, cpu_request_milli=4000, notes=notes)
    assert fleet.answer().answer == "fits_elsewhere"


@pytest.mark.parametrize(("cpu", "answer"), [(0, "fits_elsewhere"), (1, "nowhere")])
def test_a_pod_without_a_request_of_cpu_fits_where_too_much_is_requested(
    fleet: Fleet, cpu: int, answer: str
) -> None:
    """5000 of 4000 millicores are requested there: kube-scheduler compares requests above 0."""
    fleet.node_there(cpu_milli=4000)
    fleet.views.rows("pod", [
        {"cluster": THERE, "uid": "static", "namespace": "kube-system", "pod": "static",
         "node": "m1", "phase": "Running", "cpu_request_milli": 5000,
         "first_seen": THEN - timedelta(hours=1), "last_seen": THEN},
    ])  # fmt: skip
    fleet.waits("job", 8, cpu_request_milli=cpu)
    assert fleet.answer().answer == answer


def test_a_label_keeps_it_away_and_unknown_labels_are_unknown(fleet: Fleet) -> None:
    fleet.node_there()
    fleet.waits("job", 8, notes={SELECTOR: {"gpu": ["b200"]}})
    answer = fleet.answer()
    place = next(p for p in answer.places if p.cluster == THERE)
    assert (answer.answer, place.state, place.room) == ("nowhere", "refused", True)
    assert place.why == "m1 does not take it: it requires gpu=b200, not h100"
    fleet.node_there("m2", labels=None, pool="other")
    answer = fleet.answer()
    assert (answer.answer, answer.places[0].state) == ("unknown", "unknown")
    assert answer.why.startswith("the labels of m2 are not known")


@pytest.mark.parametrize(("nodes", "answer"), [(2, "fits_elsewhere"), (1, "nowhere")])
def test_a_gang_fits_with_all_its_pods_or_not_at_all(fleet: Fleet, nodes: int, answer: str) -> None:
    for n in range(nodes):
        fleet.node_there(f"m{n}")
    fleet.waits("gang", 8, pods=2)
    found = fleet.answer()
    assert found.answer == answer
    place = next(p for p in found.places if p.cluster == THERE and p.pool is None)
    assert place.why == ("" if nodes == 2 else "1 of its 2 pods fit")


@pytest.mark.parametrize(
    ("profile", "answer"), [("2g.20gb", "fits_elsewhere"), ("1g.10gb", "nowhere")]
)
def test_a_mig_instance_fits_only_as_the_same_profile(
    fleet: Fleet, profile: str, answer: str
) -> None:
    fleet.node_there(gpus=1, profiles=(profile,))
    fleet.waits("small", 2 / 7, resource="nvidia.com/mig-2g.20gb")
    assert fleet.answer().answer == answer


def test_shares_of_a_device_are_not_worked_out_and_never_fit(fleet: Fleet) -> None:
    fleet.node_there()
    fleet.waits("half", 0.5, resource="nvidia.com/gpu.shared")
    answer = fleet.answer()
    assert (answer.answer, answer.places) == ("unknown", ())


@pytest.mark.parametrize(
    ("queues", "state", "why"),
    [
        ([{"nominal": 8.0}], "fits", ""),
        ([{"nominal": 4.0, "limit": 8.0}], "unknown",
         "queue main would have to borrow nvidia.com/gpu"),
        ([{"nominal": 4.0, "limit": 4.0}], "refused",
         "queue main leaves 4 of nvidia.com/gpu, it needs 8"),
        ([], "unknown", "cluster d has no queue q that was read lately"),
    ],
)  # fmt: skip
def test_its_queue_lets_it_in_or_is_named(
    fleet: Fleet, queues: list[dict[str, Any]], state: str, why: str
) -> None:
    fleet.node_there()
    if queues:
        fleet.quota_there(
            "LocalQueue", name="q", parent="main", resource="", nominal=None, used=None
        )
    for queue in queues:
        resource = "nvidia.com/gpu@h100"
        fleet.quota_there("ClusterQueue", namespace="", name="main", resource=resource, **queue)
    fleet.waits("job", 8, queue="q")
    place = next(p for p in fleet.answer().places if p.cluster == THERE)
    assert (place.state, place.why) == (state, why)


def test_a_job_that_fits_in_its_own_cluster_does_not_wait_for_gpus(fleet: Fleet) -> None:
    fleet.node("n2", 8)
    fleet.node_there()
    fleet.waits("job", 8)
    assert fleet.answer().answer == "fits_here"


def test_pools_and_zones_are_told_apart(fleet: Fleet) -> None:
    fleet.node_there("m1", 4)
    fleet.node_there(
        "m2", 8, pool="other", labels=json.dumps({"topology.kubernetes.io/zone": "z2"})
    )
    fleet.waits("job", 8)
    assert fleet.answer().describe() == "cluster d (pool other)"
    places = [(p.pool, p.zone, p.state) for p in fleet.answer().places if p.cluster == THERE]
    assert places == [(None, None, "fits"), ("other", "z2", "fits"), ("big", "z1", "short")]
