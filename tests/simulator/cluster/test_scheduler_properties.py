"""Whatever comes and goes: nothing is given twice, and all comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster.scheduler import mig
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.placing import place, place_gang
from simulator.cluster.scheduler.preempting import choose_victims
from simulator.cluster.scheduler.requests import (
    POLICIES,
    MigDevice,
    NodeFree,
    PodGang,
    PodRequest,
    Policy,
)

FIXED = MigDevice(mig.lay_out("H100", ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]))
HALVES = MigDevice(mig.lay_out("A30", ["2g.12gb", "2g.12gb"]))
CUT = MigDevice(fixed=False)


def nodes() -> list[NodeFree]:
    def node(name: str, width: int, **more: object) -> NodeFree:
        return NodeFree(name, 16_000, 64_000, 12, (1000,) * width, **more)  # type: ignore[arg-type]

    return [
        node("cpu", 0),
        node("plain", 4, gpu_model="H100"),
        node("sliced", 2, gpu_model="L4", replicas=4),
        node("mixed", 3, gpu_model="H100", mig=(FIXED, None, CUT)),
        node("single", 1, gpu_model="A30", mig=(HALVES,), mig_strategy="single"),
    ]


gpus = st.one_of(
    st.just((0, 1000, 0, "")),
    st.tuples(st.integers(1, 4), st.just(1000), st.just(0), st.just("")),
    st.tuples(st.integers(1, 2), st.integers(50, 950), st.just(0), st.just("")),
    st.tuples(st.just(1), st.integers(0, 300), st.integers(1, 90_000), st.just("")),
    st.tuples(
        st.integers(1, 3),
        st.just(1000),
        st.just(0),
        st.sampled_from(["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb"]),
    ),
)
steps = st.lists(
    st.tuples(
        gpus,
        st.integers(0, 6).map(lambda cores: cores * 1000),
        st.integers(0, 3),
        st.integers(1, 3),
        st.sampled_from(["come", "come", "come", "leave", "lose", "regain"]),
    ),
    max_size=25,
)


def check(fleet: SchedulerFleet) -> None:
    start = {node.name: node for node in nodes()}
    for name in fleet.names:
        here = [one for one in fleet.running.values() if one.placement.node == name]
        left, whole = fleet.node(name), start[name]
        assert 0 <= left.cpu_milli == whole.cpu_milli - sum(o.request.cpu_milli for o in here)
        assert 0 <= left.pods == whole.pods - len(here)
        for device in range(len(whole.gpu_milli)):
            on = [one.placement for one in here if device in one.placement.devices]
            gpu = whole.mig[device] if whole.mig else None
            assert sum(p.share for p in on if not p.instances) <= (0.0 if gpu else 1.0)
            if whole.replicas > 1:
                assert len(on) <= whole.replicas
            if gpu is not None:
                held = [
                    instance
                    for p in on
                    for at, instance in zip(p.devices, p.instances, strict=True)
                    if at == device
                ]
                mig.get_used_slices(whole.gpu_model, held)
                cut = {(i.profile, i.start) for i in gpu.instances}
                assert not gpu.fixed or {(i.profile, i.start) for i in held} <= cut
    for gang in {one.request.gang for one in fleet.running.values()}:
        members = [one for one in fleet.running.values() if one.request.gang == gang]
        assert len(members) == int(gang.rpartition("/")[2]), "no half gangs"


Step = tuple[tuple[int, int, int, str], int, int, int, str]


def come(fleet: SchedulerFleet, policy: Policy, lost: set[int], nth: int, step: Step) -> None:
    (count, milli, memory, profile), cpu, priority, size, _ = step
    name = f"g{nth}/{size}"
    wanted = {
        uid: PodRequest(
            uid, uid, cpu, 0, count, milli, memory, profile, priority=priority, gang=name
        )
        for uid in (f"{nth}-{rank}" for rank in range(size))
    }
    gang = PodGang(name, tuple(wanted.values()))
    where = place_gang(gang, fleet, policy)
    if where is None:
        gone = choose_victims(gang, fleet, policy)
        for one in gone or ():
            fleet.release(one.request.uid)
        where = place_gang(gang, fleet, policy)
        assert (where is None) == (gone is None), "victims suffice"
    for place_ in where or ():
        assert not (place_.node == "plain" and lost & set(place_.devices))
        fleet.take(wanted[place_.uid], place_, float(nth))


@pytest.mark.parametrize("policy", POLICIES)
@given(history=steps)
def test_no_history_gives_anything_twice_or_halves_a_gang(
    policy: Policy, history: list[Step]
) -> None:
    fleet = SchedulerFleet(nodes())
    lost: set[int] = set()
    for nth, step in enumerate(history):
        what, device = step[-1], nth % 4
        if what == "lose":
            fleet.lose_device("plain", device)
            lost.add(device)
        elif what == "regain":
            fleet.regain_device("plain", device)
            lost.discard(device)
        elif what == "leave" and fleet.running:
            first = next(iter(fleet.running.values())).request.gang
            for uid in [u for u, one in fleet.running.items() if one.request.gang == first]:
                fleet.release(uid)
        elif what == "come":
            come(fleet, policy, lost, nth, step)
        check(fleet)
    for uid in list(fleet.running):
        fleet.release(uid)
    for device in lost:
        fleet.regain_device("plain", device)
    fresh = SchedulerFleet(nodes())
    assert [fleet.node(name) for name in fleet.names] == [fresh.node(n) for n in fresh.names]


@given(history=steps)
def test_the_same_requests_go_to_the_same_places_in_whatever_order_nodes_are_named(
    history: list[Step],
) -> None:
    one, other = SchedulerFleet(nodes()), SchedulerFleet(nodes()[::-1])
    for nth, ((count, milli, memory, profile), cpu, *_) in enumerate(history):
        pod = PodRequest(str(nth), str(nth), cpu, 0, count, milli, memory, profile)
        policy = POLICIES[nth % len(POLICIES)]
        first, second = place(pod, one, policy), place(pod, other, policy)
        assert first == second
        if first is not None:
            one.take(pod, first)
            other.take(pod, first)
