"""Placing and evicting on nodes whose answer is known by hand, and beside the simulator's own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.placement.node_fleet import FleetNode, FleetPlace, FleetPod, NodeFleet
from capacity.replay.preemption import YieldingUnit, choose_victims
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.placing import place
from simulator.cluster.scheduler.requests import NodeFree, PodRequest

MUCH = 10**6


def build_fleet(*gpus: int, **more: Any) -> NodeFleet:
    return NodeFleet(FleetNode(f"n{n}", MUCH, MUCH, count, **more) for n, count in enumerate(gpus))


def put(fleet: NodeFleet, name: str, *, gpus: int, priority: int, since_s: float) -> YieldingUnit:
    """Place one pod, and return it as a unit that may yield."""
    placed = fleet.place([FleetPod(name, gpus=gpus)])
    assert placed is not None
    fleet.take(placed[0])
    return YieldingUnit(name, priority, since_s, tuple(placed))


@pytest.mark.parametrize(
    ("pod", "node", "devices"),
    [
        (FleetPod("x", gpus=1), "n1", (0,)),
        (FleetPod("x", gpus=2), "n0", (0, 1)),
        (FleetPod("x", gpus=1, gpu_milli=500), "n1", (1,)),
        (FleetPod("x", gpus=2, gpu_milli=500), "n1", (1, 0)),
        (FleetPod("x", gpus=1, requirements=7), "n2", (0,)),
        (FleetPod("x", gpus=1, memory_mib=MUCH), "n0", (0,)),
        (FleetPod("x", gpus=5), None, ()),
        (FleetPod("x", gpus=1, requirements=8), None, ()),
    ],
    ids=["the fullest node", "enough whole devices", "a share fills a device", "shares of two",
         "its requirements", "its memory", "too many", "no node meets them"],
)  # fmt: skip
def test_a_pod_goes_to_the_fullest_node_that_takes_it(
    pod: FleetPod, node: str | None, devices: tuple[int, ...]
) -> None:
    """On n1 a pod has half of the second of two devices, and all the memory but 1 MiB is free."""
    nodes = [FleetNode(f"n{n}", MUCH, MUCH, count) for n, count in enumerate((3, 2))]
    fleet = NodeFleet([*nodes, FleetNode("n2", MUCH, MUCH, 4, meets=frozenset({7}))])
    half = FleetPod("half", gpus=1, gpu_milli=500, memory_mib=1)
    fleet.take(FleetPlace(half, "n1", (1,)))
    places = [(placed.node, placed.devices) for placed in fleet.place([pod]) or ()]
    assert places == ([(node, devices)] if node else [])


def test_a_gang_is_placed_whole_or_not_at_all_and_holds_nothing_meanwhile() -> None:
    fleet = build_fleet(4, 2)
    pods = [FleetPod("small", gpus=2), FleetPod("large", gpus=4)]
    assert [(p.pod.uid, p.node) for p in fleet.place(pods) or ()] == [
        ("large", "n0"),
        ("small", "n1"),
    ]
    assert fleet.place([*pods, FleetPod("more", gpus=1)]) is None
    assert not fleet.places
    fleet.set_open("n1", is_open=False)
    assert fleet.place(pods) is None
    assert len(fleet.place([FleetPod("x", gpus=4)]) or ()) == 1


def test_the_victims_are_those_of_the_least_priority_then_the_fewest_then_the_youngest() -> None:
    """n0: one of priority 5; n1: two of priority 1; n2: one of 3 that began late."""
    fleet = build_fleet(2, 2, 2)
    units = [
        put(fleet, "five", gpus=2, priority=5, since_s=0),
        put(fleet, "one-a", gpus=1, priority=1, since_s=0),
        put(fleet, "one-b", gpus=1, priority=1, since_s=1),
        put(fleet, "three", gpus=2, priority=3, since_s=9),
    ]

    def find(gpus: int, among: list[YieldingUnit], **more: Any) -> list[str]:
        return sorted(
            unit.name for unit in choose_victims([FleetPod("x", gpus=gpus, **more)], fleet, among)
        )

    assert find(2, units) == ["one-a", "one-b"]
    assert find(1, units) == ["one-b"]
    assert find(2, units[:2] + units[3:]) == ["three"]
    assert find(2, units, preempts=False) == []
    assert find(3, units) == []
    assert len(fleet.places) == 4
    gang = choose_victims([FleetPod("x", gpus=2), FleetPod("y", gpus=2)], fleet, units)
    assert sorted(unit.name for unit in gang) == ["one-a", "one-b", "three"]


nodes = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 8)), min_size=1, max_size=4)
pods = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([1000, 1000, 500, 250]), st.integers(0, 4)),
    max_size=12,
)


@given(nodes, pods)
def test_a_pod_is_placed_where_the_simulator_s_scheduler_places_it(
    sizes: list[tuple[int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    """Every third pod ends when the next one comes."""
    fleet = NodeFleet(FleetNode(f"n{n}", cpu, MUCH, gpus) for n, (gpus, cpu) in enumerate(sizes))
    other = SchedulerFleet(
        [NodeFree(f"n{n}", cpu, MUCH, gpu_milli=(1000,) * gpus)
         for n, (gpus, cpu) in enumerate(sizes)],
        types=(),
    )  # fmt: skip
    for n, (gpus, milli, cpu) in enumerate(wanted):
        request = PodRequest(f"p{n}", f"p{n}", cpu, gpus=gpus, gpu_milli=milli)
        expected = place(request, other, "best-fit")
        placed = fleet.place([FleetPod(f"p{n}", cpu, gpus=gpus, gpu_milli=milli)])
        assert (placed is None) == (expected is None)
        if placed is None or expected is None:
            continue
        assert (placed[0].node, placed[0].devices) == (expected.node, expected.devices)
        fleet.take(placed[0])
        other.take(request, expected)
        if n % 3 == 0:
            fleet.release(f"p{n}")
            other.release(f"p{n}")
