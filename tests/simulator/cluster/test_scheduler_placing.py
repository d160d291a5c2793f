"""Where one pod goes: constraints, policies, devices, gangs, the order of the queue."""

import pytest

from fallow.errors import UsageError
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.order import sort_gangs
from simulator.cluster.scheduler.placing import place, place_gang
from simulator.cluster.scheduler.requests import (
    NodeFree,
    NodeTaint,
    PodGang,
    PodRequest,
    PodToleration,
    Policy,
)


def node(name: str, *free: int, cpu: int = 64_000, **more: object) -> NodeFree:
    return NodeFree(name, cpu, 256_000, gpu_milli=free, **more)  # type: ignore[arg-type]


def pod(gpus: int = 1, milli: int = 1000, *, uid: str = "p", **more: object) -> PodRequest:
    return PodRequest(uid, f"ns/{uid}", gpus=gpus, gpu_milli=milli, **more)  # type: ignore[arg-type]


H100 = node("h", 1000, gpu_model="H100", labels={"zone": "a"})
TAINTED = node("t", 1000, gpu_model="L4", taints=(NodeTaint("gpu", "present"),))
REFUSALS = {
    "cpu": (pod(cpu_milli=64_001), H100),
    "memory": (pod(memory_mib=256_001), H100),
    "pods": (pod(), node("h", 1000, pods=0)),
    "devices": (pod(2), H100),
    "share": (pod(1, 501), node("h", 500, 500)),
    "whole from slivers": (pod(1), node("h", 999, 1)),
    "two shares of one device": (pod(2, 400), node("h", 1000, 100)),
    "model": (pod(gpu_models=("B200", "L4")), H100),
    "selector": (pod(selector=(("zone", "b"),)), H100),
    "taint": (pod(), TAINTED),
    "another taint tolerated": (pod(tolerations=(PodToleration("cpu", "Exists"),)), TAINTED),
    "another value tolerated": (pod(tolerations=(PodToleration("gpu", "Equal", "x"),)), TAINTED),
    "another effect tolerated": (
        pod(tolerations=(PodToleration("gpu", "Exists", effect="NoExecute"),)),
        TAINTED,
    ),
    "cordon": (pod(), node("h", 1000, open=False)),
    "profile": (pod(profile="1g.10gb"), H100),
    "more memory than the device has": (pod(1, 0, gpu_memory_mib=81_921), H100),
    "memory of a device nobody knows": (pod(1, 0, gpu_memory_mib=1), node("h", 1000)),
    "share of a time-sliced device": (pod(1, 100), node("h", 1000, replicas=4)),
}


