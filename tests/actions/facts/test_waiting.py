"""Would the GPUs that a case frees really admit who waits?"""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from actions.facts import gather_facts
from capacity.placement.fleet_state import FleetState, to_micros
from capacity.placement.pending_queue import (
    ENOUGH_IS_FREE,
    ENOUGH_MAY_BE_FREE,
    PendingWorkloads,
)
from fallow.action_models import Waiter
from tests.actions.cases import NOW, finding
from tests.analyzers.conftest import Memory

HOUR = timedelta(hours=1)
THEN = NOW.replace(tzinfo=None)


class Floor:
    """Nodes with devices, pods that hold them, pods that wait."""

    def __init__(self, views: Memory) -> None:
        self.views = views

    def node(
        self, name: str, gpus: int = 8, *, profiles: tuple[str, ...] = (), **more: Any
    ) -> None:
        seen = {"first_seen": THEN - 90 * HOUR, "last_seen": THEN}
        row = {"cluster": "c", "node": name, "gpu_count": gpus, "ready": True, "pool": "p"}
        self.views.rows("node", [row | seen | more])
        devices = [(f"{name}/{n}", None, None) for n in range(gpus)]
        parts = [(f"{name}/0/gi{n}", f"{name}/0", p) for n, p in enumerate(profiles)]
        self.views.rows(
            "device",
            [
                {
                    "cluster": "c", "device": device, "parent": parent, "profile": profile,
                    "node": name, "weight": 1 / 7 if profile else 1.0, "interval_s": 60.0,
                    "gpu_model": "H100", **seen,
                }
                for device, parent, profile in [*devices, *parts]
            ],
        )  # fmt: skip

    def holds(self, workload: str, devices: list[str], **pod: Any) -> None:
        whose = {"cluster": "c", "namespace": "team-a", "workload_kind": "Notebook"}
        self.views.rows(
            "allocation",
            [
                whose | {
                    "device": device, "pod_uid": workload, "pod": f"{workload}-0",
                    "workload": workload, "start": THEN - 50 * HOUR, "end": THEN, "team": "a",
                    "share": 1.0, "attribution": "exact",
                }
                for device in devices
            ],
        )  # fmt: skip
        node = devices[0].split("/")[0]
        row = whose | {
            "uid": workload, "pod": f"{workload}-0", "workload": workload, "workload_uid": workload,
            "node": node, "phase": "Running", "gpu_request": float(len(devices)),
            "gpu_resource": "nvidia.com/gpu", "created_at": THEN - 50 * HOUR,
            "scheduled_at": THEN - 50 * HOUR, "first_seen": THEN - 50 * HOUR, "last_seen": THEN,
        }  # fmt: skip
        self.views.rows("pod", [row | pod])

    def waits(
        self, workload: str, gpus: float, *, pods: int = 1, resource: str = "nvidia.com/gpu",
        notes: dict[str, Any] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        self.views.rows(
            "pod",
            [
                {
                    "cluster": "c", "uid": f"{workload}-{n}", "namespace": "team-b",
                    "pod": f"{workload}-{n}", "phase": "Pending", "workload_kind": "Job",
                    "workload": workload, "gpu_request": gpus, "gpu_resource": resource,
                    "created_at": THEN - HOUR, "first_seen": THEN - HOUR, "last_seen": THEN,
                    "annotations": json.dumps(notes or {}), **more,
                }
                for n in range(pods)
            ],
        )  # fmt: skip

    def line(self, workload: str = "w") -> tuple[Waiter, ...]:
        case = finding("Notebook", details={"actionable": True, "reasons": [], "coverage": 1.0})
        subject = case.subject
        made = replace(case, subject=replace(subject, workload=workload))
        (facts,) = gather_facts(self.views, [made], NOW)
        assert facts.waiting is not None
        return facts.waiting


@pytest.fixture
def floor() -> Iterator[Floor]:
    memory = Memory()
    yield Floor(memory)
    memory.engine.close()


def test_a_job_of_eight_is_admitted_by_eight_on_one_node(floor: Floor) -> None:
    floor.node("n1")
    floor.holds("w", [f"n1/{n}" for n in range(8)])
    floor.waits("big", 8)
    (waiter,) = floor.line()
    assert waiter == Waiter("team-b", "Job", "big", 8.0, NOW - HOUR, admitted=True)


def test_eight_single_gpus_on_eight_nodes_admit_no_pod_of_eight(floor: Floor) -> None:
    """Eight free GPUs on eight nodes admit no pod of eight (Kueue issue 1309)."""
    for n in range(8):
        floor.node(f"n{n}")
        floor.holds(f"other{n}", [f"n{n}/{m}" for m in range(1, 8)])
    floor.holds("w", [f"n{n}/0" for n in range(8)])
    floor.waits("big", 8)
    (waiter,) = floor.line()
    assert (waiter.admitted, waiter.why) == (
        False, "it needs 8 whole GPUs on one node, 1 would be free",
    )  # fmt: skip


def test_a_gang_is_admitted_whole_or_not_at_all(floor: Floor) -> None:
    floor.node("n1", 4)
    floor.node("n2", 4)
    floor.holds("w", [f"n1/{n}" for n in range(4)])
    floor.holds("x", ["n2/0", "n2/1"])
    floor.waits("gang", 2, pods=3)
    assert floor.line()[0].admitted is True
    floor.waits("crowd", 2, pods=4)
    answer = {w.workload: w.admitted for w in floor.line()}
    assert answer == {"gang": True, "crowd": False}


def test_who_fits_already_does_not_wait_for_gpus(floor: Floor) -> None:
    floor.node("n1")
    floor.holds("w", ["n1/0"])
    floor.waits("small", 1)
    (waiter,) = floor.line()
    assert waiter.admitted is False
    assert "what is free already would do" in waiter.why


LABELS = json.dumps({"gpu": "H100"})
TAINT = json.dumps([{"key": "team", "value": "a", "effect": "NoSchedule"}])
BEARS = {"fallow.tolerations": [["team", "Equal", "a", "NoSchedule"]]}


@pytest.mark.parametrize(
    ("node", "pod", "admitted"),
    [
        ({"labels": LABELS}, {"notes": {"fallow.selector": {"gpu": ["H100", "H200"]}}}, True),
        ({"labels": LABELS}, {"notes": {"fallow.selector": {"gpu": ["A100"]}}}, False),
        ({"taints": TAINT}, {}, False),
        ({"taints": TAINT}, {"notes": BEARS}, True),
        ({"taints": TAINT}, {"notes": {"fallow.tolerations": [["", "Exists", "", ""]]}}, True),
        ({"taints": TAINT}, {"notes": {"fallow.tolerations": [["team", "Equal", "b", ""]]}}, False),
        ({"taints": TAINT.replace("NoSchedule", "PreferNoSchedule")}, {}, True),
        ({"unschedulable": True}, {}, False),
        ({"ready": False}, {}, False),
        ({"cpu_milli": 8000}, {"cpu_request_milli": 4000}, True),
        ({"cpu_milli": 8000}, {"cpu_request_milli": 9000}, False),
        ({"memory_bytes": 100}, {"memory_request_bytes": 101}, False),
        ({}, {"resource": "nvidia.com/mig-1g.10gb", "gpus": 1 / 7}, False),
        ({}, {"resource": "nvidia.com/gpu.shared", "gpus": 0.25}, None),
        ({}, {"resource": "claim/gpu.nvidia.com", "gpus": 1.0}, None),
    ],
)
def test_where_a_pod_may_go_decides(
    floor: Floor, node: dict[str, Any], pod: dict[str, Any], admitted: bool | None
) -> None:
    floor.node("n1", 2, **node)
    floor.holds("w", ["n1/0", "n1/1"], cpu_request_milli=2000)
    wanted = {"gpus": 2.0, **pod}
    floor.waits("big", wanted.pop("gpus"), **wanted)
    (waiter,) = floor.line()
    assert waiter.admitted is admitted
    assert waiter.why or admitted


def test_an_instance_admits_its_own_profile_only(floor: Floor) -> None:
    floor.node("n1", 1, profiles=("1g.10gb", "3g.40gb"))
    floor.holds("w", ["n1/0/gi0"])
    floor.holds("x", ["n1/0/gi1"])
    floor.waits("small", 1 / 7, resource="nvidia.com/mig-1g.10gb")
    floor.waits("large", 3 / 7, resource="nvidia.com/mig-3g.40gb")
    answer = {w.workload: w.admitted for w in floor.line()}
    assert answer == {"small": True, "large": False}


def test_a_device_that_somebody_else_holds_too_frees_nothing(floor: Floor) -> None:
    floor.node("n1", 1)
    floor.holds("w", ["n1/0"])
    floor.holds("x", ["n1/0"])
    floor.waits("small", 1)
    assert floor.line()[0].admitted is False


def test_without_an_inventory_who_waits_is_unknown(floor: Floor) -> None:
    case = finding("Notebook", details={"actionable": True, "reasons": [], "coverage": 1.0})
    (facts,) = gather_facts(floor.views, [case], NOW)
    assert facts.waiting is None


def test_devices_without_a_sample_are_not_known_to_be_free(floor: Floor) -> None:
    for name in ("n1", "n2"):
        floor.node(name)
    floor.holds("w", [f"n1/{n}" for n in range(8)])
    floor.waits("big", 8)
    (waiter,) = floor.line()
    assert (waiter.admitted, waiter.why) == (False, ENOUGH_IS_FREE)
    assert _moves(floor)
    floor.views.engine.execute(SILENT)
    (waiter,) = floor.line()
    assert (waiter.admitted, waiter.why) == (None, ENOUGH_MAY_BE_FREE)
    assert not _moves(floor)


SILENT = "UPDATE device SET last_seen = last_seen - INTERVAL 1 HOUR WHERE node = 'n2'"


def _moves(floor: Floor) -> bool | None:
    """Return whether what holds the first node has room elsewhere."""
    state, at = FleetState(floor.views, NOW - 60 * HOUR, NOW), to_micros(NOW) - 1
    allocations = [a for n in range(8) for a in state.device_allocations_at(("c", f"n1/{n}"), at)]
    pods = [pod for pod in state.all_pods if pod.node]
    return PendingWorkloads(state, NOW).fits_without(allocations, pods, {"n1"})


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Running"])
def test_what_waited_then_and_has_run_to_its_end_since_waited_all_the_same(
    floor: Floor, phase: str
) -> None:
    floor.node("n1")
    floor.waits(
        "job", 8, phase=phase, scheduled_at=THEN - HOUR / 2, finished_at=THEN - HOUR / 4, node="n1"
    )
    ground = FleetState(floor.views, NOW - 3 * HOUR, NOW)
    waited = [
        [p.pod for p in ground.pending_at(to_micros(NOW - HOUR * part))] for part in (0.75, 0.4)
    ]
    assert waited == [["job-0"], []]


def test_a_pod_that_ended_and_never_was_seen_to_be_placed_is_not_known_to_have_waited(
    floor: Floor,
) -> None:
    floor.node("n1")
    floor.waits("job", 8, phase="Failed")
    assert FleetState(floor.views, NOW - 3 * HOUR, NOW).pending_at(to_micros(NOW - HOUR / 2)) == []
