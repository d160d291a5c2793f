"""Who yields: fewest, lowest, youngest; gangs whole."""

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.mig import lay_out
from simulator.cluster.scheduler.placing import place, place_gang
from simulator.cluster.scheduler.preempting import choose_victims
from simulator.cluster.scheduler.requests import (
    MigDevice,
    NodeFree,
    Placement,
    PodGang,
    PodRequest,
    Running,
)


def fleet(*widths: int) -> SchedulerFleet:
    return SchedulerFleet(
        NodeFree(f"n{i}", 64_000, 64_000, gpu_milli=(1000,) * w) for i, w in enumerate(widths)
    )


def put(on: SchedulerFleet, uid: str, node: str, gpus: int, **more: object) -> None:
    started = float(str(more.pop("started_s", 0)))
    pod_request = PodRequest(uid, uid, gpus=gpus, **more)  # type: ignore[arg-type]
    where = place(pod_request, [on.node(node)])
    assert where is not None
    on.take(pod_request, where, started)


def asks(gpus: int, priority: int = 10, **more: object) -> PodGang:
    return PodGang("new", (PodRequest("new", "new", gpus=gpus, priority=priority, **more),))  # type: ignore[arg-type]


def names(found: tuple[Running, ...] | None) -> list[str] | None:
    return None if found is None else [one.request.uid for one in found]


def test_nobody_yields_where_there_is_room() -> None:
    full = fleet(1, 1)
    put(full, "a", "n0", 1)
    assert names(choose_victims(asks(1), full)) == []


def test_fewest_come_before_lowest() -> None:
    full = fleet(2, 2)
    put(full, "low 1", "n0", 1, priority=1)
    put(full, "low 2", "n0", 1, priority=1)
    put(full, "one", "n1", 2, priority=5)
    assert names(choose_victims(asks(2), full)) == ["one"]


def test_of_as_few_the_lowest_then_the_youngest_yields() -> None:
    full = fleet(3)
    put(full, "high", "n0", 1, priority=5)
    put(full, "old", "n0", 1, priority=1, started_s=10)
    put(full, "young", "n0", 1, priority=1, started_s=20)
    assert names(choose_victims(asks(1), full)) == ["young"]


def test_the_fewest_are_looked_for_on_every_node() -> None:
    full = fleet(3, 3, 3)
    for node, widths in (("n0", (1, 1, 1)), ("n1", (2, 1)), ("n2", (1, 1, 1))):
        for nth, width in enumerate(widths):
            put(full, f"{node} {nth}", node, width, priority=5 if node == "n1" else 0)
    assert names(choose_victims(asks(3), full)) == ["n1 0", "n1 1"]


@pytest.mark.parametrize(
    "new",
    [asks(1, priority=5), asks(1, preempts=False), asks(2), asks(1, selector=(("zone", "x"),))],
    ids=["equal priority", "preemptionPolicy Never", "larger than the node", "not eligible"],
)
def test_nobody_yields_where_it_would_not_help_or_is_not_allowed(new: PodGang) -> None:
    full = fleet(1)
    put(full, "a", "n0", 1, priority=5)
    assert choose_victims(new, full) is None


def test_a_pod_in_the_way_on_a_closed_node_is_left_alone() -> None:
    full = fleet(1)
    put(full, "a", "n0", 1)
    full.close("n0")
    assert choose_victims(asks(1), full) is None


def test_a_gang_is_evicted_whole_or_left_alone() -> None:
    full = fleet(1, 1)
    put(full, "m0", "n0", 1, gang="g")
    put(full, "m1", "n1", 1, gang="g")
    assert names(choose_victims(asks(1), full)) == ["m0", "m1"]
    full.release("m1")
    put(full, "m1", "n1", 1, gang="g", priority=50)
    assert choose_victims(asks(1), full) is None


def test_a_lone_pod_yields_before_a_gang_that_is_larger() -> None:
    full = fleet(1, 1, 1)
    put(full, "m0", "n0", 1, gang="g")
    put(full, "m1", "n1", 1, gang="g")
    put(full, "z", "n2", 1, priority=5)
    assert names(choose_victims(asks(1), full)) == ["z"]


def test_a_quota_may_name_victims_of_higher_priority() -> None:
    full = fleet(1)
    put(full, "borrower", "n0", 1, priority=99)
    assert names(choose_victims(asks(1), full, may=lambda _: True)) == ["borrower"]


