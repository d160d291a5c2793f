"""What a workload holds by the inventory, and what of it the devices in evidence cover."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyzers.conftest import Memory
from warehouse.workload_gpus import (
    WorkloadGpus,
    WorkloadStretch,
    build_frame,
    build_records,
    convert_to_us,
    read_workload_gpus,
)

END = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
START = END - 4 * HOUR
HASHED = hashlib.sha256(b"c/ml/web-0").hexdigest()[:32]
"""How a source without UIDs names the pod."""
OWNER = {"cluster": "c", "namespace": "ml", "workload_kind": "Deployment", "workload": "web"}


class Floor:
    """Pods of one workload, each on a node of its own, with an exporter or without."""

    def __init__(self) -> None:
        self.views = Memory()

    def pod(self, name: str, gpus: float | None = 1.0, **more: Any) -> None:
        row = {
            "uid": f"uid-{name}", "pod": name, "node": f"node-{name}", "phase": "Running",
            "gpu_request": gpus, "scheduled_at": _naive(START - HOUR),
            "first_seen": _naive(START - HOUR), "last_seen": _naive(END),
        }  # fmt: skip
        self.views.rows("pod", [OWNER | row | more])

    def node(self, name: str, gpus: int) -> None:
        self.views.rows("node", [{"cluster": "c", "node": name, "gpu_count": gpus}])

    def telemetry(
        self,
        pod: str,
        devices: int = 1,
        *,
        node: str = "",
        first: datetime = START - HOUR,
        last: datetime = END,
        **more: Any,
    ) -> None:
        for n in range(devices):
            device = f"{pod}/{n}"
            self.views.rows(
                "device",
                [
                    {
                        "cluster": "c", "device": device, "node": node or f"node-{pod}",
                        "weight": 1.0, "interval_s": 60.0, "first_seen": _naive(first),
                        "last_seen": _naive(last),
                    }
                ],
            )  # fmt: skip
            row = {
                "device": device, "pod_uid": f"uid-{pod}", "pod": pod, "share": 1.0,
                "start": _naive(START - HOUR), "end": _naive(END), "attribution": "exact",
                "rule": "telemetry",
            }  # fmt: skip
            self.views.rows("allocation", [OWNER | row | more])

    def seen(self, start: datetime = START, end: datetime = END) -> WorkloadGpus:
        wanted = WorkloadStretch(
            7, "c", "ml", "Deployment", "web", convert_to_us(start), convert_to_us(end)
        )
        other = WorkloadStretch(
            9, "c", "ml", "Deployment", "other", convert_to_us(start), convert_to_us(end)
        )
        rows = read_workload_gpus(self.views, build_frame([wanted, other]))
        found = build_records(rows)
        assert found[9] == WorkloadGpus(9, 0, 0, 0, 0.0, 0.0, None, None, None)
        return found[7]


def about(figure: float) -> Any:
    return pytest.approx(figure)


def _naive(instant: datetime) -> datetime:
    return instant.replace(tzinfo=None)


@pytest.fixture
def floor() -> Iterator[Floor]:
    made = Floor()
    yield made
    made.views.engine.close()


def test_a_replica_on_a_node_without_an_exporter_is_half_of_two(floor: Floor) -> None:
    floor.pod("web-0")
    floor.pod("web-1")
    floor.telemetry("web-0")
    seen = floor.seen()
    assert (seen.replicas, seen.replicas_unseen, seen.gpus, seen.gpus_seen) == (2, 1, 2.0, 1.0)
    assert seen.coverage == about(0.5)
    assert seen.gap == (
        "not judged: 1 of 2 replicas has no telemetry: web-1 on node node-web-1"
    )  # fmt: skip


def test_four_of_five_unseen_are_counted_and_the_first_is_named(floor: Floor) -> None:
    for n in range(5):
        floor.pod(f"web-{n}", 2.0)
    floor.telemetry("web-3", 2)
    seen = floor.seen()
    assert (seen.replicas, seen.replicas_unseen, seen.coverage) == (5, 4, about(0.2))
    assert seen.gap == (
        "not judged: 4 of 5 replicas have no telemetry: web-0 on node node-web-0 and 3 more"
    )


def test_what_is_seen_whole_has_no_gap(floor: Floor) -> None:
    floor.pod("web-0", 8.0)
    floor.telemetry("web-0", 8)
    seen = floor.seen()
    assert (seen.gap, seen.coverage, seen.gpus) == (None, about(1.0), 8.0)


@pytest.mark.parametrize(
    "pod",
    [
        {"node": None, "scheduled_at": None, "phase": "Pending"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"finished_at": _naive(START - HOUR / 2)},
        {"last_seen": _naive(START - HOUR / 2)},
        {"scheduled_at": _naive(END + HOUR), "last_seen": _naive(END + 2 * HOUR)},
        {"gpus": 0.0},
    ],
)
def test_pods_that_wait_or_are_over_hold_nothing(floor: Floor, pod: dict[str, Any]) -> None:
    floor.pod("web-0")
    floor.telemetry("web-0")
    floor.pod("web-1", **pod)
    seen = floor.seen()
    assert (seen.replicas, seen.gap, seen.coverage) == (1, None, about(1.0))


def test_a_pod_that_is_bound_and_starts_holds_already(floor: Floor) -> None:
    floor.pod("web-0")
    floor.telemetry("web-0")
    floor.pod("web-1", phase="Pending", scheduled_at=_naive(END - HOUR))
    seen = floor.seen()
    assert (seen.replicas, seen.replicas_unseen) == (2, 1)
    assert seen.coverage == about(4 / 5)


def test_a_replica_that_went_lowers_the_coverage_of_its_time_only(floor: Floor) -> None:
    floor.pod("web-0")
    floor.telemetry("web-0")
    floor.pod("web-1", finished_at=_naive(END - HOUR), last_seen=_naive(END - HOUR))
    seen = floor.seen()
    assert (seen.replicas, seen.gap) == (1, None)
    assert seen.unseen_us == 3 * HOUR // timedelta(microseconds=1)
    assert seen.coverage == about(4 / 7)


@pytest.mark.parametrize(("lost", "unseen"), [(13, 0), (14, 1)])
def test_a_device_that_an_exporter_stopped_showing_covers_no_more(
    floor: Floor, lost: int, unseen: int
) -> None:
    """0.95 of four hours are 228 minutes; a device is in evidence for three intervals more."""
    floor.pod("web-0")
    last = END - timedelta(minutes=lost + 2)
    floor.telemetry("web-0", last=last)
    seen = floor.seen()
    assert seen.replicas_unseen == unseen
    assert seen.coverage == about(1 - (lost - 1) / 240)


@pytest.mark.parametrize(("shown", "unseen"), [(8, 0), (4, 1)])
def test_where_no_pods_are_named_devices_that_are_not_shown_may_be_the_ones(
    floor: Floor, shown: int, unseen: int
) -> None:
    floor.node("node-web-0", 8)
    floor.pod("web-0", 4.0)
    floor.telemetry("web-0", shown, rule="request", share=4 / 8)
    assert floor.seen().replicas_unseen == unseen


@pytest.mark.parametrize(
    ("gpus", "seen"), [(0.25, 0.25), (None, 1.0), (2.0, 1.0)], ids=["share", "memory", "two"]
)
def test_a_shared_device_covers_what_is_requested_of_it(
    floor: Floor, gpus: float | None, seen: float
) -> None:
    memory = {} if gpus else {"gpu_resource": "nvidia.com/gpu"}
    floor.pod("web-0", gpus, **memory)
    floor.telemetry("web-0", share=0.25, rule="time-slicing")
    assert floor.seen().gpus_seen == about(seen)


def test_a_pod_known_by_its_name_and_by_its_uid_is_one(floor: Floor) -> None:
    floor.pod("web-0")
    floor.pod("web-0", uid=HASHED)
    floor.telemetry("web-0")
    assert (floor.seen().replicas, floor.seen().gap) == (1, None)


def test_a_pod_whose_telemetry_names_no_uid_is_seen(floor: Floor) -> None:
    floor.pod("web-0")
    floor.telemetry("web-0", pod_uid=HASHED)
    assert floor.seen().gap is None


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.booleans()), max_size=6))
def test_coverage_is_the_share_of_gpus_that_exporters_show(pods: list[tuple[float, bool]]) -> None:
    floor = Floor()
    for n, (gpus, shown) in enumerate(pods):
        floor.pod(f"web-{n}", gpus)
        if shown:
            floor.telemetry(f"web-{n}", int(gpus))
    seen = floor.seen()
    held = sum(gpus for gpus, _ in pods)
    shown_gpus = sum(gpus for gpus, shown in pods if shown)
    assert (seen.gpus, seen.gpus_seen) == (held, shown_gpus)
    assert (seen.gap is None) == all(shown for _, shown in pods)
    if held:
        assert seen.coverage == about(shown_gpus / held)
    floor.views.engine.close()
