"""The fragmentation measure against its formula, and the policy that follows it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.fragmentation import FragmentationMeasure, PodType, mix, read_typical_mix
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.placing import place
from simulator.cluster.scheduler.requests import NodeFree, PodRequest

MIX = (
    PodType(4_000, 1, 1000, popularity=0.5),
    PodType(2_000, 1, 500, popularity=0.3),
    PodType(32_000, 4, 1000, popularity=0.2),
)


@pytest.mark.parametrize(
    ("cpu", "free", "lost"),
    [
        (16_000, [1000, 1000, 400, 0], 800),
        (1_000, [1000, 1000, 1000, 1000], 4000),
        (64_000, [1000, 1000, 1000, 1000], 0),
    ],
    ids=["slivers and no room for four", "stranded by CPU", "nothing lost"],
)
def test_the_worked_examples(cpu: int, free: list[int], lost: float) -> None:
    found = FragmentationMeasure(MIX).fragments(np.array([cpu]), np.array([free]))
    assert found == pytest.approx([lost])


types = st.builds(
    PodType,
    st.integers(0, 8),
    st.integers(0, 3),
    st.integers(1, 10).map(lambda tenth: tenth * 100),
    st.sampled_from([(), ("T4",), ("T4", "P100")]),
    st.floats(0.01, 1),
)
some_nodes = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.lists(st.integers(0, 10).map(lambda tenth: tenth * 100), min_size=3, max_size=3),
        st.sampled_from(["T4", "P100", "V100"]),
    ),
    min_size=1,
    max_size=5,
)


def by_the_formula(kind: PodType, cpu: int, free: list[int], model: str) -> float:
    large = [g for g in free if g >= kind.gpu_milli]
    access = not kind.gpu_models or model in kind.gpu_models
    if kind.gpus and access and len(large) >= kind.gpus and cpu >= kind.cpu_milli:
        return sum(g for g in free if g < kind.gpu_milli)
    return sum(free)


@given(st.lists(types, min_size=1, max_size=6), some_nodes)
def test_the_arrays_follow_the_formula_and_the_causes_add_up(
    mixed: list[PodType], nodes: list[tuple[int, list[int], str]]
) -> None:
    cpu, free, models = zip(*nodes, strict=True)
    want = [sum(kind.popularity * by_the_formula(kind, *node) for kind in mixed) for node in nodes]
    measure, arrays = FragmentationMeasure(mixed), (np.array(cpu), np.array(free), models)
    assert measure.fragments(*arrays) == pytest.approx(want)
    assert sum(measure.causes(*arrays).values()) == pytest.approx(sum(want))


def test_a_mix_keeps_the_popular_types_and_sums_to_one() -> None:
    common, rare, rarest = PodType(1, 1, 1000), PodType(3, 1, 500), PodType(2, 1, 500)
    kept = mix([common] * 90 + [rare] * 5 + [rarest] * 5)
    assert [kind.cpu_milli for kind in kept] == [1, 3]
    assert sum(kind.popularity for kind in kept) == pytest.approx(1)
    assert sum(kind.popularity for kind in read_typical_mix()) == pytest.approx(1)


def after(node: NodeFree, device: int, milli: int, cpu: int) -> float:
    free = [g - milli * (i == device) for i, g in enumerate(node.gpu_milli)]
    measure = FragmentationMeasure(MIX)
    rose = measure.fragments(np.array([node.cpu_milli - cpu]), np.array([free]))
    return float(
        (rose - measure.fragments(np.array([node.cpu_milli]), np.array([node.gpu_milli])))[0]
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 40_000),
            st.lists(st.integers(0, 10).map(lambda t: t * 100), min_size=3, max_size=3),
        ),
        min_size=2,
        max_size=5,
    ),
    st.integers(1, 9).map(lambda tenth: tenth * 100),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 6)), max_size=4),
)
def test_fgd_finds_the_least_gradient_also_when_it_remembers(
    frees: list[tuple[int, list[int]]], milli: int, others: list[tuple[int, int, int]]
) -> None:
    fleet = SchedulerFleet(
        [NodeFree(f"n{i}", cpu, 9, gpu_milli=tuple(g)) for i, (cpu, g) in enumerate(frees)], MIX
    )
    pod_request = PodRequest("p", "p", cpu_milli=2_000, gpus=1, gpu_milli=milli)
    place(pod_request, fleet, "fgd")
    for nth, (row, *tenths) in enumerate(others):
        # A change of some nodes makes what was remembered of them stale, also in a copy.
        name, uid = f"n{row % len(frees)}", f"other {nth}"
        twin = fleet.copy()
        for tried, tenth in zip((twin, fleet), tenths, strict=True):
            noise = PodRequest(uid, uid, cpu_milli=3_000, gpus=1, gpu_milli=tenth * 100)
            where = place(noise, [tried.node(name)])
            if where is not None:
                tried.take(noise, where)
        place(pod_request, twin, "fgd")
    nodes = [fleet.node(name) for name in fleet.names]
    options = [
        after(node, device, milli, 2_000)
        for node in nodes
        for device, free in enumerate(node.gpu_milli)
        if free >= milli and node.cpu_milli >= 2_000
    ]
    found = place(pod_request, fleet, "fgd")
    if found is None:
        assert not options
    else:
        chosen = after(fleet.node(found.node), found.devices[0], milli, 2_000)
        assert chosen == pytest.approx(min(options), abs=1e-5)
