"""MIG: legal places, layouts, and boards that are cut on demand."""

import pytest

from fallow.errors import UsageError
from simulator.cluster.scheduler import mig
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.placing import place
from simulator.cluster.scheduler.requests import (
    MigDevice,
    MigInstance,
    NodeFree,
    PodRequest,
    Policy,
)

Layout = frozenset[MigInstance]


def maximal_layouts(model: str, without: set[int]) -> set[Layout]:
    kinds = [kind for kind in mig.list_profiles(model).values() if kind.profile_id not in without]
    seen: set[Layout] = set()
    full: set[Layout] = set()

    def grow(layout: Layout) -> None:
        taken = mig.get_used_slices(model, layout)
        more = [
            layout | {MigInstance(kind.name, start)}
            for kind in kinds
            for start in mig.open_starts(model, taken, kind.name)
        ]
        if not more:
            full.add(layout)
        for larger in set(more) - seen:
            seen.add(larger)
            grow(larger)

    grow(frozenset())
    return full


@pytest.mark.parametrize(
    ("without", "layouts", "multisets"),
    [({15, 20}, 19, 14), ({20}, 78, 38)],
    ids=["the published 19", "with the double-memory 1g"],
)
def test_the_table_gives_the_known_number_of_full_layouts(
    without: set[int], layouts: int, multisets: int
) -> None:
    found = maximal_layouts("A100-40GB", without)
    assert len(found) == layouts
    assert len({tuple(sorted(i.profile for i in layout)) for layout in found}) == multisets


@pytest.mark.parametrize("model", mig.read_models())
def test_no_full_layout_exceeds_the_compute_slices_of_its_board(model: str) -> None:
    kinds = mig.list_profiles(model)
    most = max(kind.compute for kind in kinds.values())
    for layout in maximal_layouts(model, {20}):
        assert sum(kinds[i.profile].compute for i in layout) <= most


@pytest.mark.parametrize(
    "names",
    [["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], ["3g.40gb"] * 2, ["1g.10gb"] * 7],
)
def test_a_layout_is_laid_out_in_any_order(names: list[str]) -> None:
    for order in (names, names[::-1]):
        found = mig.lay_out("H100", order)
        assert sorted(i.profile for i in found) == sorted(names)
        assert mig.get_used_slices("H100", found)


@pytest.mark.parametrize(
    ("model", "names", "message"),
    [
        ("H100", ["4g.40gb", "4g.40gb"], "cannot hold 4g.40gb"),
        ("H100", ["1g.10gb"] * 8, "cannot hold"),
        ("H100", ["1g.10gb+me"] * 2, "cannot hold"),
        ("H100", ["3g.40gb", "3g.40gb", "1g.10gb"], "cannot hold"),
        ("H100", ["3g.20gb"], "no MIG profile '3g.20gb'.*it has: 1g.10gb"),
        ("L4", ["1g.6gb"], "no MIG profiles for GPU model 'L4'.*known: A100-40GB"),
    ],
)
def test_an_impossible_layout_is_refused(model: str, names: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mig.lay_out(model, names)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ((MigInstance("3g.40gb", 2),), "cannot start at slice 2.*legal starts: 0, 4"),
        ((MigInstance("3g.40gb", 0), MigInstance("1g.10gb", 3)), "no room"),
    ],
)
def test_a_board_that_breaks_the_table_is_refused(
    instances: tuple[MigInstance, ...], message: str
) -> None:
    gpu = MigDevice(instances)
    with pytest.raises(UsageError, match=message):
        SchedulerFleet([NodeFree("a", 1, 1, gpu_milli=(1000,), gpu_model="H100", mig=(gpu,))])


def mig_node(*gpus: MigDevice | None, **more: object) -> NodeFree:
    free = (1000,) * len(gpus)
    return NodeFree("a", 64_000, 64_000, gpu_milli=free, gpu_model="H100", mig=gpus, **more)  # type: ignore[arg-type]


def asking(profile: str = "", gpus: int = 1, uid: str = "p") -> PodRequest:
    return PodRequest(uid, uid, gpus=gpus, profile=profile)


FIXED = MigDevice(mig.lay_out("H100", ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]))


def test_a_fixed_board_serves_its_instances_each_once_and_no_whole_gpu() -> None:
    fleet = SchedulerFleet([mig_node(FIXED, None)])
    two = asking("1g.10gb", 2)
    found = place(two, fleet)
    assert found is not None
    assert [(d, i.start) for d, i in zip(found.devices, found.instances, strict=True)] == [
        (0, 2),
        (0, 3),
    ]
    assert found.share == 1.0
    fleet.take(two, found)
    assert place(asking("1g.10gb", uid="q"), fleet) is None
    whole = place(asking(uid="w"), fleet)
    assert whole is not None
    assert whole.devices == (1,)
    fleet.release("p")
    assert fleet.node("a").mig == (FIXED, None)


def test_under_the_single_strategy_a_whole_gpu_is_an_instance() -> None:
    halves = MigDevice(mig.lay_out("H100", ["3g.40gb"] * 2))
    fleet = SchedulerFleet([mig_node(halves, mig_strategy="single")])
    for uid in "12":
        found = place(asking(uid=uid), fleet)
        assert found is not None
        assert [i.profile for i in found.instances] == ["3g.40gb"]
        fleet.take(asking(uid=uid), found)
    assert place(asking(uid="3"), fleet) is None


@pytest.mark.parametrize(("policy", "halves"), [("first-fit", 0), ("best-fit", 1), ("fgd", 1)])
def test_a_board_cut_on_demand_keeps_the_starts_that_large_profiles_need(
    policy: Policy, halves: int
) -> None:
    held = MigInstance("1g.10gb", 6, allocated=True)
    fleet = SchedulerFleet([mig_node(MigDevice((held,), fixed=False))])
    found = place(asking("2g.20gb"), fleet, policy)
    assert found is not None
    fleet.take(asking("2g.20gb"), found)
    served = 0
    while (half := place(asking("3g.40gb", uid=f"half {served}"), fleet)) is not None:
        fleet.take(asking("3g.40gb", uid=f"half {served}"), half)
        served += 1
    assert served == halves
