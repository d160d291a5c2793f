"""Packing: no node holds more than it has, no plan beats the bound, and order is no matter."""

import csv
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.pools.lower_bound import compute_bound, count_nodes
from analyzers.pools.packing import PackedNodes
from analyzers.pools.planning import NodeMix, pack_singles, plan_for_peaks, plan_mix
from analyzers.pools.shapes import WHOLE, PackingProblem, PodShape, TypeOffer

pytestmark = pytest.mark.slow


def offer(name: str = "a", **more: Any) -> TypeOffer:
    known: dict[str, Any] = {
        "instance_type": name, "arch": "amd64", "vendor": "nvidia", "gpu_model": "L4", "gpus": 4,
        "gpu_memory_mib": 24000, "cpu_milli": 48000, "memory_mib": 190000, "pods": 100,
        "usd_h": Decimal(4),
    }  # fmt: skip
    return TypeOffer(**{**known, **more})


def check(found: NodeMix, pods: dict[PodShape, int]) -> None:
    """Recount a plan pod by pod, by other means than it was made with."""
    nodes, problem = found.nodes, found.nodes.problem
    held = nodes.count_pods()
    assert held.sum(axis=0).tolist() == [pods.get(s, 0) for s in problem.shapes]
    for node, kind in enumerate(nodes.kind.tolist()):
        type_ = problem.offers[kind]
        shapes = [(s, int(n)) for s, n in zip(problem.shapes, held[node], strict=True) if n]
        assert sum(s.cpu_milli * n for s, n in shapes) <= type_.cpu_milli
        assert sum(s.memory_mib * n for s, n in shapes) <= type_.memory_mib
        assert sum(n for _, n in shapes) <= type_.pods
        assert all(type_.refuses(s) is None for s, _ in shapes)
        whole = sum(s.gpus * n for s, n in shapes if s.gpus and (s.milli == WHOLE or s.gpus > 1))
        parts = sum(s.milli * n for s, n in shapes if s.gpus == 1 and s.milli < WHOLE)
        gpus = nodes.gpu_free[node][: type_.gpus]
        assert whole * WHOLE + parts == type_.gpus * WHOLE - gpus.sum()
        assert (gpus >= 0).all()
    assert found.usd_h == pytest.approx(sum(float(o.usd_h or 0) * n for o, n in mix_of(nodes)))
    assert found.bound_usd_h <= found.usd_h


def mix_of(nodes: PackedNodes) -> list[tuple[TypeOffer, int]]:
    counts = np.bincount(nodes.kind, minlength=len(nodes.problem.offers)).tolist()
    return list(zip(nodes.problem.offers, counts, strict=True))


def today(problem: PackingProblem) -> list[tuple[TypeOffer, int]]:
    """Return what a pool of one type holds its pods with."""
    return mix_of(next(nodes for _, nodes in pack_singles(problem)))


SHAPES = st.builds(
    PodShape,
    gpus=st.sampled_from([0, 1, 1, 1, 2, 4]),
    milli=st.sampled_from([1000, 1000, 700, 500, 333, 142]),
    cpu_milli=st.integers(0, 40).map(lambda n: n * 500),
    memory_mib=st.integers(0, 40).map(lambda n: n * 2048),
    sharing=st.sampled_from(["share", "mig"]),
)
OFFERS = st.lists(
    st.builds(
        offer,
        st.sampled_from("abcdef"),
        gpus=st.sampled_from([1, 2, 4, 8]),
        cpu_milli=st.integers(4, 96).map(lambda n: n * 1000),
        memory_mib=st.integers(4, 96).map(lambda n: n * 4096),
        pods=st.sampled_from([3, 30, 110]),
        usd_h=st.integers(1, 60).map(Decimal),
    ),
    max_size=4,
)
EVERYTHING = offer("z", gpus=8, cpu_milli=96000, memory_mib=400000, usd_h=Decimal(30))


@settings(max_examples=25)
@given(
    st.dictionaries(SHAPES, st.integers(1, 30), max_size=6),
    OFFERS,
    st.randoms(use_true_random=False),
)
def test_plans_hold_every_pod_within_every_capacity_and_above_the_bound(
    pods: dict[PodShape, int], offers: list[TypeOffer], shuffle: random.Random
) -> None:
    offers = [*offers, EVERYTHING]
    found = plan_mix(PackingProblem(pods, offers))
    check(found, pods)
    if len({o.instance_type for o in offers}) == len(offers):
        mixed = list(pods.items())
        shuffle.shuffle(mixed)
        shuffle.shuffle(offers)
        assert plan_mix(PackingProblem(dict(mixed), offers)).mix == found.mix
    every = {o.instance_type: n for o, n in today(PackingProblem(pods, [EVERYTHING]))}
    assert found.usd_h <= every["z"] * 30 + 1e-9  # what is there today is a candidate