def test_a_gang_evicts_only_what_is_in_its_way() -> None:
    full = fleet(2, 2, 2, 1)
    put(full, "lowest of all", "n3", 1, priority=-1)
    for node, priority in (("n0", 1), ("n1", 3), ("n2", 2)):
        put(full, f"{node} a", node, 1, priority=priority)
        put(full, f"{node} b", node, 1, priority=priority)
    pair = PodGang("new", tuple(PodRequest(u, u, gpus=2, priority=10) for u in ("x", "y")))
    found = choose_victims(pair, full)
    assert set(names(found) or ()) == {"n0 a", "n0 b", "n2 a", "n2 b"}
    assert len(full.running) == 7


def test_an_instance_is_freed_for_its_profile_only() -> None:
    gpu = MigDevice(lay_out("H100", ["3g.40gb", "4g.40gb"]))
    full = SchedulerFleet([NodeFree("n0", 64_000, 9, gpu_milli=(0,), gpu_model="H100", mig=(gpu,))])
    put(full, "three", "n0", 1, profile="3g.40gb", priority=2)
    put(full, "four", "n0", 1, profile="4g.40gb", priority=1)
    assert names(choose_victims(asks(1, profile="3g.40gb"), full)) == ["three"]
    assert choose_victims(asks(1), full) is None


pods = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 3), st.sampled_from("   gh")),
    max_size=9,
)


def filled(drawn: list[tuple[int, int, int, str]]) -> SchedulerFleet:
    full = fleet(2, 3, 3)
    for nth, (node, gpus, priority, gang) in enumerate(drawn):
        pod_request = PodRequest(
            f"p{nth}", f"p{nth}", gpus=gpus, priority=priority, gang=gang.strip()
        )
        where = place(pod_request, [full.node(f"n{node}")])
        if where is not None:
            full.take(pod_request, where, float(nth))
    return full


def released(full: SchedulerFleet, gone: tuple[Running, ...]) -> SchedulerFleet:
    rest = full.copy()
    for one in gone:
        rest.release(one.request.uid)
    return rest


@given(pods, st.integers(1, 3), st.integers(0, 3))
def test_no_smaller_set_of_victims_would_do(
    drawn: list[tuple[int, int, int, str]], gpus: int, priority: int
) -> None:
    full = filled(drawn)
    found = choose_victims(asks(gpus, priority), full)
    lower = [one for one in full.running.values() if one.request.priority < priority]
    whole = [
        some
        for size in range(len(lower) + 1)
        for some in combinations(lower, size)
        if closed(full, some) and place(asks(gpus).members[0], released(full, some)) is not None
    ]
    assert (found is None) == (not whole)
    if found is not None:
        assert place(asks(gpus).members[0], released(full, found)) is not None
        assert len(found) == min(len(some) for some in whole)


@given(pods, st.integers(1, 3), st.integers(2, 4))
def test_a_gang_fits_once_its_victims_left_and_none_is_half_a_gang(
    drawn: list[tuple[int, int, int, str]], gpus: int, members: int
) -> None:
    full = filled(drawn)
    gang = PodGang(
        "new", tuple(PodRequest(f"x{i}", "x", gpus=gpus, priority=2) for i in range(members))
    )
    found = choose_victims(gang, full)
    lower = tuple(one for one in full.running.values() if one.request.priority < 2)
    if found is None:
        assume(closed(full, lower))
        assert place_gang(gang, released(full, lower)) is None
        return
    assert place_gang(gang, released(full, found)) is not None
    assert closed(full, found)
    assert set(found) <= set(lower)


def closed(full: SchedulerFleet, some: tuple[Running, ...]) -> bool:
    """Say whether no gang is half in and half out."""
    mine = {one.request.gang for one in some if one.request.gang}
    uids = {one.request.uid for one in some}
    return all(one.request.uid in uids for one in full.running.values() if one.request.gang in mine)


def test_a_placement_is_remembered_with_its_request() -> None:
    full = fleet(1)
    put(full, "a", "n0", 1, started_s=3)
    gone = full.release("a")
    assert gone == Running(PodRequest("a", "a", gpus=1), Placement("a", "n0", (0,), 1000), 3.0)