@pytest.mark.parametrize(("request_", "where"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("policy", ["first-fit", "best-fit", "fgd"])
def test_what_a_node_lacks_keeps_a_pod_away(
    request_: PodRequest, where: NodeFree, policy: Policy
) -> None:
    assert place(request_, [where], policy) is None


@pytest.mark.parametrize(
    "toleration",
    [
        PodToleration("gpu", "Exists"),
        PodToleration("gpu", "Equal", "present"),
        PodToleration(operator="Exists"),
        PodToleration("gpu", "Exists", effect="NoSchedule"),
    ],
    ids=["key", "value", "everything", "effect"],
)
def test_a_toleration_lets_a_pod_in(toleration: PodToleration) -> None:
    assert place(pod(tolerations=(toleration,)), [TAINTED]) is not None


def test_a_preferred_taint_makes_a_node_the_second_choice() -> None:
    soft = node("a", 1000, taints=(NodeTaint("spot", "", "PreferNoSchedule"),))
    first, second = place(pod(), [soft, node("b", 1000)]), place(pod(), [soft])
    assert first is not None
    assert second is not None
    assert (first.node, second.node) == ("b", "a")


CHOICES: dict[str, tuple[Policy, PodRequest, list[NodeFree], tuple[str, tuple[int, ...]]]] = {
    "first-fit: first name, whatever the order given": (
        "first-fit",
        pod(),
        [node("b", 1000), node("a", 0, 1000)],
        ("a", (1,)),
    ),
    "first-fit: share to the device with the least that fits": (
        "first-fit",
        pod(1, 300),
        [node("a", 1000, 300, 400, 300)],
        ("a", (1,)),
    ),
    "first-fit: whole GPUs at the lowest free indices": (
        "first-fit",
        pod(2),
        [node("a", 900, 1000, 1000, 1000)],
        ("a", (1, 2)),
    ),
    "best-fit: least GPU left": (
        "best-fit",
        pod(),
        [node("a", 1000, 1000), node("b", 1000)],
        ("b", (0,)),
    ),
    "best-fit: then least CPU": (
        "best-fit",
        pod(),
        [node("a", 1000), node("b", 1000, cpu=8_000)],
        ("b", (0,)),
    ),
    "best-fit: CPU-only pods keep away from free GPUs": (
        "best-fit",
        pod(0),
        [node("a", 1000, cpu=8_000), node("b")],
        ("b", ()),
    ),
    "fgd: completes a device where first-fit opens another": (
        "fgd",
        pod(1, 500),
        [node("a", 1000, 1000), node("b", 500)],
        ("b", (0,)),
    ),
    "fgd: CPU-heavy pods keep away from free GPUs": (
        "fgd",
        pod(0, cpu_milli=60_000),
        [node("a", 1000), node("b", 0)],
        ("b", ()),
    ),
    "time slicing: the emptiest device first": (
        "first-fit",
        pod(),
        [node("a", 500, 1000, 750, replicas=4)],
        ("a", (1,)),
    ),
    "HAMi memory: a device with room for it": (
        "first-fit",
        pod(1, 100, gpu_memory_mib=40_960),
        [node("a", 499, 500, gpu_model="H100")],
        ("a", (1,)),
    ),
}


@pytest.mark.parametrize(("policy", "request_", "nodes", "where"), CHOICES.values(), ids=CHOICES)
def test_a_policy_chooses(
    policy: Policy,
    request_: PodRequest,
    nodes: list[NodeFree],
    where: tuple[str, tuple[int, ...]],
) -> None:
    found = place(request_, nodes, policy)
    assert found is not None
    assert (found.node, found.devices) == where


def test_a_memory_share_counts_where_it_exceeds_the_share_of_cores() -> None:
    fleet = SchedulerFleet([node("a", 1000, gpu_model="H100")])
    wanted = pod(1, 100, gpu_memory_mib=40_960)
    found = place(wanted, fleet)
    assert found is not None
    assert found.share == 0.5
    least = place(pod(1, 0, gpu_memory_mib=1), fleet)
    assert least is not None
    assert least.gpu_milli == 1


def test_a_time_sliced_device_serves_its_replicas_and_no_more() -> None:
    fleet = SchedulerFleet([node("a", 1000, replicas=3)])
    for uid in "123":
        one = pod(uid=uid)
        found = place(one, fleet)
        assert found is not None
        fleet.take(one, found)
    assert place(pod(uid="4"), fleet) is None
    fleet.release("2")
    assert place(pod(uid="4"), fleet) is not None


def test_a_lost_device_serves_nothing_until_it_is_back_even_when_its_pod_leaves() -> None:
    fleet = SchedulerFleet([node("a", 1000)])
    found = place(pod(), fleet)
    assert found is not None
    fleet.take(pod(), found)
    fleet.lose_device("a", 0)
    fleet.release("p")
    assert place(pod(), fleet) is None
    assert fleet.node("a").gpu_milli == (0,)
    fleet.regain_device("a", 0)
    assert place(pod(), fleet) == found


def test_a_closed_node_and_a_new_label_count_at_once() -> None:
    fleet = SchedulerFleet([node("a", 1000)])
    picky = pod(selector=(("zone", "a"),))
    assert place(picky, fleet) is None
    fleet.relabel("a", {"zone": "a"}, ())
    assert place(picky, fleet) is not None
    fleet.close("a")
    assert place(picky, fleet) is None
    fleet.reopen("a")
    assert place(picky, fleet) is not None


def test_a_place_is_taken_once() -> None:
    fleet = SchedulerFleet([node("a", 1000)])
    found = place(pod(), fleet)
    assert found is not None
    fleet.take(pod(), found)
    for again in (pod(), pod(uid="q")):
        with pytest.raises(UsageError, match="cannot take a"):
            fleet.take(again, found)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("a"), node("a")], "two nodes are called 'a'"),
        ([node("a", 1000, replicas=32)], "wants 32 time-slicing replicas"),
    ],
)
def test_an_impossible_fleet_is_refused(nodes: list[NodeFree], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SchedulerFleet(nodes)


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    fleet = SchedulerFleet([node("a", 1000, 1000), node("b", 1000)])
    three = tuple(pod(uid=uid) for uid in "123")
    placed = place_gang(PodGang("g", three), fleet)
    assert placed is not None
    assert sorted((p.node, p.devices) for p in placed) == [("a", (0,)), ("a", (1,)), ("b", (0,))]
    four = (*three, pod(uid="4"))
    assert place_gang(PodGang("g", four), fleet) is None
    assert len(place_gang(PodGang("g", four, min_members=3), fleet) or ()) == 3
    assert not fleet.running


def test_the_large_members_of_a_gang_are_placed_before_the_small_ones_fill_their_room() -> None:
    nodes = [node("a", 1000, 1000), node("b", 1000)]
    assert place_gang(PodGang("g", (pod(uid="small"), pod(2, uid="large"))), nodes) is not None


def test_the_queue_goes_by_priority_then_age_then_name_and_keeps_gangs_together() -> None:
    pending = [
        pod(uid="late", created_s=9),
        pod(uid="b", created_s=5),
        pod(uid="a", created_s=5),
        pod(uid="m1", gang="ns/g", created_s=8),
        pod(uid="m2", gang="ns/g", created_s=8, priority=3),
        pod(uid="k1", gang="ns/k", created_s=20),
        pod(uid="k2", gang="ns/k", created_s=7),
        pod(uid="urgent", created_s=99, priority=7),
        pod(uid="alone", gang="ns/half", created_s=0),
    ]
    order = sort_gangs(pending, {"ns/half": 2})
    names = ["ns/urgent", "ns/g", "ns/a", "ns/b", "ns/k", "ns/late"]
    assert [gang.name for gang in order] == names
    assert [member.uid for member in order[1].members] == ["m1", "m2"]