def test_a_mix_is_bought_where_it_is_cheaper_than_any_one_type() -> None:
    big = offer("big", gpus=8, cpu_milli=8000, usd_h=Decimal(8))
    host = offer("host", gpus=1, cpu_milli=64000, usd_h=Decimal(2))
    pods = {PodShape(gpus=1, cpu_milli=1000): 8, PodShape(gpus=1, cpu_milli=60000): 1}
    found = plan_mix(PackingProblem(pods, [big, host]))
    assert [(m["instance_type"], m["nodes"]) for m in found.mix] == [("big", 1), ("host", 1)]
    assert found.gap == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("pods", "fewest"),
    [
        ({PodShape(gpus=1, cpu_milli=1000): 9}, 3),  # GPUs
        ({PodShape(gpus=1, cpu_milli=24000): 4}, 2),  # CPU
        ({PodShape(gpus=1, cpu_milli=1000, memory_mib=100000): 4}, 4),  # one node takes one
        ({PodShape(gpus=1, milli=700): 4}, 1),  # a board each
        ({PodShape(gpus=1, milli=700): 5}, 2),  # no two share a board
        ({PodShape(gpus=1, milli=250): 17}, 2),  # sixteen to a node
        ({PodShape(cpu_milli=100): 101}, 2),  # pods
        ({}, 0),
    ],
)
def test_the_fewest_nodes_of_one_type_follow_from_the_scarcest(
    pods: dict[PodShape, int], fewest: int
) -> None:
    problem = PackingProblem(pods, [offer()])
    assert count_nodes(problem, 0) == fewest
    assert len(plan_mix(problem).nodes.kind) == fewest
    assert compute_bound(problem).usd_h == pytest.approx(4 * fewest, rel=1e-5)


def test_shares_and_slices_never_meet_on_a_board() -> None:
    shared, cut = (PodShape(gpus=1, milli=500, sharing=way) for way in ("share", "mig"))
    halves = {shared: 1, cut: 1}
    assert len(plan_mix(PackingProblem(halves, [offer(gpus=1)])).nodes.kind) == 2
    same = {cut: 2}
    assert len(plan_mix(PackingProblem(same, [offer(gpus=1)])).nodes.kind) == 1


def test_a_plan_for_several_peaks_holds_each_and_not_their_sum() -> None:
    gpu, cpu = PodShape(gpus=4, cpu_milli=8000), PodShape(cpu_milli=48000)
    peaks = [Counter({gpu: 2}), Counter({cpu: 2})]
    found = plan_for_peaks(PackingProblem({gpu: 1, cpu: 1}, [offer()]), peaks)
    assert len(found.nodes.kind) == 2  # their sum would ask for four
    assert found.bound_usd_h == pytest.approx(8, rel=1e-5)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (PodShape(gpus=1, arch="arm64"), "architecture"),
        (PodShape(gpus=1, vendor="amd"), "GPU vendor"),
        (PodShape(gpus=1, models=("H100",)), "GPU model"),
        (PodShape(gpus=1, gpu_memory_mib=80000), "GPU memory"),
        (PodShape(gpus=8), "GPUs per node"),
        (PodShape(gpus=1, least_gpus=8), "GPUs per node"),
        (PodShape(cpu_milli=48001), "CPU"),
        (PodShape(memory_mib=190001), "memory"),
        (PodShape(types=("b",)), "instance type"),
        (PodShape(cpu_milli=1, vendor="amd", models=("H100",)), None),  # no GPU: any will do
    ],
)
def test_a_type_says_why_it_cannot_take_a_pod(shape: PodShape, reason: str | None) -> None:
    assert offer().refuses(shape) == reason
    assert PackingProblem({shape: 1}, [offer()]).unplaceable() == (
        () if reason is None else (shape,)
    )


def test_types_whose_gpus_nobody_can_use_are_no_hosts_for_the_others() -> None:
    pods = {PodShape(gpus=1, vendor="nvidia"): 1, PodShape(cpu_milli=8000): 9}
    amd = offer("amd", vendor="amd", usd_h=Decimal("0.1"))
    assert [m["instance_type"] for m in plan_mix(PackingProblem(pods, [offer(), amd])).mix] == ["a"]


def test_what_has_no_price_is_no_type_to_buy() -> None:
    problem = PackingProblem(
        {PodShape(gpus=1): 1}, [offer(usd_h=None), offer("b", usd_h=Decimal(9))]
    )
    assert [o.instance_type for o in problem.offers] == ["b"]
    with pytest.raises(ValueError, match="no type takes"):
        compute_bound(PackingProblem({PodShape(gpus=1): 1}, [offer(usd_h=None)]))


@pytest.mark.real_data
def test_openbs_pods_are_packed_onto_the_public_catalogue(
    shared_data: Callable[[str], Path],
) -> None:
    with shared_data("cloud/aws_gpu_instances.csv").open() as lines:
        offers = [
            offer(
                r["instance_type"], arch=r["arch"], vendor=r["gpu_manufacturer"],
                gpu_model=r["gpu_name"], gpus=int(r["gpu_count"]),
                gpu_memory_mib=int(r["gpu_memory_mib_each"]),
                cpu_milli=int(r["allocatable_cpu_milli"]) - 1000,
                memory_mib=int(r["allocatable_memory_mib"]) - 2048,
                usd_h=Decimal(r["on_demand_usd_hr_us_east_1"] or 0) or None,
            )
            for r in csv.DictReader(lines)
        ]  # fmt: skip
    with shared_data("openb/openb_pod_list_default.csv").open() as lines:
        pods = Counter(
            PodShape(
                gpus=int(r["num_gpu"]),
                milli=int(r["gpu_milli"]) or WHOLE if int(r["num_gpu"]) else WHOLE,
                cpu_milli=int(r["cpu_milli"]),
                memory_mib=int(r["memory_mib"]),
                sharing="share" if int(r["num_gpu"]) and int(r["gpu_milli"]) < WHOLE else "",
                vendor="nvidia",
                arch="amd64",
            )
            for r in csv.DictReader(lines)
        )
    problem = PackingProblem(pods, offers)
    assert pods.total() == 8152
    assert len(problem.offers) == 64  # 65 less p5e.48xlarge, which has no on-demand price
    found = plan_mix(problem)
    check(found, pods)
    bought = {str(m["instance_type"]) for m in found.mix}
    assert not [t for t in bought if t.startswith(("g5g", "g4ad", "p5e."))]
    assert found.gap < 0.15
